//! Detects the end of a transaction that the store has not ended.
//!
//! SQLite itself rolls a transaction back after some errors (`ON CONFLICT ROLLBACK`, a full disk,
//! an interrupted statement), and a handler can execute `COMMIT` or `ROLLBACK`. sqlx does not
//! notice, and what the handler writes afterwards would be committed statement by statement,
//! without the record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;

use idempotent_core::clock::millis;

/// How many instructions of SQLite's virtual machine run between two checks for an interruption:
/// well below a millisecond, and more than a `ROLLBACK` has.
const INSTRUCTIONS: i32 = 10_000;
/// How many such checks a time limit permits in any case: more than the statements of a batch have
/// on a table without triggers. So a slow disk, or a process that does not run for a while, exceeds
/// no limit, but only a statement that computes for long.
const CHECKS: u64 = 10;

/// The store has no transaction open; the connection may commit.
const IDLE: u8 = 0;
/// The store's transaction is open. Nothing may be committed.
const OPEN: u8 = 1;
/// The store is about to commit or roll back.
const ENDING: u8 = 2;
/// The store has committed.
const COMMITTED: u8 = 3;
/// The store has rolled back.
const ROLLED_BACK: u8 = 4;
/// The transaction ended without the store. Nothing may be committed until the connection is
/// closed.
const LOST: u8 = 5;

/// The state of one connection's transaction, tracked by SQLite's commit and rollback hooks.
///
/// The commit hook refuses every commit but the store's, so that writes outside the transaction
/// fail and are undone. Code that removes the hooks evades this check, but not the savepoint that
/// is released before a record is completed.
///
/// A progress handler interrupts the statement of a dropped handler, so that the rollback does not
/// wait for its end, and a statement that exceeds its time limit.
pub(crate) struct ConnectionHooks {
    state: Arc<AtomicU8>,
    stopped: Arc<AtomicBool>,
    limit: Arc<TimeLimit>,
}

/// Until when a statement may compute.
struct TimeLimit {
    /// When the hooks were installed.
    start: Instant,
    /// In milliseconds since the start.
    end: AtomicU64,
    /// How often the end was checked.
    checks: AtomicU64,
}

impl TimeLimit {
    const NONE: u64 = u64::MAX;

    fn is_over(&self) -> bool {
        self.checks.fetch_add(1, Ordering::Relaxed) >= CHECKS
            && millis(self.start.elapsed()) >= self.end.load(Ordering::Acquire)
    }
}

impl ConnectionHooks {
    /// Installs the hooks in place of any existing ones.
    pub(crate) async fn install(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let mut handle = connection.lock_handle().await?;
        let (commits, rollbacks) = (state.clone(), state.clone());
        handle.set_commit_hook(move || match commits.load(Ordering::Acquire) {
            IDLE => true,
            state => state == ENDING && advance(&commits, ENDING, COMMITTED),
        });
        handle.set_rollback_hook(move || {
            // A commit that fails after its hook also calls the rollback hook.
            let _ = advance(&rollbacks, OPEN, LOST)
                || advance(&rollbacks, ENDING, ROLLED_BACK)
                || advance(&rollbacks, COMMITTED, LOST);
        });
        let stopped = Arc::new(AtomicBool::new(false));
        let end = AtomicU64::new(TimeLimit::NONE);
        let limit = TimeLimit { start: Instant::now(), end, checks: AtomicU64::new(0) };
        let limit = Arc::new(limit);
        let (stops, limits) = (stopped.clone(), limit.clone());
        handle.set_progress_handler(INSTRUCTIONS, move || {
            !stops.load(Ordering::Acquire) && !limits.is_over()
        });
        Ok(Self { state, stopped, limit })
    }

    /// Interrupts each statement that computes after this time, until
    /// [`remove_limit`](Self::remove_limit).
    pub(crate) fn limit(&self, limit: Duration) {
        let TimeLimit { start, end, checks } = &*self.limit;
        checks.store(0, Ordering::Relaxed);
        end.store(millis(start.elapsed().saturating_add(limit)), Ordering::Release);
    }

    pub(crate) fn remove_limit(&self) {
        self.limit.end.store(TimeLimit::NONE, Ordering::Release);
    }

    /// Removes the hooks.
    pub(crate) async fn remove(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        handle.remove_commit_hook();
        handle.remove_rollback_hook();
        handle.remove_progress_handler();
        Ok(())
    }

    /// Records that a transaction has begun.
    pub(crate) fn begun(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// Whether the transaction is still open, as far as the hooks know.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Announces the end of the transaction; returns `false` if it has already ended.
    pub(crate) fn begin_end(&self) -> bool {
        advance(&self.state, OPEN, ENDING)
    }

    /// Interrupts the running statement, if there is one, until [`rolled_back`](Self::rolled_back).
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Records that the transaction was committed; returns `false` if the hooks have not seen it.
    pub(crate) fn committed(&self) -> bool {
        advance(&self.state, COMMITTED, IDLE)
    }

    /// Records that the transaction was rolled back; returns `false` if the hooks have not seen it.
    pub(crate) fn rolled_back(&self) -> bool {
        self.stopped.store(false, Ordering::Release);
        advance(&self.state, ROLLED_BACK, IDLE)
    }
}

fn advance(state: &AtomicU8, from: u8, to: u8) -> bool {
    state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a step whose process or disk was slow is interrupted although it computes little.
    #[test]
    fn a_time_limit_ends_only_what_computes_for_long() {
        let over = AtomicU64::new(0);
        let limit = TimeLimit { start: Instant::now(), end: over, checks: AtomicU64::new(0) };
        assert!((0..CHECKS).all(|_| !limit.is_over()));
        assert!(limit.is_over());
    }
}
