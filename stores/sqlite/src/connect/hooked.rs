//! A connection whose hooks are installed.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use crate::{
    connect::{connections::BUSY_TIMEOUT, hooks::ConnectionHooks},
    sql::SETTINGS,
};
use idempotent_sql::PooledConnection;

/// The state of a connection whose hooks are installed.
pub(crate) struct HookedConnection {
    pub(crate) guard: ConnectionHooks,
    /// The settings before any handler used the connection.
    pub(crate) settings: String,
    /// The application's busy timeout, in milliseconds.
    busy_timeout: i64,
    /// SQLite's `data_version`, which changes with each commit of another connection and is never
    /// 0.
    version: AtomicI64,
}

impl HookedConnection {
    /// Returns the state that is attached to a connection, or else installs the hooks.
    pub(crate) async fn of(
        connection: &mut PooledConnection<SqliteConnection>,
    ) -> Result<Arc<Self>, sqlx::Error> {
        match connection.attachment() {
            Some(hooked) => Ok(hooked),
            None => Self::new(connection).await.map(Arc::new),
        }
    }

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
    pub(crate) async fn may_have_committed(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<bool, sqlx::Error> {
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await?;
        Ok(self.version.swap(version, Ordering::Relaxed) != version)
    }
    /// Removes the hooks from an application's connection, and restores its busy timeout.
    pub(crate) async fn restore(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<(), sqlx::Error> {
        set_busy_timeout(connection, self.busy_timeout).await?;
        ConnectionHooks::remove(connection).await
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
        let hooked = HookedConnection::of(connection).await?;
        connection.attach(hooked.clone());
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
