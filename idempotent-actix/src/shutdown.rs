//! An orderly shutdown.

use std::time::Duration;

use crate::idempotency::Idempotency;

impl Idempotency {
    /// Returns a future for
    /// [`HttpServer::shutdown_signal`](actix_web::HttpServer::shutdown_signal): it waits for
    /// SIGTERM, SIGINT or SIGQUIT (on other systems than Unix for Ctrl-C), then
    /// [drains](Self::drain).
    ///
    /// Without it, operations whose clients have disconnected are lost when the server stops: a
    /// worker without connections drops its tasks.
    pub fn drained(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            shutdown_signal().await;
            this.drain(limit).await;
        }
    }

    /// Refuses new keyed requests with 503 (`shutting_down`), and waits up to `limit` until all
    /// operations in flight have ended and are recorded.
    ///
    /// Returns whether they have.
    ///
    /// # Cancel safety
    /// Safe, but requests stay refused.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.operations().close();
        let ended = async {
            self.operations().wait().await;
            self.runtime().drained().await;
        };
        let ended = tokio::time::timeout(limit, ended).await.is_ok();
        if !ended {
            let left = self.operations().len();
            tracing::warn!(
                left,
                ?limit,
                "operations were still in flight at the end of the time to drain; their leases \
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
