//! The thread that drives the connections of all stores of the process.

use idempotent_core::StoreError;
use idempotent_sql::server::io_thread::IoThread;

use crate::error::NAME;

pub(crate) static IO_THREAD: IoThread =
    IoThread::new(NAME, "idempotency-pg", "idempotency-pg-probe");

/// As [`IoThread::run`].
pub(crate) async fn on_io_thread<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    IO_THREAD.run(operation, call).await
}

/// As [`IoThread::spawn`].
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    IO_THREAD.spawn(task);
}
