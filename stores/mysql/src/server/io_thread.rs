//! The thread that drives the connections of all stores of the process.

use idempotent_core::StoreError;
use idempotent_sql::server::io_thread::IoThread;

use crate::error::NAME;

pub(crate) static IO_THREAD: IoThread =
    IoThread::new(NAME, "idempotency-my", "idempotency-my-probe");

/// As [`IoThread::run`].
pub(crate) async fn on_io_thread<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    IO_THREAD.run(operation, call).await
}
