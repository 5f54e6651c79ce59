//! Opens the connections to a database.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use self::{
    lifecycle::{Hooks, PgLifecycle},
    pools::Pools,
};
use crate::{
    error::connect_error,
    server::{
        Server, StatementMode, detect, io_thread::IO_THREAD, open, probe::PgProbe,
        timeouts::ServerLimits, with_settings,
    },
    sql::statement::{BY_ID, BY_INDEX},
};
use idempotent_core::StoreError;
use idempotent_sql::{ConnectionLifecycle, ConnectionPool, Lifetime, server::health::ServerHealth};

pub(crate) mod lifecycle;
pub(crate) mod open_transaction;
pub(crate) mod pools;
pub(crate) mod url;

/// The connections for single steps.
const STEP_CONNECTIONS: usize = 8;
/// The connections for batches: one batch of claims and one of completions at a time.
const BATCH_CONNECTIONS: usize = 2;
/// More connections for batches, which are opened while others are late.
const SPARE_CONNECTIONS: usize = 2;
/// The connections for renewals: one, and more while a renewal is late.
const RENEWAL_CONNECTIONS: usize = 3;
const LIFETIME: Lifetime =
    Lifetime { idle: Duration::from_secs(10 * 60), all: Duration::from_secs(30 * 60) };
/// A setting for the sessions of [`Pools::transactions`]. The store begins each transaction of a
/// handler as one that may write; if the handler ends it by SQL, its further statements fail.
const TRANSACTIONS_ONLY: [(&str, &str); 1] = [("default_transaction_read_only", "on")];

/// Opens the store's own connections; handlers can have this number of transactions.
pub(crate) async fn connect(
    options: PgConnectOptions,
    max_transactions: NonZeroU16,
) -> Result<Pools, StoreError> {
    let mut one = open(&options).await.map_err(connect_error)?;
    let server = detect(&mut one, &options).await?;
    // If this fails, the server detects the closed connection by itself.
    let _ = one.close().await;
    let for_handlers = if server.mode == StatementMode::Plain {
        options.clone().statement_cache_capacity(0)
    } else {
        options.clone()
    };
    let (health, own) = owner(server, &options, None);
    Ok(Pools {
        steps: own(STEP_CONNECTIONS, &options, &ServerLimits::STEP.settings())?,
        batches: own(BATCH_CONNECTIONS + SPARE_CONNECTIONS, &options, &batches())?,
        renewals: own(RENEWAL_CONNECTIONS, &options, &renewals())?,
        transactions: own(max_transactions.get().into(), &for_handlers, &TRANSACTIONS_ONLY)?,
        server,
        health,
    })
}

/// Shares a pool with the application.
pub(crate) async fn share(pool: PgPool) -> Result<Pools, StoreError> {
    let options = pool.connect_options().as_ref().clone();
    // Connects once outside the pool, which would retry and then hide the cause of a failure.
    let _ = open(&options).await.map_err(connect_error)?.close().await;
    let mut one = pool.acquire().await.map_err(connect_error)?;
    let server = detect(&mut one, &options).await?;
    drop(one);
    let (health, own) = owner(server, &options, Some(pool.options().clone()));
    let lifecycle = PgLifecycle { health: health.clone(), hooks: None };
    let shared = ConnectionPool::shared(pool, Some(Arc::new(lifecycle)));
    let renewals = own(RENEWAL_CONNECTIONS, &options, &renewals())?;
    let batches = own(BATCH_CONNECTIONS + SPARE_CONNECTIONS, &options, &batches())?;
    // Plain statements must not be logged, and logging is a property of the pool's connections.
    let steps = if server.mode == StatementMode::Plain {
        own(shared.max_size(), &options, &ServerLimits::STEP.settings())?
    } else {
        shared.clone()
    };
    Ok(Pools { steps, batches, renewals, transactions: shared, server, health })
}

/// Opens a pool of the store's own connections, with these settings if each connection has its own
/// session.
type OpenPool = Box<
    dyn Fn(
            usize,
            &PgConnectOptions,
            &[(&str, &str)],
        ) -> Result<ConnectionPool<PgConnection>, StoreError>
        + Send,
>;

fn owner(
    server: Server,
    options: &PgConnectOptions,
    hooks: Option<PgPoolOptions>,
) -> (Arc<ServerHealth>, OpenPool) {
    let options = options.clone().disable_statement_logging();
    let probe = PgProbe { options, pooled: !server.own_sessions };
    let health = ServerHealth::new(Box::new(probe), &IO_THREAD);
    let healthy = health.clone();
    let own = move |max_size, options: &PgConnectOptions, settings: &[(&str, &str)]| {
        let options = options.clone().disable_statement_logging();
        let (options, settings) = match server.own_sessions {
            true => (with_settings(options, server, settings), settings),
            false => (options, &[][..]),
        };
        let hooks = hooks.clone().map(|hooks| Hooks::new(hooks, settings));
        let lifecycle: Arc<dyn ConnectionLifecycle<PgConnection>> =
            Arc::new(PgLifecycle { health: healthy.clone(), hooks });
        ConnectionPool::with_lifecycle(max_size, options, LIFETIME, Some(lifecycle))
            .map_err(connect_error)
    };
    (health, Box::new(own))
}

fn batches() -> Vec<(&'static str, &'static str)> {
    ServerLimits::BATCH.settings().into_iter().chain(BY_INDEX).chain([BY_ID]).collect()
}

fn renewals() -> Vec<(&'static str, &'static str)> {
    ServerLimits::RENEWAL.settings().into_iter().chain(BY_INDEX).chain([BY_ID]).collect()
}
