//! Opens the connections to a database.

use std::{num::NonZeroU16, sync::Arc};

use sqlx::{
    ConnectOptions as _, Connection as _, MySqlConnection, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use self::lifecycle::{Kind, MySqlLifecycle};
use crate::{
    error::connect_error,
    server::{self, Server, SessionLimits, io_thread::IO_THREAD, probe::MySqlProbe},
};
use idempotent_core::StoreError;
use idempotent_sql::{ConnectionPool, Lifetime, server::health::ServerHealth};

pub(crate) mod lifecycle;
pub(crate) mod session;
pub(crate) mod url;

/// The connections for single steps.
const STEP_CONNECTIONS: usize = 8;
/// The connections for batches: one batch of claims and one of completions at a time, and others
/// while these are late.
const BATCH_CONNECTIONS: usize = 4;
/// The connections for renewals and for purges: one each, and more while a renewal is late.
const RENEWAL_CONNECTIONS: usize = 4;
/// How many statements each session keeps prepared: those for one to 64 items among them.
const PREPARED: usize = 256;
const LIFETIME: Lifetime = Lifetime {
    idle: std::time::Duration::from_secs(60),
    all: std::time::Duration::from_secs(30 * 60),
};

/// The connection pools of a store.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) steps: ConnectionPool<MySqlConnection>,
    pub(crate) batches: ConnectionPool<MySqlConnection>,
    /// Connections for renewals and purges only, however busy the others are.
    pub(crate) renewals: ConnectionPool<MySqlConnection>,
    /// Connections that handlers keep while they run.
    pub(crate) transactions: ConnectionPool<MySqlConnection>,
    pub(crate) server: Server,
    pub(crate) health: Arc<ServerHealth>,
}

impl Pools {
    /// The connections of each kind.
    pub(crate) fn kinds(&self) -> [(&'static str, &ConnectionPool<MySqlConnection>); 4] {
        [
            ("steps", &self.steps),
            ("renewals", &self.renewals),
            ("batches", &self.batches),
            ("transactions", &self.transactions),
        ]
    }
}

/// Opens the store's connections; handlers can have this number of transactions. With the options
/// of an application's pool, its `after_connect` is called for each of them.
pub(crate) async fn connect(
    options: MySqlConnectOptions,
    max_transactions: NonZeroU16,
    hooks: Option<MySqlPoolOptions>,
) -> Result<Pools, StoreError> {
    let options = options.disable_statement_logging();
    let mut one = server::open(&options).await.map_err(connect_error)?;
    let server = server::check(&mut one, "connect").await?;
    let mut other = server::open(&options).await.map_err(connect_error)?;
    server::verify_own_sessions(&mut one, &mut other).await?;
    for connection in [one, other] {
        // If this fails, the server detects the closed connection by itself.
        let _ = connection.close().await;
    }
    let probe = MySqlProbe { options: options.clone() };
    let health = ServerHealth::new(Box::new(probe), &IO_THREAD);
    let pool = |max_size, kind: Kind| {
        let own = match kind {
            Kind::Own(_) => options.clone().statement_cache_capacity(PREPARED),
            Kind::Handlers => options.clone(),
        };
        let lifecycle = MySqlLifecycle::new(&health, &options, kind, hooks.clone());
        ConnectionPool::with_lifecycle(max_size, own, LIFETIME, Some(Arc::new(lifecycle)))
            .map_err(connect_error)
    };
    let own = |limits| Kind::Own(server.flavor.session_settings(limits).into());
    Ok(Pools {
        steps: pool(STEP_CONNECTIONS, own(SessionLimits::STEP))?,
        batches: pool(BATCH_CONNECTIONS, own(SessionLimits::BATCH))?,
        renewals: pool(RENEWAL_CONNECTIONS, own(SessionLimits::SKIPPING))?,
        transactions: pool(max_transactions.get().into(), Kind::Handlers)?,
        server,
        health,
    })
}

/// Opens connections as an application's pool does.
pub(crate) async fn share(
    pool: MySqlPool,
    max_transactions: NonZeroU16,
) -> Result<Pools, StoreError> {
    let options = pool.connect_options().as_ref().clone();
    connect(options, max_transactions, Some(pool.options().clone())).await
}
