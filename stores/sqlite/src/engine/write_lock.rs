//! Tracks for how long one transaction has held SQLite's write lock.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;

use crate::{
    connect::{connections::BUSY_TIMEOUT, hooked::HookedConnection},
    engine::retry::LOCK_TIMEOUT,
};
use idempotent_sql::PooledConnection;

/// How long another connection's transaction must hold the lock before a key is reported as in
/// flight. A waiting connection checks the lock every [`BUSY_TIMEOUT`].
const LEAST: Duration = BUSY_TIMEOUT.saturating_mul(2);
/// The same for a transaction of this store, whose key is known. It is longer because the claims
/// that queue behind it should rather be served late than refused.
const LEAST_OWN: Duration = Duration::from_secs(4);
/// How much longer than its limit a claim tries to get the lock.
const SPARE: Duration = Duration::from_secs(1);

/// The holder of the write lock, as far as this store has observed it. Claims that wait for the
/// single write connection rely on what its current user observes.
#[derive(Default)]
pub(crate) struct WriteLockObserver(Mutex<Holder>);

#[derive(Clone, Copy, Default)]
enum Holder {
    /// No transaction, or one that has not been observed.
    #[default]
    Unknown,
    /// A transaction of this store.
    Own { since: Instant },
    /// Another connection, which committed nothing between the first and the last observation.
    Other { since: Instant, seen: Instant },
}

impl WriteLockObserver {
    /// Records that a transaction of this store has begun.
    pub(crate) fn begun(&self) {
        *self.holder() = Holder::Own { since: Instant::now() };
    }

    /// Observes the lock on one of the store's own connections that has waited for it outside a
    /// transaction.
    pub(crate) async fn observe(&self, connection: &mut PooledConnection<SqliteConnection>) {
        if let Some(hooked) = connection.attachment::<HookedConnection>()
            && let Ok(committed) = hooked.may_have_committed(connection).await
        {
            self.observe_busy(committed);
        }
    }

    /// Records that another connection holds the lock; `committed` if it may have committed since
    /// the last observation.
    pub(crate) fn observe_busy(&self, committed: bool) {
        let (mut holder, seen) = (self.holder(), Instant::now());
        let since = match *holder {
            Holder::Other { since, .. } if !committed => since,
            Holder::Other { .. } | Holder::Own { .. } | Holder::Unknown => seen,
        };
        *holder = Holder::Other { since, seen };
    }

    /// Records that the store's connection was returned, which ends its transaction.
    pub(crate) fn released(&self) {
        let mut holder = self.holder();
        if let Holder::Own { .. } = *holder {
            *holder = Holder::Unknown;
        }
    }

    /// Whether a single transaction has held the lock for as long as the claim is willing to wait.
    pub(crate) fn is_held_beyond(&self, wait_limit: WaitLimit) -> bool {
        let WaitLimit { from, lasts } = wait_limit;
        match *self.holder() {
            Holder::Unknown => false,
            Holder::Own { since } => since.max(from).elapsed() >= lasts.max(LEAST_OWN),
            Holder::Other { since, seen } => {
                seen.saturating_duration_since(since.max(from)) >= lasts.max(LEAST)
            }
        }
    }

    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a claim waits for the end of a transaction that may have claimed its key.
#[derive(Clone, Copy)]
pub(crate) struct WaitLimit {
    /// When the claim was made.
    from: Instant,
    lasts: Duration,
}

impl WaitLimit {
    pub(crate) fn from_now(lasts: Duration) -> Self {
        Self { from: Instant::now(), lasts }
    }

    /// How long the claim waits for the connection, and then for the lock, if other writers take
    /// turns.
    pub(crate) fn total(self) -> Duration {
        // Observing a writer takes longer than the wait itself.
        LOCK_TIMEOUT.max(self.lasts.saturating_add(SPARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_counts_only_the_time_of_one_transaction_after_it_was_made() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lock = WriteLockObserver(Mutex::new(Holder::Other { since: at(10), seen: at(20) }));
        for (from, lasts, is_held_beyond) in
            [(0, 10, true), (0, 11, false), (15, 5, true), (15, 6, false), (30, 0, false)]
        {
            let wait_limit = WaitLimit { from: at(from), lasts: Duration::from_secs(lasts) };
            assert_eq!(
                lock.is_held_beyond(wait_limit),
                is_held_beyond,
                "from {from} for {lasts} s"
            );
        }
        lock.released();
        assert!(
            lock.is_held_beyond(WaitLimit { from: start, lasts: Duration::ZERO }),
            "another connection has it still"
        );
        lock.observe_busy(true);
        assert!(
            !lock.is_held_beyond(WaitLimit { from: start, lasts: Duration::ZERO }),
            "another transaction has it"
        );
        lock.begun();
        lock.released();
        assert!(
            !lock.is_held_beyond(WaitLimit { from: start, lasts: Duration::ZERO }),
            "no transaction has it"
        );
    }
}
