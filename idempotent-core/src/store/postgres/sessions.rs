//! How connections are opened, and what happens to those that were given up.
//!
//! A statement whose client has gone goes on in the server, and so does its session. A place in a pool is therefore free again only when
//! the session is idle or gone: what was given up is waited for, by a task on the driver's runtime.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, pool::PoolConnection, postgres::PgConnectOptions};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, sleep, timeout};

use super::{
    driver::spawn,
    error::{Kind, Unanswered, kind},
    health::{Health, LONGEST},
    run::LIMIT,
};
use crate::store::sql::{Care, Lent, in_step};

type Manager = <Postgres as sqlx::Database>::TransactionManager;

/// How long the server has to respond on a connection that was idle.
const PING: Duration = Duration::from_secs(1);
/// How long a statement of a handler's that was given up may go on.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How often the server looks whether the client of a running statement is still there (Postgres 14 or later).
pub(super) const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// Takes care of the connections of one store.
pub(super) struct Sessions(pub(super) Arc<Health>);

#[async_trait]
impl Care<PgConnection> for Sessions {
    async fn open(&self, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        self.0.exchange(LIMIT, PgConnection::connect_with(options)).await
    }

    async fn acquire(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let deadline = Instant::now() + pool.options().get_acquire_timeout().min(LONGEST);
        loop {
            let limit = self.acquire_limit(pool, deadline);
            // The limit, and not the exchange, ends the wait: nothing was sent whose outcome is unknown.
            let acquired = self.0.exchange(limit.saturating_add(LIMIT), pool.acquire());
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
        match timeout(PING, connection.ping()).await {
            Ok(pinged) => pinged.is_ok(),
            Err(_) => {
                // The others were idle for as long, and go by the same way.
                self.0.suspect_idle();
                self.0.probe();
                false
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn abandoned(&self, connection: Lent<PgConnection>, at_rest: Option<usize>) {
        spawn(settle(self.0.clone(), connection, at_rest));
    }
}

impl Sessions {
    /// How long to wait for a connection of an application's pool before starting anew.
    ///
    /// sqlx's pool may wait for a response on a connection that is dead; dropped meanwhile, the pool
    /// closes that connection. While all connections are in use, the call has a place in the pool's
    /// queue instead, which it would lose.
    fn acquire_limit(&self, pool: &PgPool, deadline: Instant) -> Duration {
        if pool.num_idle() > 0 {
            return PING;
        }
        // To open a connection takes as long as a probe.
        let limit = self.0.probe_limit();
        if pool.size() < pool.options().get_max_connections() {
            limit
        } else {
            limit.max(deadline.saturating_duration_since(Instant::now()))
        }
    }
}

/// Waits for the end of what a connection was given up in the middle of, and closes it if that takes too long.
async fn settle(health: Arc<Health>, mut connection: Lent<PgConnection>, at_rest: Option<usize>) {
    let settled = match at_rest {
        // Statements of the store's own are bounded in the server.
        None => health.exchange(LIMIT, settled(&mut connection, at_rest)).await,
        // Those of handlers are not, and nothing is wrong with a server that takes long for them.
        Some(_) => timeout(GRACE, settled(&mut connection, at_rest)).await.unwrap_or(Err(Unanswered::TooSlow.into())),
    };
    match settled {
        Ok(()) => connection.give_back(),
        Err(error) if health.is_down() || kind(&error) != Kind::Unanswered => connection.close(),
        Err(_) => {
            connection.hang_up();
            sleep(3 * CLIENT_CHECK).await;
            connection.close();
        }
    }
}

/// Reads what is left of a response, and ends the transaction that may be open.
async fn settled(connection: &mut PgConnection, at_rest: Option<usize>) -> Result<(), sqlx::Error> {
    connection.ping().await?;
    let Some(at_rest) = at_rest else { return Ok(()) };
    while Manager::get_transaction_depth(connection) > at_rest {
        Manager::rollback(connection).await?;
    }
    // sqlx may not know of one whose beginning was given up.
    in_step("ROLLBACK", connection).await
}
