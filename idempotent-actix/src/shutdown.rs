//! An orderly shutdown.

use std::time::Duration;

use crate::idempotency::Idempotency;

impl Idempotency {
    /// Returns a future for
    /// [`HttpServer::shutdown_signal`](actix_web::HttpServer::shutdown_signal). It waits for
    /// SIGTERM, SIGINT or SIGQUIT (for Ctrl-C on other systems than Unix), then
    /// [drains](Self::drain) for up to `limit`, and then lets the server stop.
    ///
    /// Without it, operations whose clients have disconnected are lost when the server stops,
    /// because a worker without connections drops its tasks.
    pub fn drain_on_sigterm(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            shutdown_signal().await;
            this.drain(limit).await;
        }
    }

    /// Refuses all further requests with a key with 503 (`shutting_down`), and waits up to `limit`
    /// until all operations in flight have ended and their recordings are stored.
    ///
    /// Returns whether all of them ended within `limit`. The leases of operations that are still in
    /// flight expire after the process has ended.
    ///
    /// # Cancel safety
    /// Safe, but further requests stay refused.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.operations().close();
        let ended = async {
            self.operations().wait().await;
            self.runtime().drain().await;
        };
        let ended = tokio::time::timeout(limit, ended).await.is_ok();
        if !ended {
            let left = self.operations().len();
            tracing::warn!(
                left,
                ?limit,
                "operations were still in flight when the drain timeout ended; their leases will \
                 expire"
            );
        }
        ended
    }
}

#[cfg(unix)]
async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
    let [Ok(mut term), Ok(mut int), Ok(mut quit)] = kinds.map(signal) else {
        tracing::error!("listening for signals failed; the server does not stop on SIGTERM");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = quit.recv() => {}
    }
}

#[cfg(not(unix))]
async fn shutdown_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
