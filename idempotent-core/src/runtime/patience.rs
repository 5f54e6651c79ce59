//! How long the runtime waits for what.

use std::time::{Duration, Instant};

use crate::{error::StoreError, runtime::Shared};

/// The pause before a call is made a second time, or the first one in the background.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(20);
/// A call that took longer to fail is not made again while a client waits: the store is not merely reconnecting.
const QUICK: Duration = Duration::from_secs(1);
/// Longer waits are cut to this: no clock and no timer overflows, and nobody sees the difference.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The present moment of the machine's clock. It is not tokio's: an application may pause the time of its own tokio runtime in a
/// test, and that of the thread goes on.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The moment `by` later.
pub(super) fn after(moment: Instant, by: Duration) -> Instant {
    moment + by.min(LONGEST)
}

/// Between half of a pause and one and a half times it, so that those who started together do not go on together.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.min(LONGEST).mul_f64(0.5 + fastrand::f64())
}

/// Makes a call that is safe to make again, and makes it again if it soon fails for a passing reason: most often the first to find
/// that a pooled connection is dead.
pub(super) async fn twice<T, C>(call: impl Fn() -> C) -> Result<T, StoreError>
where
    C: Future<Output = Result<T, StoreError>>,
{
    // Of the caller's runtime, as is the limit of the call.
    let sent = tokio::time::Instant::now();
    match call().await {
        Err(error) if error.is_transient() && sent.elapsed() < QUICK => {
            tracing::debug!(%error, "the store is asked again");
            tokio::time::sleep(jittered(FIRST_RETRY)).await;
            call().await
        }
        result => result,
    }
}

impl Shared {
    /// Waits for the store's answer, but not without end: a call that hangs is one whose outcome is unknown.
    pub(super) async fn answer<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        in_time(self.options.store_timeout, call).await
    }
}

pub(super) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |elapsed| StoreError::transient("runtime", "get an answer from its store in time", elapsed);
    tokio::time::timeout(limit.min(LONGEST), call).await.map_err(late)?
}
