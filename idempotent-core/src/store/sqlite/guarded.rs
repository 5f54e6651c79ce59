//! A connection with an open transaction that a handler may have.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use sqlx::{AssertSqlSafe, Connection as _, Database, Row as _, SqlStr, Sqlite, SqliteConnection, sqlite::SqliteRow};
use sqlx_core::transaction::TransactionManager as _;

use super::{
    BUSY_TIMEOUT, LOCK_TIMEOUT,
    error::is_busy,
    guard::{Guard, NotWhole},
    lock::{Patience, WriteLock},
    steps::Tries,
};
use crate::store::sql::Lent;

type Manager = <Sqlite as Database>::TransactionManager;

/// The connection's settings; `changed` is the number of rows that the last write has changed.
pub(super) const SETTINGS: &str = include_str!("../../sql/sqlite/connection.sql");

/// What is known of a connection whose hooks are installed.
struct Watched {
    guard: Guard,
    /// As they were before any handler had the connection.
    settings: String,
    /// The application's, in milliseconds.
    busy_timeout: i64,
    /// Changes with each commit of another connection. SQLite's own values are positive.
    version: AtomicI64,
}

impl Watched {
    async fn new(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let busy_timeout =
            sqlx::query_scalar("SELECT timeout FROM pragma_busy_timeout").fetch_one(&mut *connection).await?;
        set_busy_timeout(connection, BUSY_TIMEOUT.as_millis()).await?;
        let settings = sqlx::query(SETTINGS).fetch_one(&mut *connection).await?.try_get("settings")?;
        Ok(Self { guard: Guard::install(connection).await?, settings, busy_timeout, version: AtomicI64::new(0) })
    }

    /// Whether another connection may have committed since this was last called.
    async fn may_have_committed(&self, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await?;
        Ok(self.version.swap(version, Ordering::Relaxed) != version)
    }
}

/// Looks at the lock, on a connection of the store's own that has waited for it without a
/// transaction. Before its first transaction such a connection is not watched.
pub(super) async fn look(connection: &mut Lent<SqliteConnection>, lock: &WriteLock) {
    if let Some(watched) = connection.attachment::<Watched>()
        && let Ok(committed) = watched.may_have_committed(connection).await
    {
        lock.busy(committed);
    }
}

async fn set_busy_timeout(connection: &mut SqliteConnection, millis: impl Display) -> Result<(), sqlx::Error> {
    let statement = format!("PRAGMA busy_timeout = {millis}");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

/// An open transaction. If it is dropped, the connection is closed, and with it the transaction.
///
/// A connection that a handler had is used again only if nothing of the handler's is left on it: no
/// transaction, no setting, no temporary table, no attached database.
pub(super) struct Guarded {
    connection: Closing,
    watched: Arc<Watched>,
    lent: bool,
    /// Whether the settings were found unchanged after the handler had the connection.
    clean: bool,
}

impl Guarded {
    /// Begins by these statements; `None` where one transaction of another connection outlasts
    /// `patience`.
    ///
    /// # Errors
    /// After 5 seconds, or a second more than `patience`, in which others always had the lock.
    pub(super) async fn begin(
        connection: Lent<SqliteConnection>,
        lock: Arc<WriteLock>,
        statements: &SqlStr,
        patience: Option<Patience>,
    ) -> Result<Option<Self>, sqlx::Error> {
        let mut connection = Closing { connection: Some(connection), lock, watched: None };
        let watched = match connection.get().attachment() {
            Some(watched) => watched,
            None => Arc::new(Watched::new(connection.get_mut()).await?),
        };
        connection.watched = Some(watched.clone());
        let mut guarded = Self { connection, watched, lent: false, clean: true };
        let tries = Tries::within(patience.map_or(LOCK_TIMEOUT, Patience::longest));
        loop {
            let begun = Manager::begin(guarded.own(), Some(statements.clone())).await;
            if begun.as_ref().is_err_and(is_busy) {
                guarded.look().await?;
                if patience.is_some_and(|patience| guarded.connection.lock.outlasts(patience)) {
                    guarded.give_back().await;
                    return Ok(None);
                }
            }
            match begun {
                Err(error) if tries.again(&error) => {}
                begun => return guarded.begun(begun).await.map(Some),
            }
        }
    }

    /// Called after each wait of [`BUSY_TIMEOUT`] for the lock.
    async fn look(&mut self) -> Result<(), sqlx::Error> {
        let watched = self.watched.clone();
        let committed = watched.may_have_committed(self.own()).await?;
        self.connection.lock.busy(committed);
        Ok(())
    }

    async fn begun(self, begun: Result<(), sqlx::Error>) -> Result<Self, sqlx::Error> {
        match begun {
            Ok(()) => {
                self.connection.lock.taken();
                self.watched.guard.begun();
            }
            Err(error) => {
                if is_busy(&error) {
                    self.give_back().await;
                }
                return Err(error);
            }
        }
        Ok(self)
    }

    pub(super) fn connection(&self) -> &SqliteConnection {
        self.connection.get()
    }

    /// For statements of ours.
    pub(super) fn own(&mut self) -> &mut SqliteConnection {
        self.connection.get_mut()
    }

    /// For a handler.
    pub(super) fn lend(&mut self) -> &mut SqliteConnection {
        (self.lent, self.clean) = (true, false);
        self.own()
    }

    /// Whether a commit would commit this transaction, and all of it, as far as sqlx and the hooks
    /// can tell.
    pub(super) async fn check(&mut self) -> Result<(), NotWhole> {
        if self.lent && Manager::get_transaction_depth(self.connection()) != 1 {
            // The rollback of a nested transaction that the handler dropped may still be queued for
            // SQLite's thread; the ping is queued behind it.
            let _ = self.own().ping().await;
        }
        if !self.watched.guard.is_open() {
            Err(NotWhole::Lost)
        } else if Manager::get_transaction_depth(self.connection()) != 1 {
            Err(NotWhole::OpenSavepoint)
        } else {
            Ok(())
        }
    }

    /// Takes the row of [`SETTINGS`] that was read after the handler was done; returns how many
    /// rows the last write has changed.
    pub(super) fn inspect(&mut self, row: &SqliteRow) -> Result<u64, sqlx::Error> {
        self.clean = row.try_get::<String, _>("settings")? == self.watched.settings;
        Ok(u64::try_from(row.try_get::<i64, _>("changed")?).unwrap_or(0))
    }

    /// Commits. After an error it may or may not be committed, unless the error is SQLite's.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        if !self.watched.guard.announce() {
            return Err(sqlx::Error::AnyDriverError(NotWhole::Lost.into()));
        }
        match Manager::commit(self.own()).await {
            Ok(()) => {
                if self.watched.guard.committed() && self.clean {
                    self.give_back().await;
                }
                Ok(())
            }
            Err(error) => {
                if error.as_database_error().is_some() {
                    self.undo().await;
                }
                Err(error)
            }
        }
    }

    pub(super) async fn roll_back(self) {
        if self.watched.guard.announce() {
            self.watched.guard.stop();
            self.undo().await;
        }
    }

    /// Ends what is left of a transaction whose end was announced.
    async fn undo(mut self) {
        // Savepoints of the handler's may be left.
        while Manager::get_transaction_depth(self.connection()) > 0 {
            if Manager::rollback(self.own()).await.is_err() {
                return;
            }
        }
        if !self.watched.guard.rolled_back() {
            return;
        }
        if self.lent {
            let Ok(row) = sqlx::query(SETTINGS).fetch_one(self.own()).await else { return };
            if self.inspect(&row).is_err() || !self.clean {
                return;
            }
        }
        self.give_back().await;
    }

    /// Gives a clean connection back, without a transaction. The application gets a shared one as
    /// it was.
    async fn give_back(mut self) {
        if !self.connection.get_mut().attach(self.watched.clone()) {
            let busy_timeout = self.watched.busy_timeout;
            let restored = set_busy_timeout(self.own(), busy_timeout).await.is_ok();
            if !restored || Guard::remove(self.own()).await.is_err() {
                return;
            }
        }
        self.connection.give_back();
    }
}

/// A connection that is closed when this is dropped. The statement that it is in the middle of is stopped.
struct Closing {
    connection: Option<Lent<SqliteConnection>>,
    lock: Arc<WriteLock>,
    watched: Option<Arc<Watched>>,
}

impl Closing {
    #[expect(clippy::expect_used, reason = "only what consumes the transaction takes its connection")]
    fn get(&self) -> &Lent<SqliteConnection> {
        self.connection.as_ref().expect("the transaction is open")
    }

    #[expect(clippy::expect_used, reason = "as above")]
    fn get_mut(&mut self) -> &mut Lent<SqliteConnection> {
        self.connection.as_mut().expect("the transaction is open")
    }

    fn give_back(mut self) {
        if let Some(connection) = self.take() {
            connection.give_back();
        }
    }

    /// Takes note of the end before the next user can have the connection or its place.
    fn take(&mut self) -> Option<Lent<SqliteConnection>> {
        let connection = self.connection.take()?;
        self.lock.given_up();
        Some(connection)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(connection) = self.take() {
            if let Some(watched) = &self.watched {
                watched.guard.stop();
            }
            connection.close();
        }
    }
}
