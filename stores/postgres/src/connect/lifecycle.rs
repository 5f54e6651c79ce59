//! How connections are opened, verified, and closed after a dropped call.
//!
//! The server goes on with a statement whose client has gone, and keeps the session. A place in a
//! pool is therefore free only when the session is idle or has ended, which a task on the I/O
//! thread waits for.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, SqlSafeStr as _,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    connect::open_transaction::execute_verified,
    error::{PgErrorKind, error_kind, is_reply},
    server::{
        io_thread::spawn,
        timeouts::{CLIENT_CHECK_INTERVAL, RESPONSE_TIMEOUT, STATEMENT_GRACE},
    },
};
use idempotent_sql::{
    ConnectionLifecycle, PooledConnection, open_as_pool,
    server::{
        NoResponse,
        health::{MAX_WAIT, PING_TIMEOUT, ServerHealth},
    },
};

type Manager = <Postgres as sqlx::Database>::TransactionManager;

/// The lifecycle of a store's connections.
pub(crate) struct PgLifecycle {
    pub(crate) health: Arc<ServerHealth>,
    pub(crate) hooks: Option<Hooks>,
}

/// How the application's pool prepares each new session, and what the store then sets in it.
pub(crate) struct Hooks {
    options: PgPoolOptions,
    settings: String,
}

impl Hooks {
    /// The store's settings replace those of the application's hook.
    pub(crate) fn new(options: PgPoolOptions, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| format!("SET {name} = '{value}'; "));
        Self { options, settings: settings.collect() }
    }

    async fn open(&self, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        let mut connection = open_as_pool(&self.options, options, RESPONSE_TIMEOUT).await?;
        if !self.settings.is_empty() {
            let set = sqlx::raw_sql(AssertSqlSafe(self.settings.clone()));
            set.execute(&mut connection).await?;
        }
        Ok(connection)
    }
}

#[async_trait]
impl ConnectionLifecycle<PgConnection> for PgLifecycle {
    async fn open(&self, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        let Some(hooks) = &self.hooks else {
            let opened = PgConnection::connect_with(options);
            return self.health.exchange(RESPONSE_TIMEOUT, opened).await;
        };
        self.health.exchange(RESPONSE_TIMEOUT, hooks.open(options)).await
    }

    async fn acquire(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let deadline = Instant::now() + pool.options().get_acquire_timeout().min(MAX_WAIT);
        loop {
            let limit = self.acquire_limit(pool, deadline);
            // The outer limit ends the wait, not the exchange, whose error would mean an unknown
            // outcome.
            let acquired =
                self.health.exchange(limit.saturating_add(RESPONSE_TIMEOUT), pool.acquire());
            if let Ok(acquired) = timeout(limit, acquired).await
                && let Some(connection) = self.outside_of_transaction(acquired?).await
            {
                return Ok(connection);
            }
            if Instant::now() >= deadline {
                return Err(sqlx::Error::PoolTimedOut);
            }
        }
    }

    async fn responds(&self, connection: &mut PgConnection) -> bool {
        self.health.responds(connection).await
    }

    fn epoch(&self) -> u64 {
        self.health.epoch()
    }

    fn reclaim(&self, connection: PooledConnection<PgConnection>, base_depth: Option<usize>) {
        spawn(reclaim(self.health.clone(), connection, base_depth));
    }
}

impl PgLifecycle {
    /// Closes a connection of an application's pool on which a transaction is open, or which does
    /// not respond. What the store writes in a transaction that the application has left open, no
    /// other session sees, and it vanishes with that transaction.
    ///
    /// sqlx keeps the state of the session to itself, except that it refuses to count a transaction
    /// that the server has not begun. Unlike the pool's ping, this statement also fails in a
    /// transaction in which another has failed.
    async fn outside_of_transaction(
        &self,
        mut connection: PoolConnection<Postgres>,
    ) -> Option<PoolConnection<Postgres>> {
        let begun = Manager::begin(&mut connection, Some("SELECT 1".into_sql_str()));
        let begun = self.health.exchange(RESPONSE_TIMEOUT, begun).await;
        if let Err(sqlx::Error::BeginFailed) = begun {
            return Some(connection);
        }
        if begun.as_ref().map_or_else(is_reply, |()| true) {
            tracing::warn!(
                "the application left a transaction open on a connection of its pool; closing the \
                 connection"
            );
        }
        drop(connection.detach());
        None
    }

    /// How long to wait for a connection of an application's pool before trying again.
    ///
    /// sqlx's pool may wait for a response on a dead connection; if the call is dropped meanwhile,
    /// the pool closes that connection. While all connections are in use, the call has a place in
    /// the pool's queue, which it would lose.
    fn acquire_limit(&self, pool: &PgPool, deadline: Instant) -> Duration {
        if pool.num_idle() > 0 {
            return PING_TIMEOUT;
        }
        // Opening a connection takes about as long as a probe.
        let limit = self.health.probe_limit();
        if pool.size() < pool.options().get_max_connections() {
            limit
        } else {
            limit.max(deadline.saturating_duration_since(Instant::now()))
        }
    }
}

/// Waits for the end of the statement on a connection whose call was dropped, and closes the
/// connection if that takes too long.
async fn reclaim(
    health: Arc<ServerHealth>,
    mut connection: PooledConnection<PgConnection>,
    base_depth: Option<usize>,
) {
    let drained = match base_depth {
        // The server limits the time of the store's own statements.
        None => health.exchange(RESPONSE_TIMEOUT, drain(&mut connection, base_depth)).await,
        // A handler's statement has no such limit, and a slow one says nothing about the server.
        Some(_) => timeout(STATEMENT_GRACE, drain(&mut connection, base_depth))
            .await
            .unwrap_or(Err(NoResponse::TimedOut.into())),
    };
    match drained {
        Ok(()) => connection.give_back(),
        Err(error) if health.is_down() || error_kind(&error) != PgErrorKind::NoResponse => {
            connection.close()
        }
        Err(_) => {
            connection.disconnect();
            sleep(3 * CLIENT_CHECK_INTERVAL).await;
            connection.close();
        }
    }
}

/// Reads the rest of a response, and ends the transaction if one is open.
async fn drain(
    connection: &mut PgConnection,
    base_depth: Option<usize>,
) -> Result<(), sqlx::Error> {
    connection.ping().await?;
    let Some(base_depth) = base_depth else { return Ok(()) };
    while Manager::get_transaction_depth(connection) > base_depth {
        Manager::rollback(connection).await?;
    }
    // sqlx does not know of a transaction whose `BEGIN` was dropped.
    execute_verified("ROLLBACK", connection).await
}
