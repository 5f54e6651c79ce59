//! The thread that drives the connections.
//!
//! A connection is bound to the runtime that opened it: it breaks when that runtime stops, and
//! everyone who waits on it is delayed while that runtime is busy. The store therefore opens its
//! connections in the context of a runtime that does nothing else and never stops. Statements are
//! still sent, and their rows decoded, by the caller's task; only the wake-ups come from this
//! thread.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use idempotent_core::{StoreError, store::RuntimeThread};

/// The threads of the stores of one kind in a process. Make it a `static`.
pub struct IoThread {
    store: &'static str,
    io: RuntimeThread,
    /// Probes the servers of all stores, so that a probe never waits for other work.
    probes: RuntimeThread,
}

impl IoThread {
    /// Creates threads of these names, which are not started yet, for the stores of this name.
    #[must_use]
    pub const fn new(store: &'static str, io: &'static str, probes: &'static str) -> Self {
        Self { store, io: RuntimeThread::new(io), probes: RuntimeThread::new(probes) }
    }

    /// Runs a call so that everything it opens, spawns or sleeps on belongs to the thread's
    /// runtime.
    ///
    /// # Errors
    /// Those of the call, and a transient error if the thread cannot be started.
    pub async fn run<T>(
        &'static self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let runtime =
            self.io.start().map_err(|error| StoreError::transient(self.store, operation, error))?;
        OnIoThread { runtime, call: Some(Box::pin(call)) }.await
    }

    /// Drops a value so that everything it spawns belongs to the thread's runtime.
    pub fn enter(&'static self, drop: impl FnOnce()) {
        let _context = self.io.started().map(Handle::enter);
        drop();
    }

    /// Spawns a task on the thread's runtime. Without the thread no connection exists, and the task
    /// is dropped.
    pub fn spawn(&'static self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.io.started() {
            thread.spawn(task);
        }
    }

    /// Spawns a probe of a server, on the thread for probes if it can be started.
    pub(super) fn spawn_probe(&'static self, probe: impl Future<Output = ()> + Send + 'static) {
        match self.probes.start() {
            Ok(thread) => drop(thread.spawn(probe)),
            Err(_) => self.spawn(probe),
        }
    }
}

struct OnIoThread<'a, T> {
    runtime: &'static Handle,
    call: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<T> Future for OnIoThread<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let _context = self.runtime.enter();
        match &mut self.call {
            Some(call) => call.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for OnIoThread<'_, T> {
    /// Returning a connection spawns a task, which must also belong to the thread's runtime.
    fn drop(&mut self) {
        let _context = self.runtime.enter();
        self.call = None;
    }
}
