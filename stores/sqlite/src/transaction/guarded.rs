//! An open transaction whose connection a handler may use.

use std::sync::Arc;

use sqlx::{
    Connection as _, Database, Row as _, SqlStr, Sqlite, SqliteConnection, sqlite::SqliteRow,
};
use sqlx_core::transaction::TransactionManager as _;

use crate::{
    connect::hooked::HookedConnection,
    engine::{
        retry::{LOCK_TIMEOUT, RetryDeadline},
        write_lock::{WaitLimit, WriteLockObserver},
    },
    error::{had_no_effect, is_busy, is_unusable},
    sql::SETTINGS,
};
use idempotent_sql::PooledConnection;

type Manager = <Sqlite as Database>::TransactionManager;

/// An open transaction. Dropping it closes the connection, which rolls the transaction back.
///
/// A connection that a handler has used is reused only if the handler left nothing on it: no
/// transaction, setting, temporary table or attached database.
pub(crate) struct GuardedTransaction {
    connection: CloseOnDrop,
    hooked: Arc<HookedConnection>,
    used_by_handler: bool,
    /// Whether the settings were found unchanged after the handler used the connection.
    clean: bool,
}

impl GuardedTransaction {
    /// Begins a transaction with these statements; returns `None` if a single transaction of
    /// another connection holds the lock for longer than `wait_limit`.
    ///
    /// # Errors
    /// When other connections have held the lock in turn for 5 seconds, or for a second longer than
    /// `wait_limit` if that is more.
    pub(crate) async fn begin(
        connection: PooledConnection<SqliteConnection>,
        lock: Arc<WriteLockObserver>,
        statements: &SqlStr,
        wait_limit: Option<WaitLimit>,
    ) -> Result<Option<Self>, sqlx::Error> {
        let mut connection = CloseOnDrop { connection: Some(connection), lock, hooked: None };
        let hooked = HookedConnection::of(connection.get_mut()).await?;
        connection.hooked = Some(hooked.clone());
        let mut transaction = Self { connection, hooked, used_by_handler: false, clean: true };
        let deadline = RetryDeadline::after(wait_limit.map_or(LOCK_TIMEOUT, WaitLimit::total));
        loop {
            let begun =
                Manager::begin(transaction.own_connection(), Some(statements.clone())).await;
            if begun.as_ref().is_err_and(is_busy) {
                transaction.observe_lock().await?;
                if wait_limit.is_some_and(|wait_limit| {
                    transaction.connection.lock.is_held_beyond(wait_limit)
                }) {
                    transaction.give_back().await;
                    return Ok(None);
                }
            }
            match begun {
                Err(error) if deadline.allows_retry(&error) => {}
                begun => return transaction.begun(begun).await.map(Some),
            }
        }
    }

    /// Called after each wait for the lock.
    async fn observe_lock(&mut self) -> Result<(), sqlx::Error> {
        let hooked = self.hooked.clone();
        let committed = hooked.may_have_committed(self.own_connection()).await?;
        self.connection.lock.observe_busy(committed);
        Ok(())
    }

    async fn begun(self, begun: Result<(), sqlx::Error>) -> Result<Self, sqlx::Error> {
        match begun {
            Ok(()) => {
                self.connection.lock.begun();
                self.hooked.guard.begun();
            }
            Err(error) => {
                if !is_unusable(&error) {
                    self.give_back().await;
                }
                return Err(error);
            }
        }
        Ok(self)
    }

    pub(crate) fn connection(&self) -> &SqliteConnection {
        self.connection.get()
    }

    /// The connection, for statements of the store.
    pub(crate) fn own_connection(&mut self) -> &mut SqliteConnection {
        self.connection.get_mut()
    }

    /// The connection, for a handler.
    pub(crate) fn connection_mut(&mut self) -> &mut SqliteConnection {
        (self.used_by_handler, self.clean) = (true, false);
        self.own_connection()
    }

    /// Verifies that a commit would commit this transaction as a whole, as far as sqlx and the
    /// hooks know.
    pub(crate) async fn check(&mut self) -> Result<(), TransactionFault> {
        if self.used_by_handler && Manager::get_transaction_depth(self.connection()) != 1 {
            // The rollback of a nested transaction that the handler dropped may still be queued for
            // SQLite's thread; the ping is queued behind it.
            let _ = self.own_connection().ping().await;
        }
        if !self.hooked.guard.is_open() {
            Err(TransactionFault::Ended)
        } else if Manager::get_transaction_depth(self.connection()) != 1 {
            Err(TransactionFault::OpenSavepoint)
        } else {
            Ok(())
        }
    }

    /// Evaluates the row of [`SETTINGS`] that was read after the handler had finished; returns the
    /// number of rows that the last write changed.
    pub(crate) fn inspect(&mut self, row: &SqliteRow) -> Result<u64, sqlx::Error> {
        self.clean = row.try_get::<String, _>("settings")? == self.hooked.settings;
        Ok(u64::try_from(row.try_get::<i64, _>("changed")?).unwrap_or(0))
    }

    /// Commits. After an error the transaction may or may not have been committed, unless the error
    /// proves that it was not.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        if !self.hooked.guard.begin_end() {
            return Err(sqlx::Error::AnyDriverError(TransactionFault::Ended.into()));
        }
        match Manager::commit(self.own_connection()).await {
            Ok(()) => {
                if self.hooked.guard.committed() && self.clean {
                    self.give_back().await;
                }
                Ok(())
            }
            Err(error) => {
                if had_no_effect(&error) {
                    self.undo().await;
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn roll_back(self) {
        if self.hooked.guard.begin_end() {
            self.hooked.guard.stop();
            self.undo().await;
        }
    }

    /// Rolls back what is left of a transaction that is being ended.
    async fn undo(mut self) {
        // The handler may have left savepoints open.
        while Manager::get_transaction_depth(self.connection()) > 0 {
            if Manager::rollback(self.own_connection()).await.is_err() {
                return;
            }
        }
        if !self.hooked.guard.rolled_back() {
            return;
        }
        if self.used_by_handler {
            let Ok(row) = sqlx::query(SETTINGS).fetch_one(self.own_connection()).await else {
                return;
            };
            if self.inspect(&row).is_err() || !self.clean {
                return;
            }
        }
        self.give_back().await;
    }

    /// Returns a clean connection without a transaction to its pool. A shared one gets the
    /// application's settings back.
    async fn give_back(mut self) {
        let hooked = self.hooked.clone();
        if !self.connection.get_mut().attach(hooked.clone())
            && hooked.restore(self.own_connection()).await.is_err()
        {
            return;
        }
        self.connection.give_back();
    }
}

/// Closes the connection when it is dropped, and interrupts the statement that is running on it.
struct CloseOnDrop {
    connection: Option<PooledConnection<SqliteConnection>>,
    lock: Arc<WriteLockObserver>,
    hooked: Option<Arc<HookedConnection>>,
}

impl CloseOnDrop {
    #[expect(
        clippy::expect_used,
        reason = "only what consumes the transaction takes its connection"
    )]
    fn get(&self) -> &PooledConnection<SqliteConnection> {
        self.connection.as_ref().expect("the transaction is open")
    }

    #[expect(clippy::expect_used, reason = "as above")]
    fn get_mut(&mut self) -> &mut PooledConnection<SqliteConnection> {
        self.connection.as_mut().expect("the transaction is open")
    }

    fn give_back(mut self) {
        if let Some(connection) = self.take() {
            connection.give_back();
        }
    }

    /// Records the end before another caller can get the connection or its place in the pool.
    fn take(&mut self) -> Option<PooledConnection<SqliteConnection>> {
        let connection = self.connection.take()?;
        self.lock.released();
        Some(connection)
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.take() {
            if let Some(hooked) = &self.hooked {
                hooked.guard.stop();
            }
            connection.close();
        }
    }
}

/// Why a transaction cannot be committed as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransactionFault {
    #[error(
        "the transaction ended before the handler responded: SQLite rolled it back after an error, \
         or the handler ended it with a statement"
    )]
    Ended,
    #[error("the handler left a savepoint open")]
    OpenSavepoint,
}
