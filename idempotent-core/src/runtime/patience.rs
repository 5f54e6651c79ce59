//! How long the runtime waits for what.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    pin::Pin,
    task::{Poll, ready},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::timeout};

use crate::{
    error::{NoRuntime, StoreError},
    runtime::Shared,
};

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
        // Apart, so that calls that go well do not carry what it takes.
        Err(error) if error.is_transient() && sent.elapsed() < QUICK => Box::pin(again(error, call)).await,
        result => result,
    }
}

async fn again<T, C>(error: StoreError, call: impl Fn() -> C) -> Result<T, StoreError>
where
    C: Future<Output = Result<T, StoreError>>,
{
    tracing::debug!(%error, "the store is asked again");
    tokio::time::sleep(jittered(FIRST_RETRY)).await;
    call().await
}

impl Shared {
    /// Waits for the store's answer, but not without end: a call that hangs is one whose outcome is unknown. In a process that was forked
    /// no call is made: on the connections that both have, one would read the responses to the other.
    pub(super) fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Unpin,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let verified = self.background.process.verify();
        let call = in_time(self.options.store_timeout, call);
        async move {
            verified?;
            call.await
        }
    }
}

pub(super) fn in_time<T>(
    limit: Duration,
    mut call: impl Future<Output = Result<T, StoreError>> + Unpin,
) -> impl Future<Output = Result<T, StoreError>> {
    let mut timer = None;
    poll_fn(move |cx| {
        if let Poll::Ready(answer) = Pin::new(&mut call).poll(cx) {
            return Poll::Ready(answer);
        }
        // A store in memory answers at once, and spares us the timer.
        if Handle::try_current().is_err() {
            return Poll::Ready(Err(StoreError::permanent("runtime", "wait for its store", NoRuntime)));
        }
        let timer = timer.get_or_insert_with(|| Box::pin(timeout(limit.min(LONGEST), pending::<Infallible>())));
        let Err(elapsed) = ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(StoreError::transient("runtime", "get an answer from its store in time", elapsed)))
    })
}
