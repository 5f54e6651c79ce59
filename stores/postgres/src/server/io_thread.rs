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

use idempotent_core::StoreError;
use idempotent_core::store::RuntimeThread;

/// One for all stores of the process.
static IO_THREAD: RuntimeThread = RuntimeThread::new("idempotency-pg");
/// Probes the servers of all stores of the process, so that a probe never waits for other work.
static PROBE_THREAD: RuntimeThread = RuntimeThread::new("idempotency-pg-probe");

/// Runs a call so that everything it opens, spawns or sleeps on belongs to the thread's runtime.
pub(crate) async fn on_io_thread<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let runtime = IO_THREAD
        .start()
        .map_err(|error| StoreError::transient(crate::error::NAME, operation, error))?;
    OnIoThread { runtime, call: Some(Box::pin(call)) }.await
}

/// Drops a value so that everything it spawns belongs to the thread's runtime.
pub(crate) fn in_io_context(drop: impl FnOnce()) {
    let _context = IO_THREAD.started().map(Handle::enter);
    drop();
}

/// Spawns a task on the thread's runtime. Without the thread no connection exists, and the task is
/// dropped.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Some(thread) = IO_THREAD.started() {
        thread.spawn(task);
    }
}

/// Spawns a probe of a server, on the thread for probes if it can be started.
pub(crate) fn spawn_probe(probe: impl Future<Output = ()> + Send + 'static) {
    match PROBE_THREAD.start() {
        Ok(thread) => drop(thread.spawn(probe)),
        Err(_) => spawn(probe),
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
