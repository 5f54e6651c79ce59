//! Time limits, pauses and retries of calls to the store.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use pin_project_lite::pin_project;
use tokio::{runtime::Handle, time::timeout};

use crate::error::{NoRuntime, StoreError};

/// The pause before the first retry of a call.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(20);
/// A call that took longer to fail is not retried while a client waits: the cause is not just a
/// lost connection.
const QUICK: Duration = Duration::from_secs(1);
/// Longer durations are cut to this, so that no clock and no timer overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the time `by` after `moment`.
pub(super) fn after(moment: Instant, by: Duration) -> Instant {
    moment + by.min(LONGEST)
}

/// Returns between 0.5 and 1.5 times the pause, so that callers that started together drift apart.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.min(LONGEST).mul_f64(0.5 + fastrand::f64())
}

pin_project! {
    /// Makes a call, and executes `pending` when the call is first found not to be ready at once.
    /// Not an `async fn`, which would contain the call twice.
    pub(super) struct OncePending<C, P> {
        #[pin]
        call: C,
        pending: Option<P>,
    }
}

impl<C, P> OncePending<C, P> {
    pub(super) fn new(call: C, pending: P) -> Self {
        Self { call, pending: Some(pending) }
    }
}

impl<C: Future, P: FnOnce()> Future for OncePending<C, P> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.project();
        let polled = this.call.poll(cx);
        if polled.is_pending()
            && let Some(pending) = this.pending.take()
        {
            pending();
        }
        polled
    }
}

/// Makes a call that may safely be repeated, and repeats it once if it soon fails for a transient
/// reason. The usual reason is a pooled connection that has died.
#[expect(clippy::manual_async_fn, reason = "an `async fn` stores its arguments twice")]
pub(super) fn with_retry<T, C>(call: impl Fn() -> C) -> impl Future<Output = Result<T, StoreError>>
where
    C: Future<Output = Result<T, StoreError>>,
{
    async move {
        let (result, sent) = FirstCall { call: call(), pending_since: None }.await;
        let is_quick = || sent.is_none_or(|sent| sent.elapsed() < QUICK);
        match result {
            // Boxed: keeps the caller's future small on the fast path.
            Err(error) if error.is_transient() && is_quick() => Box::pin(retry(error, call)).await,
            result => result,
        }
    }
}

pin_project! {
    /// Resolves to the result of a call, and to when it was first found not to be ready: by the
    /// caller's tokio runtime, which also measures the time limit of the call.
    struct FirstCall<C> {
        #[pin]
        call: C,
        pending_since: Option<tokio::time::Instant>,
    }
}

impl<C: Future> Future for FirstCall<C> {
    type Output = (C::Output, Option<tokio::time::Instant>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.call.poll(cx);
        if polled.is_pending() {
            this.pending_since.get_or_insert_with(tokio::time::Instant::now);
        }
        polled.map(|result| (result, *this.pending_since))
    }
}

async fn retry<T, C>(error: StoreError, call: impl Fn() -> C) -> Result<T, StoreError>
where
    C: Future<Output = Result<T, StoreError>>,
{
    tracing::debug!(%error, "a call to the store failed; retrying");
    tokio::time::sleep(jittered(FIRST_RETRY)).await;
    call().await
}

/// Limits the time of a call to the store. The outcome of a call that exceeds it is unknown; its
/// error names the step.
pub(super) fn with_timeout<T>(
    step: &'static str,
    limit: Duration,
    mut call: impl Future<Output = Result<T, StoreError>> + Unpin,
) -> impl Future<Output = Result<T, StoreError>> {
    let mut timer = None;
    poll_fn(move |cx| {
        if let Poll::Ready(response) = Pin::new(&mut call).poll(cx) {
            return Poll::Ready(response);
        }
        // The memory store responds at the first poll, which needs no timer.
        if Handle::try_current().is_err() {
            let error = StoreError::permanent("runtime", step, NoRuntime);
            return Poll::Ready(Err(error));
        }
        let limit = limit.min(LONGEST);
        let timer = timer.get_or_insert_with(|| Box::pin(timeout(limit, pending::<Infallible>())));
        let Err(_) = ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(StoreError::transient("runtime", step, TimedOut(limit))))
    })
}

/// A call to the store has exceeded its time limit.
#[derive(Debug, thiserror::Error)]
#[error("the store has not responded within {0:?}")]
struct TimedOut(Duration);
