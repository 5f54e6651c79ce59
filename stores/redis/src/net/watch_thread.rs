//! The thread that follows Sentinels and clusters for all stores of a process. It outlives the
//! runtimes that use the stores.

use idempotent_core::store::RuntimeThread;
use tokio::runtime::Handle;

use crate::error::CallFailure;

static WATCH_THREAD: RuntimeThread = RuntimeThread::new("idempotency-redis");

/// Returns the thread's runtime, and starts the thread at the first call.
pub(crate) fn watch_thread() -> Result<&'static Handle, CallFailure> {
    WATCH_THREAD.start().map_err(CallFailure::no_watch_thread)
}
