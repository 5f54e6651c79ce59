//! Where an [`Idempotency`](crate::Idempotency) must not be built.

/// Logs an error if each worker of a server builds its own handle: with a store in memory, a retry
/// that reaches another worker would run again.
pub(super) fn log_build_on_worker() {
    let thread = std::thread::current();
    // The names that actix-server and actix-rt give to the threads of workers.
    let is_worker =
        |name: &str| name.starts_with("actix-server worker") || name.starts_with("actix-rt|");
    if thread.name().is_some_and(is_worker) {
        tracing::error!(
            "an `Idempotency` is built on a worker's thread, so each worker has its own store; \
             build one before `HttpServer::new`, and put a clone of it into each `App`"
        );
    }
}
