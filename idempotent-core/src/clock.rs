//! Time as measured by a store.
//!
//! Only this module reads the time of day; other modules only measure elapsed time. Safety never
//! depends on the time of day. A wrong clock affects only when an abandoned key can be taken over
//! (at most one lease later if the clock is set back), and for how long a response is replayed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A time in milliseconds since the Unix epoch, on the clock of the store that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1 January 1970, which is earlier than any time at which a record is written.
    pub const EPOCH: Self = Self(0);

    /// Creates a timestamp from milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time `by` later, or the last representable time if that overflows.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// Returns the time that passes from `earlier` to this timestamp, or zero if `earlier` is the
    /// later one.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Converts a duration to whole milliseconds, the resolution of every store. Rounds down, and
/// saturates at `u64::MAX`.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A source of time for a store that has no database server with a clock, such as the memory store.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. If the clock is set back, takeovers are delayed by at most one
    /// lease.
    fn now(&self) -> Timestamp;
}

/// The system clock, read once at the start and then advanced by the monotonic clock. Changes of
/// the system's time do not affect it.
#[derive(Clone, Debug)]
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// Creates a clock that starts at the current system time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this module is where the time of day is read")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at: Timestamp(millis(since_epoch)) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started_at.after(self.started.elapsed())
    }
}

/// A clock for tests, which moves only by calls of its methods. All clones have the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock forward by this duration.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Sets the clock back by this duration, but not beyond [`Timestamp::EPOCH`].
    pub fn set_back(&self, by: Duration) {
        let earlier = |now: u64| Some(now.saturating_sub(millis(by)));
        // The closure always returns a value, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, earlier);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
