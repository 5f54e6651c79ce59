//! A thread with a runtime, for tasks that must not depend on the application's runtimes.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use tokio::runtime::{Builder, Handle};

/// A thread that drives a Tokio runtime for what a store does in the background. It starts when it
/// is first used and never stops, since connections outlive stores. Make it a `static`.
pub struct RuntimeThread {
    name: &'static str,
    runtime: OnceLock<Handle>,
    start: Mutex<()>,
}

impl RuntimeThread {
    /// Creates a thread of this name, which is not started yet.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, runtime: OnceLock::new(), start: Mutex::new(()) }
    }

    /// Returns the runtime if the thread has started.
    #[must_use]
    pub fn started(&self) -> Option<&Handle> {
        self.runtime.get()
    }

    /// Starts the thread unless it has started, and returns its runtime.
    ///
    /// # Errors
    /// Fails if the operating system cannot start another thread.
    pub fn start(&self) -> io::Result<&Handle> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let _starting = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let body = move || runtime.block_on(std::future::pending::<()>());
        thread::Builder::new().name(self.name.into()).spawn(body)?;
        Ok(self.runtime.get_or_init(|| handle))
    }
}
