//! An open transaction whose connection a handler may use.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Connection as _, Database, Row as _, SqlStr, Sqlite, SqliteConnection,
    sqlite::SqliteRow,
};
use sqlx_core::transaction::TransactionManager as _;

use crate::{
    connect::hooks::{ConnectionHooks, TransactionFault},
    engine::retry::RetryDeadline,
    engine::write_lock::{WaitLimit, WriteLockObserver},
    error::{had_no_effect, is_busy, is_unusable},
    sql::SETTINGS,
    store::BUSY_TIMEOUT,
    store::LOCK_TIMEOUT,
};
use idempotent_sql::PooledConnection;

type Manager = <Sqlite as Database>::TransactionManager;

/// The state of a connection whose hooks are installed.
struct HookedConnection {
    guard: ConnectionHooks,
    /// The settings before any handler used the connection.
    settings: String,
    /// The application's busy timeout, in milliseconds.
    busy_timeout: i64,
    /// SQLite's `data_version`, which changes with each commit of another connection and is never
    /// 0.
    version: AtomicI64,
}

impl HookedConnection {
    async fn new(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let busy_timeout = sqlx::query_scalar("SELECT timeout FROM main.pragma_busy_timeout")
            .fetch_one(&mut *connection)
            .await?;
        set_busy_timeout(connection, BUSY_TIMEOUT.as_millis()).await?;
        let settings =
            sqlx::query(SETTINGS).fetch_one(&mut *connection).await?.try_get("settings")?;
        Ok(Self {
            guard: ConnectionHooks::install(connection).await?,
            settings,
            busy_timeout,
            version: AtomicI64::new(0),
        })
    }

    /// Whether another connection may have committed since the last call.
    async fn may_have_committed(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<bool, sqlx::Error> {
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await?;
        Ok(self.version.swap(version, Ordering::Relaxed) != version)
    }
}

/// Observes the lock on one of the store's own connections that has waited for it outside a
/// transaction.
pub(crate) async fn observe_lock(
    connection: &mut PooledConnection<SqliteConnection>,
    lock: &WriteLockObserver,
) {
    if let Some(hooked) = connection.attachment::<HookedConnection>()
        && let Ok(committed) = hooked.may_have_committed(connection).await
    {
        lock.observe_busy(committed);
    }
}

/// The time limit of the statements on a connection, until it is dropped.
pub(crate) struct LimitedTime(Option<Arc<HookedConnection>>);

impl LimitedTime {
    /// Limits the time of the statements on one of the store's own connections. A statement that
    /// exceeds it fails as interrupted, and its transaction is rolled back. On a connection of the
    /// application there is no limit.
    pub(crate) async fn begin(
        connection: &mut PooledConnection<SqliteConnection>,
        limit: Duration,
    ) -> Result<Self, sqlx::Error> {
        if !connection.is_own() {
            return Ok(Self(None));
        }
        let hooked = match connection.attachment::<HookedConnection>() {
            Some(hooked) => hooked,
            None => {
                let hooked = Arc::new(HookedConnection::new(connection).await?);
                connection.attach(hooked.clone());
                hooked
            }
        };
        hooked.guard.limit(limit);
        Ok(Self(Some(hooked)))
    }
}

impl Drop for LimitedTime {
    fn drop(&mut self) {
        if let Some(hooked) = &self.0 {
            hooked.guard.remove_limit();
        }
    }
}

async fn set_busy_timeout(
    connection: &mut SqliteConnection,
    millis: impl Display,
) -> Result<(), sqlx::Error> {
    let statement = format!("PRAGMA busy_timeout = {millis}");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

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
        let hooked = match connection.get().attachment() {
            Some(hooked) => hooked,
            None => Arc::new(HookedConnection::new(connection.get_mut()).await?),
        };
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

    /// Called after each wait of [`BUSY_TIMEOUT`] for the lock.
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
        if !self.connection.get_mut().attach(self.hooked.clone()) {
            let busy_timeout = self.hooked.busy_timeout;
            let restored = set_busy_timeout(self.own_connection(), busy_timeout).await.is_ok();
            if !restored || ConnectionHooks::remove(self.own_connection()).await.is_err() {
                return;
            }
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
