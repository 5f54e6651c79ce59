//! The thread that follows Sentinels and clusters for all stores of a process. It outlives the
//! runtimes that use the stores.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use tokio::runtime::{Builder, Handle};

use super::error::CallFailure;

static WATCH_THREAD: OnceLock<Handle> = OnceLock::new();
static WATCH_THREAD_START: Mutex<()> = Mutex::new(());

/// Returns the thread's runtime, and starts the thread at the first call.
pub(super) fn watch_thread() -> Result<&'static Handle, CallFailure> {
    if let Some(thread) = WATCH_THREAD.get() {
        return Ok(thread);
    }
    let _starting = WATCH_THREAD_START.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(thread) = WATCH_THREAD.get() {
        return Ok(thread);
    }
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(CallFailure::no_watch_thread)?;
    let handle = runtime.handle().clone();
    let body = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new()
        .name("idempotency-redis".into())
        .spawn(body)
        .map_err(CallFailure::no_watch_thread)?;
    Ok(WATCH_THREAD.get_or_init(|| handle))
}
