//! Time as a store sees it.
//!
//! This is the one module that reads the time of day; others only measure how long something took. Safety never depends on what it says: a wrong clock only moves the moment at
//! which an abandoned key can be taken over, by no more than one lease if it is set back, and until which a response is replayed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Milliseconds since the Unix epoch, on the clock of the store that wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1 January 1970, before any time at which a record is written.
    pub const EPOCH: Self = Self(0);

    /// A moment, in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `by` later; the last moment there is, where that would overflow.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// How long it is from `now` until this moment; zero when it has passed.
    #[must_use]
    pub fn since(self, now: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now.0))
    }
}

/// A duration in whole milliseconds, the resolution of every store.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A source of time for a store that has no database to ask.
pub trait Clock: Send + Sync + 'static {
    /// The present moment. Going back costs time: see [`Record::shortened`](crate::Record::shortened).
    fn now(&self) -> Timestamp;
}

/// The machine's clock, read once and carried on by its monotonic clock, so that nobody who sets the time moves a lease.
#[derive(Clone, Debug)]
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// A clock that starts from the machine's present time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads it")]
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

/// A clock that moves only when it is told to, for tests. Clones share the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Sets the clock back, to [`Timestamp::EPOCH`] at most.
    pub fn set_back(&self, by: Duration) {
        self.0.update(Ordering::SeqCst, Ordering::SeqCst, |now| now.saturating_sub(millis(by)));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
