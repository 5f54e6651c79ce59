//! How connections are opened, verified, and closed after a dropped call.
//!
//! The server goes on with a statement whose client has gone, and keeps the session. A place in a
//! pool is therefore free only when the session is idle or has ended, which a task on the I/O
//! thread waits for.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection as _, PgConnection, PgPool, Postgres, pool::PoolConnection,
    postgres::PgConnectOptions,
};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, sleep, timeout};

use super::{
    error::{ErrorKind, NoResponse, error_kind},
    io_thread::spawn,
    server_health::{MAX_WAIT, ServerHealth},
    timeouts::RESPONSE_TIMEOUT,
};
use crate::store::sql::{ConnectionLifecycle, PooledConnection, execute_verified};

type Manager = <Postgres as sqlx::Database>::TransactionManager;

/// How long the server may take to respond to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a handler's statement may continue after the handler was dropped.
pub(super) const STATEMENT_GRACE: Duration = Duration::from_secs(1);
/// How often the server checks whether the client of a running statement is still connected
/// (Postgres 14 and later).
pub(super) const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The lifecycle of a store's connections.
pub(super) struct PgLifecycle(pub(super) Arc<ServerHealth>);

#[async_trait]
impl ConnectionLifecycle<PgConnection> for PgLifecycle {
    async fn open(&self, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        self.0.exchange(RESPONSE_TIMEOUT, PgConnection::connect_with(options)).await
    }

    async fn acquire(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let deadline = Instant::now() + pool.options().get_acquire_timeout().min(MAX_WAIT);
        loop {
            let limit = self.acquire_limit(pool, deadline);
            // The outer limit ends the wait, not the exchange, whose error would mean an unknown
            // outcome.
            let acquired = self.0.exchange(limit.saturating_add(RESPONSE_TIMEOUT), pool.acquire());
            match timeout(limit, acquired).await {
                Ok(acquired) => return acquired,
                Err(_) if Instant::now() >= deadline => return Err(sqlx::Error::PoolTimedOut),
                Err(_) => {}
            }
        }
    }

    async fn responds(&self, connection: &mut PgConnection) -> bool {
        if self.0.is_down() {
            return false;
        }
        match timeout(PING_TIMEOUT, connection.ping()).await {
            Ok(pinged) => pinged.is_ok(),
            Err(_) => {
                // The other idle connections use the same network path and are presumed dead too.
                self.0.invalidate_idle();
                self.0.probe();
                false
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn reclaim(&self, connection: PooledConnection<PgConnection>, base_depth: Option<usize>) {
        spawn(reclaim(self.0.clone(), connection, base_depth));
    }
}

impl PgLifecycle {
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
        let limit = self.0.probe_limit();
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
        Err(error) if health.is_down() || error_kind(&error) != ErrorKind::NoResponse => {
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
