//! The calls that wait for responses on one runtime's connections for one role.
//!
//! One task enforces the time limits of all calls, so that a call needs no timer. It also needs no
//! receiver to learn that the server is given up: all calls are woken, and check.

use std::{
    mem,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{error::CallFailure, net::lock::lock};

/// How long a call waits for a response that may have arrived in time but was not read, because a
/// handler blocked the runtime or the process was stopped.
const READ_GRACE: Duration = Duration::from_millis(100);
/// The longest time limit, so that its end can be represented.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) struct Waits {
    calls: Mutex<Calls>,
    /// Notified when a time limit ends before the next check, and when the connections are closed.
    recheck: Arc<Notify>,
}

#[derive(Default)]
struct Calls {
    waiting: Vec<Option<WaitingCall>>,
    /// The numbers of the empty places.
    free: Vec<usize>,
    next_check: Option<Instant>,
}

struct WaitingCall {
    waker: Waker,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    Response(Instant),
    ReadGrace(Instant),
    Exceeded,
}

impl Waits {
    /// Starts the task that enforces the time limits on the current runtime. The task ends when the
    /// last user has dropped this.
    pub(crate) fn start() -> Arc<Self> {
        let recheck = Arc::new(Notify::new());
        let waits = Arc::new(Self { calls: Mutex::default(), recheck: recheck.clone() });
        tokio::spawn(enforce_limits(Arc::downgrade(&waits), recheck));
        waits
    }

    /// A call that may wait for `within` and a grace for reading.
    pub(crate) fn call(&self, within: Duration) -> PendingCall<'_> {
        PendingCall { waits: self, within: within.min(LONGEST), number: None }
    }

    /// Wakes all calls, which then check whether they have to end.
    pub(crate) fn wake_all(&self) {
        let wakers: Vec<_> =
            lock(&self.calls).waiting.iter().flatten().map(|call| call.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the calls whose limits are exceeded, and returns when the next limit ends.
    fn check(&self, now: Instant) -> Option<Instant> {
        let (mut exceeded, mut next) = (Vec::new(), None::<Instant>);
        let mut calls = lock(&self.calls);
        for call in calls.waiting.iter_mut().flatten() {
            call.limit = match call.limit {
                Limit::Response(end) if end <= now => Limit::ReadGrace(now + READ_GRACE),
                Limit::ReadGrace(end) if end <= now => {
                    exceeded.push(call.waker.clone());
                    Limit::Exceeded
                }
                limit @ (Limit::Response(_) | Limit::ReadGrace(_) | Limit::Exceeded) => limit,
            };
            if let Limit::Response(end) | Limit::ReadGrace(end) = call.limit {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
        }
        calls.next_check = next;
        drop(calls);
        exceeded.into_iter().for_each(Waker::wake);
        next
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.recheck.notify_one();
    }
}

async fn enforce_limits(waits: Weak<Waits>, recheck: Arc<Notify>) {
    loop {
        let Some(next) = waits.upgrade().map(|waits| waits.check(Instant::now())) else { return };
        match next {
            Some(at) => {
                let _ = timeout_at(at, recheck.notified()).await;
            }
            None => recheck.notified().await,
        }
    }
}

/// A call that ends if no byte arrives on its connection for as long as the call may wait.
pub(crate) struct PendingCall<'a> {
    waits: &'a Waits,
    within: Duration,
    /// The place in [`Calls::waiting`].
    number: Option<usize>,
}

impl PendingCall<'_> {
    /// Returns why the call ends without a response: its limit is exceeded, or `is_closed`. The
    /// limit counts from the first poll, and again from the last byte that arrived, at
    /// `last_progress`: a long response, or the responses to many calls, may take longer.
    ///
    /// Between the check and the registration another thread may close the connection; the lock,
    /// which [`Waits::wake_all`] takes afterwards, prevents that the call is not woken (case
    /// `all_calls_end_when_the_server_is_given_up`).
    pub(crate) fn poll_end(
        &mut self,
        cx: &Context<'_>,
        is_closed: impl FnOnce() -> bool,
        last_progress: impl FnOnce() -> Instant,
    ) -> Poll<CallFailure> {
        let mut guard = lock(&self.waits.calls);
        let calls = &mut *guard;
        if is_closed() {
            return Poll::Ready(CallFailure::ConnectionClosed);
        }
        let place = self.number.and_then(|number| calls.waiting.get_mut(number)?.as_mut());
        let Some(call) = place else {
            self.number = Some(self.waits.add(calls, cx.waker().clone(), self.within));
            return Poll::Pending;
        };
        if matches!(call.limit, Limit::Exceeded) {
            let end = last_progress() + self.within;
            if end <= Instant::now() {
                return Poll::Ready(CallFailure::ResponseTimeout);
            }
            call.limit = Limit::Response(end);
            self.waits.expect_check(&mut calls.next_check, end);
        }
        if !call.waker.will_wake(cx.waker()) {
            let old = mem::replace(&mut call.waker, cx.waker().clone());
            drop(guard);
            drop(old);
        }
        Poll::Pending
    }
}

impl Waits {
    /// Wakes the task if a limit ends before its next check.
    fn expect_check(&self, next_check: &mut Option<Instant>, end: Instant) {
        if next_check.is_none_or(|next| end < next) {
            // Until the task has run, other calls need not notify it too.
            *next_check = Some(end);
            self.recheck.notify_one();
        }
    }

    fn add(&self, calls: &mut Calls, waker: Waker, within: Duration) -> usize {
        let end = Instant::now() + within;
        self.expect_check(&mut calls.next_check, end);
        let call = Some(WaitingCall { waker, limit: Limit::Response(end) });
        let number = calls.free.pop().unwrap_or(calls.waiting.len());
        match calls.waiting.get_mut(number) {
            Some(place) => *place = call,
            None => calls.waiting.push(call),
        }
        number
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut calls = lock(&self.waits.calls);
        let call = calls.waiting.get_mut(number).and_then(Option::take);
        calls.free.push(number);
        drop(calls);
        // Dropping a waker can run code of the runtime, which must not happen under the lock.
        drop(call);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicBool, Ordering},
    };

    use tokio::task::yield_now;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long a call lasts that gets no response.
    async fn duration(waits: &Waits, within: Duration) -> Duration {
        let (started, mut call) = (Instant::now(), waits.call(within));
        let failure = poll_fn(|cx| call.poll_end(cx, || false, || started)).await;
        assert!(matches!(failure, CallFailure::ResponseTimeout));
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_response_ends_after_its_limit_and_the_grace() {
        let waits = Waits::start();
        for within in [SECOND, 3 * SECOND, SECOND / 2] {
            let lasted = duration(&waits, within).await;
            assert!((within + READ_GRACE..within + 2 * READ_GRACE).contains(&lasted), "{lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_limit_does_not_wait_for_a_long_one() {
        let waits = Waits::start();
        let [long, short] = [10 * SECOND, SECOND].map(|within| duration(&waits, within));
        let (long, short) = tokio::join!(long, short);
        assert!(short < 2 * SECOND && long >= 10 * SECOND, "{short:?} {long:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_calls_end_when_the_server_is_given_up() {
        let (waits, closed) = (Waits::start(), AtomicBool::new(false));
        let started = Instant::now();
        let mut calls = [waits.call(SECOND), waits.call(SECOND)];
        let [first, second] = &mut calls;
        let is_closed = || closed.load(Ordering::SeqCst);
        let (first, second, ()) = tokio::join!(
            poll_fn(|cx| first.poll_end(cx, is_closed, || started)),
            poll_fn(|cx| second.poll_end(cx, is_closed, || started)),
            async {
                yield_now().await;
                closed.store(true, Ordering::SeqCst);
                waits.wake_all();
            }
        );
        assert!(matches!(
            (first, second),
            (CallFailure::ConnectionClosed, CallFailure::ConnectionClosed)
        ));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_counts_from_the_last_byte() {
        let (waits, started) = (Waits::start(), Instant::now());
        // Bytes arrive for ten seconds.
        let last_progress = || Instant::now().min(started + 10 * SECOND);
        let [mut first, mut second] = [waits.call(SECOND), waits.call(3 * SECOND)];
        let ended = async |call: &mut PendingCall<'_>| {
            let failure = poll_fn(|cx| call.poll_end(cx, || false, last_progress)).await;
            assert!(matches!(failure, CallFailure::ResponseTimeout));
            started.elapsed()
        };
        let (first, second) = tokio::join!(ended(&mut first), ended(&mut second));
        assert!((11 * SECOND..12 * SECOND).contains(&first), "{first:?}");
        assert!((13 * SECOND..14 * SECOND).contains(&second), "{second:?}");
    }

    #[tokio::test]
    async fn a_call_that_has_ended_leaves_its_place_to_the_next() {
        let waits = Waits::start();
        for _ in 0..3 {
            let mut calls = [waits.call(SECOND), waits.call(SECOND)];
            for call in &mut calls {
                let polled =
                    poll_fn(|cx| Poll::Ready(call.poll_end(cx, || false, Instant::now))).await;
                assert!(polled.is_pending());
            }
        }
        let calls = lock(&waits.calls);
        assert_eq!((calls.waiting.len(), calls.free.len()), (2, 2));
    }

    #[tokio::test]
    async fn the_task_ends_when_the_last_connection_is_closed() {
        let waits = Waits::start();
        let recheck = waits.recheck.clone();
        yield_now().await;
        drop(waits);
        yield_now().await;
        assert_eq!(Arc::strong_count(&recheck), 1);
    }
}
