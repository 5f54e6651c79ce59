//! How long one transaction has had SQLite's write lock.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{BUSY_TIMEOUT, LOCK_TIMEOUT};

/// For how long one transaction has the lock before any key is reported as in flight. A connection
/// that waits looks at the lock every [`BUSY_TIMEOUT`].
const LEAST: Duration = BUSY_TIMEOUT.saturating_mul(2);
/// The same for a transaction of this store, whose key is known: others queue up behind it, and are
/// better served late than refused.
const LEAST_OWN: Duration = Duration::from_secs(4);
/// How much longer than its patience a claim tries to get the lock.
const SPARE: Duration = Duration::from_secs(1);

/// Who has the write lock, as far as the store has seen. Claims that wait for the one connection
/// that writes rely on what its present user sees.
#[derive(Default)]
pub(super) struct WriteLock(Mutex<Holder>);

#[derive(Clone, Copy, Default)]
enum Holder {
    /// No transaction, or one that has not been noticed.
    #[default]
    Unknown,
    /// A transaction of this store.
    Own { since: Instant },
    /// Another connection, and nothing was committed from the first look to the last.
    Other { since: Instant, seen: Instant },
}

impl WriteLock {
    /// A transaction of this store has begun.
    pub(super) fn taken(&self) {
        *self.holder() = Holder::Own { since: Instant::now() };
    }

    /// Another connection has the lock; `committed` if there may have been a commit since the last
    /// look.
    pub(super) fn busy(&self, committed: bool) {
        let (mut holder, seen) = (self.holder(), Instant::now());
        let since = match *holder {
            Holder::Other { since, .. } if !committed => since,
            Holder::Other { .. } | Holder::Own { .. } | Holder::Unknown => seen,
        };
        *holder = Holder::Other { since, seen };
    }

    /// The store's connection is given up; its transaction, if it had one, has ended.
    pub(super) fn given_up(&self) {
        let mut holder = self.holder();
        if let Holder::Own { .. } = *holder {
            *holder = Holder::Unknown;
        }
    }

    /// Whether one transaction has had the lock for as long as the claim is willing to wait.
    pub(super) fn outlasts(&self, patience: Patience) -> bool {
        let Patience { from, lasts } = patience;
        match *self.holder() {
            Holder::Unknown => false,
            Holder::Own { since } => since.max(from).elapsed() >= lasts.max(LEAST_OWN),
            Holder::Other { since, seen } => seen.saturating_duration_since(since.max(from)) >= lasts.max(LEAST),
        }
    }

    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a claim waits for the end of a transaction that may have its key.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// When the claim was made.
    from: Instant,
    lasts: Duration,
}

impl Patience {
    pub(super) fn from_now(lasts: Duration) -> Self {
        Self { from: Instant::now(), lasts }
    }

    /// How long the claim waits for the connection, and then for the lock, where others take turns.
    pub(super) fn longest(self) -> Duration {
        // A writer has to be watched for longer than the patience lasts.
        LOCK_TIMEOUT.max(self.lasts.saturating_add(SPARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_counts_only_what_was_seen_of_one_transaction_after_it_was_made() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lock = WriteLock(Mutex::new(Holder::Other { since: at(10), seen: at(20) }));
        for (from, lasts, outlasts) in [(0, 10, true), (0, 11, false), (15, 5, true), (15, 6, false), (30, 0, false)] {
            let patience = Patience { from: at(from), lasts: Duration::from_secs(lasts) };
            assert_eq!(lock.outlasts(patience), outlasts, "from {from} for {lasts} s");
        }
        lock.given_up();
        assert!(lock.outlasts(Patience { from: start, lasts: Duration::ZERO }), "another connection has it still");
        lock.busy(true);
        assert!(!lock.outlasts(Patience { from: start, lasts: Duration::ZERO }), "another transaction has it");
        lock.taken();
        lock.given_up();
        assert!(!lock.outlasts(Patience { from: start, lasts: Duration::ZERO }), "no transaction has it");
    }
}
