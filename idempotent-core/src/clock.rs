//! Time as measured by a store.
//!
//! Only this module reads the time of day; other modules only measure elapsed time. Safety never
//! depends on it. A wrong clock only moves two moments: when an abandoned key can be taken over (by
//! at most one lease if the clock is set back), and until when a response is replayed.

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
    /// 1 January 1970, earlier than any time at which a record is written.
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

    /// Returns the time that passes from `earlier` to this timestamp, or zero if this timestamp is
    /// the earlier one.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Returns a duration in whole milliseconds, the resolution of every store. Saturates.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A source of time for a store without a database.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present time. A clock that is set back delays takeovers, by at most one lease.
    fn now(&self) -> Timestamp;
}

/// The system clock, read once and advanced by the monotonic clock. Setting the system's time does
/// not move a lease.
#[derive(Clone, Debug)]
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// Creates a clock that starts at the present system time.
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

/// A clock for tests that moves only by calls. Clones share the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Sets the clock back, but not beyond [`Timestamp::EPOCH`].
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
