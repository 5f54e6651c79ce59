//! The service's time, as far as its responses tell it.
//!
//! Conditions of DynamoDB know no clock, so a step sends the time with it. The clock of the machine
//! is not used: each response has the service's time in its `Date` header, in whole seconds. The
//! monotonic clock of the machine tells how long ago that was. Each response thus bounds the
//! difference between the two clocks, and all of them together bound it closely.
//!
//! What is written counts from the earliest time that it can be. It has ended only when that has
//! passed by more than the [widest](WIDEST) distance of the bounds, so that a lease is never cut
//! short. Safety does not depend on either: it depends on the owner token and the tag in each
//! condition.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use idempotent_core::clock::Timestamp;

/// The time of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// The earliest time that it can be, from which everything counts that is written.
    pub(crate) at: Timestamp,
    /// What ends by this time has ended, whichever process has written it.
    pub(crate) past: Timestamp,
}

/// How much wider the bounds become with the time: the drift of a machine's clock, 500 parts in a
/// million, which is more than NTP corrects.
const DRIFT: i64 = 2_000;
/// Responses of different hosts of the service may differ by this much, in milliseconds.
const SKEW: i64 = 50;
/// The bounds are narrowed by a read before a step if they are wider, in milliseconds.
pub(crate) const WIDEST: i64 = 2_000;

/// The bounds of the service's time.
#[derive(Debug)]
pub(crate) struct ServiceTime {
    origin: Instant,
    bounds: Mutex<Option<Bounds>>,
    /// What tests add to the time, in milliseconds.
    shift: AtomicI64,
}

/// The service's time minus the machine's, in milliseconds: at least `low`, as observed at the
/// machine's time `low_at`, and at most `high`, as observed at `high_at`.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i64,
    low_at: i64,
    high: i64,
    high_at: i64,
}

impl Bounds {
    /// The bounds at the machine's time `at`: a little wider than when they were observed.
    fn at(self, at: i64) -> (i64, i64) {
        let drift = |since: i64| at.saturating_sub(since).max(0) / DRIFT;
        (self.low - drift(self.low_at), self.high + drift(self.high_at))
    }
}

impl ServiceTime {
    pub(crate) fn new() -> Self {
        let shift = AtomicI64::new(0);
        Self { origin: Instant::now(), bounds: Mutex::new(None), shift }
    }

    /// The time of the service, or `None` if no response has told it, or not recently.
    pub(crate) fn now(&self) -> Option<Now> {
        let at = self.machine(Instant::now());
        let (low, high) = (*self.lock())?.at(at);
        let shift = self.shift.load(Ordering::Relaxed);
        let time = |offset: i64| {
            let millis = at.saturating_add(offset).saturating_add(shift);
            Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
        };
        (high - low <= WIDEST).then(|| Now { at: time(low), past: time(low - WIDEST) })
    }

    /// Whether any response has told the time.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().is_some()
    }

    /// Takes the `Date` header of a response. The request was not sent before `sent`.
    pub(crate) fn observe(&self, date: &str, sent: Instant) {
        let Ok(date) = DateTime::from_str(date, DateTimeFormat::HttpDate) else { return };
        let Ok(date) = date.to_millis() else { return };
        let (sent, at) = (self.machine(sent), self.machine(Instant::now()));
        self.narrow(date, sent, at);
    }

    /// A response with this date, in milliseconds, was sent between these times of the machine. The
    /// date is cut to a whole second.
    fn narrow(&self, date: i64, sent: i64, received: i64) {
        let (low, high) = (date - received - SKEW, date + 1_000 - sent + SKEW);
        let observed = Bounds { low, low_at: received, high, high_at: received };
        let mut bounds = self.lock();
        *bounds = Some(match *bounds {
            None => observed,
            Some(known) => {
                let (known_low, known_high) = known.at(received);
                let mut narrowed = known;
                if low > known_low {
                    (narrowed.low, narrowed.low_at) = (low, received);
                }
                if high < known_high {
                    (narrowed.high, narrowed.high_at) = (high, received);
                }
                // The service's clock was set, or the machine was suspended.
                if narrowed.low > narrowed.high { observed } else { narrowed }
            }
        });
    }

    fn machine(&self, at: Instant) -> i64 {
        i64::try_from(at.duration_since(self.origin).as_millis()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bounds>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clock of its own that is this one, but for what tests add to its time.
    #[cfg(feature = "internals")]
    pub(crate) fn shifted(&self, by: i64) -> Self {
        let shift = self.shift.load(Ordering::Relaxed).saturating_add(by);
        Self { origin: self.origin, bounds: Mutex::new(*self.lock()), shift: AtomicI64::new(shift) }
    }

    /// Adds this to the time, in milliseconds.
    #[cfg(feature = "internals")]
    pub(crate) fn shift(&self, by: i64) {
        self.shift.fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(time: &ServiceTime, at: i64) -> i64 {
        let (low, high) = time.lock().unwrap().at(at);
        high - low
    }

    #[test]
    fn each_response_narrows_the_bounds() {
        let time = ServiceTime::new();
        assert_eq!(time.now(), None);
        // The service's clock is 1,000,300 ms ahead.
        let offset = 1_000_300;
        let mut before = i64::MAX;
        for sent in (0..2_000).step_by(130) {
            let served = sent + 4;
            let date = (served + offset) / 1_000 * 1_000;
            time.narrow(date, sent, sent + 10);
            let (low, high) = time.lock().unwrap().at(sent + 10);
            assert!(low <= offset && offset <= high, "{low} {high}");
            assert!(high - low <= before);
            before = high - low;
        }
        assert!(before <= 2 * SKEW + 150, "{before}");
    }

    #[test]
    fn the_bounds_widen_until_another_response() {
        let time = ServiceTime::new();
        time.narrow(1_000_000, 0, 10);
        assert_eq!(width(&time, 10), 1_010 + 2 * SKEW);
        assert_eq!(width(&time, 2_000_010), 1_010 + 2 * SKEW + 2 * 2_000_000 / DRIFT);
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let time = ServiceTime::new();
        time.narrow(1_000_000, 0, 10);
        time.narrow(500_000, 20, 30);
        let (low, high) = time.lock().unwrap().at(30);
        assert!(low <= 500_000 - 20 && 500_000 - 20 <= high);
        assert_eq!(width(&time, 30), 1_010 + 2 * SKEW);
    }
}
