//! Watches a connection while a handler has it.
//!
//! SQLite itself rolls a transaction back after some errors (`ON CONFLICT ROLLBACK`, a full disk,
//! an interrupted statement), and a handler can send `COMMIT` or `ROLLBACK`. sqlx does not notice,
//! and what the handler writes next would be committed statement by statement, without the record.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use sqlx::SqliteConnection;

/// How many instructions of SQLite's virtual machine run before a statement notices that it is to be stopped: well below a
/// millisecond, and more than a `ROLLBACK` has.
const INSTRUCTIONS: i32 = 10_000;

/// No transaction of ours is open; the connection commits as it likes.
const IDLE: u8 = 0;
/// Our transaction is open. Nothing may be committed.
const OPEN: u8 = 1;
/// We are about to commit or to roll back.
const ENDING: u8 = 2;
/// We have committed.
const COMMITTED: u8 = 3;
/// We have rolled back.
const ROLLED_BACK: u8 = 4;
/// Somebody else has ended our transaction. Nothing may be committed until the connection is
/// closed.
const LOST: u8 = 5;

/// The state of one connection's transaction, kept by SQLite's commit and rollback hooks.
///
/// The commit hook refuses every commit but ours, so that what runs outside of the transaction
/// fails and is undone. Code that removes the hooks escapes this, but not the savepoint that is
/// released before a record is completed.
///
/// A progress handler stops the statement that a handler was dropped in the middle of, so that the
/// rollback need not wait for its end.
pub(super) struct Guard {
    state: Arc<AtomicU8>,
    stopped: Arc<AtomicBool>,
}

impl Guard {
    /// Installs the hooks, in place of any that are there.
    pub(super) async fn install(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let mut handle = connection.lock_handle().await?;
        let (commits, rollbacks) = (state.clone(), state.clone());
        handle.set_commit_hook(move || match commits.load(Ordering::Acquire) {
            IDLE => true,
            state => state == ENDING && advance(&commits, ENDING, COMMITTED),
        });
        handle.set_rollback_hook(move || {
            // A commit that fails after its hook is rolled back, too.
            let _ = advance(&rollbacks, OPEN, LOST)
                || advance(&rollbacks, ENDING, ROLLED_BACK)
                || advance(&rollbacks, COMMITTED, LOST);
        });
        let stopped = Arc::new(AtomicBool::new(false));
        let stops = stopped.clone();
        handle.set_progress_handler(INSTRUCTIONS, move || !stops.load(Ordering::Acquire));
        Ok(Self { state, stopped })
    }

    /// Removes the hooks.
    pub(super) async fn remove(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        handle.remove_commit_hook();
        handle.remove_rollback_hook();
        handle.remove_progress_handler();
        Ok(())
    }

    /// A transaction has begun.
    pub(super) fn begun(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// Whether the transaction that has begun is still open, as far as the hooks know.
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Announces that we are about to end the transaction; `false` if it was lost.
    pub(super) fn announce(&self) -> bool {
        advance(&self.state, OPEN, ENDING)
    }

    /// Stops the statement that runs, if any does, until [`rolled_back`](Self::rolled_back).
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Takes note that the transaction was committed; `false` if the hooks have not seen it.
    pub(super) fn committed(&self) -> bool {
        advance(&self.state, COMMITTED, IDLE)
    }

    /// Takes note that the transaction was rolled back; `false` if the hooks have not seen it.
    pub(super) fn rolled_back(&self) -> bool {
        self.stopped.store(false, Ordering::Release);
        advance(&self.state, ROLLED_BACK, IDLE)
    }
}

fn advance(state: &AtomicU8, from: u8, to: u8) -> bool {
    state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The transaction cannot be committed as a whole.
#[derive(Debug)]
pub(super) enum NotWhole {
    Lost,
    OpenSavepoint,
}

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "the handler's transaction was ended before its response, by SQLite after an error or by a statement of the handler",
            Self::OpenSavepoint => "the handler left a savepoint open",
        })
    }
}

impl Error for NotWhole {}
