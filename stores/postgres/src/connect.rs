//! Opens the connections to a database, and finds out how its statements have to be sent.

use std::{num::NonZeroU16, str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions, Connection as _, PgConnection, PgPool, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use crate::{
    connect::lifecycle::{Hooks, PgLifecycle},
    error::NAME,
    error::{NoResponse, PgErrorKind, error_kind, is_reply, store_error},
    server::health::ServerHealth,
    server::timeouts::{LOCK_TIMEOUT, RESPONSE_TIMEOUT, ServerLimits},
    server::{Isolation, Server, StatementMode, check},
    sql::statement::{BY_ID, BY_INDEX},
};
use idempotent_core::{StoreError, store::url};
use idempotent_sql::{ConnectionLifecycle, ConnectionPool, Lifetime, TableName};

pub(crate) mod lifecycle;
pub(crate) mod open_transaction;

const CONNECTIONS: usize = 10;
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
/// The server ends the session and rolls its transaction back when the client's machine has not
/// responded for about a minute.
const KEEPALIVES: [(&str, &str); 3] = [
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
];
/// How often the sessions of two connections are compared.
const SESSION_CHECKS: usize = 8;

/// The connection pools of a store.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) steps: ConnectionPool<PgConnection>,
    pub(crate) batches: ConnectionPool<PgConnection>,
    /// Connections for renewals only, however busy the others are.
    pub(crate) renewals: ConnectionPool<PgConnection>,
    /// Connections that handlers keep while they run.
    pub(crate) transactions: ConnectionPool<PgConnection>,
    pub(crate) server: Server,
    pub(crate) health: Arc<ServerHealth>,
}

impl Pools {
    /// After an error that presumably concerns all connections, closes those that are idle, so that
    /// the next call opens one: to the primary, once the name of the server leads to it.
    pub(crate) fn discard_if_stale(&self, error: &sqlx::Error) {
        if error_kind(error) == PgErrorKind::StaleConnections {
            self.health.invalidate_idle();
            self.transactions.close_idle_shared();
        }
    }

    /// The connections of each kind. An application's pool has one kind for two uses.
    pub(crate) fn kinds(
        &self,
    ) -> impl Iterator<Item = (&'static str, &ConnectionPool<PgConnection>)> {
        let transactions = (self.steps.is_own() || self.transactions.is_own())
            .then_some(("transactions", &self.transactions));
        let always =
            [("steps", &self.steps), ("renewals", &self.renewals), ("batches", &self.batches)];
        always.into_iter().chain(transactions)
    }
}

/// The URL's parameter for the number of handlers that can have a transaction at the same time.
const TRANSACTIONS: &str = "max_transactions=";

/// Removes the parameter `max_transactions` from a URL, since sqlx does not know it, and returns
/// its value.
fn transactions(url: &str) -> Result<(String, Option<NonZeroU16>), StoreError> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (found, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|pair| pair.starts_with(TRANSACTIONS));
    let values: Vec<_> = found.iter().filter_map(|pair| pair.strip_prefix(TRANSACTIONS)).collect();
    let others = others.join("&");
    let rest = if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") };
    let invalid = || StoreError::permanent(NAME, "connect", InvalidTransactions);
    match values.as_slice() {
        [] => Ok((rest, None)),
        [max_size] => Ok((rest, Some(max_size.parse().map_err(|_| invalid())?))),
        _ => Err(invalid()),
    }
}

/// The URL's parameter `max_transactions` has an invalid value, or occurs more than once.
#[derive(Debug, thiserror::Error)]
#[error("the URL's parameter `max_transactions` must be given once, with a number from 1 to 65535")]
struct InvalidTransactions;

/// The parameters of a URL: those of sqlx, which would ignore any other, and the store's own.
const PARAMETERS: [&str; 21] = [
    "max_transactions",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "options[",
    "options%5B",
];

/// Parses a URL: the connections, and `max_transactions`.
pub(crate) fn parse(url: &str) -> Result<(PgConnectOptions, Option<NonZeroU16>), StoreError> {
    url::verify_server(NAME, url, &PARAMETERS)?;
    let (url, transactions) = transactions(url)?;
    // PgBouncer refuses a startup parameter that it does not track, such as the
    // `extra_float_digits` that sqlx sets.
    let options = PgConnectOptions::from_str(&url).map_err(invalid_url)?.extra_float_digits(None);
    let options = if options.get_application_name().is_none() {
        options.application_name("idempotency")
    } else {
        options
    };
    Ok((options, transactions))
}

/// An error of sqlx that wraps another one of sqlx quotes the value of `sslmode`.
fn invalid_url(error: sqlx::Error) -> StoreError {
    if let sqlx::Error::Configuration(source) = &error
        && source.is::<sqlx::Error>()
    {
        return StoreError::permanent(NAME, "connect", InvalidSslMode);
    }
    to_store_error(error)
}

/// The URL's parameter `sslmode` has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error(
    "the URL's parameter `sslmode` must be `disable`, `allow`, `prefer`, `require`, `verify-ca` or \
     `verify-full`"
)]
struct InvalidSslMode;

/// Opens the store's own connections.
pub(crate) async fn connect(options: PgConnectOptions) -> Result<Pools, StoreError> {
    let mut one = open(&options).await.map_err(to_store_error)?;
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
        steps: own(CONNECTIONS - BATCH_CONNECTIONS, &options, &ServerLimits::STEP.settings())?,
        batches: own(BATCH_CONNECTIONS + SPARE_CONNECTIONS, &options, &batches())?,
        renewals: own(RENEWAL_CONNECTIONS, &options, &renewals())?,
        transactions: own(CONNECTIONS, &for_handlers, &TRANSACTIONS_ONLY)?,
        server,
        health,
    })
}

/// Shares a pool with the application.
pub(crate) async fn share(pool: PgPool) -> Result<Pools, StoreError> {
    let options = pool.connect_options().as_ref().clone();
    // Connects once outside the pool, which would retry and then hide the cause of a failure.
    let _ = open(&options).await.map_err(to_store_error)?.close().await;
    let mut one = pool.acquire().await.map_err(to_store_error)?;
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

/// Opens a pool of the store's own connections, with these settings if each connection has
/// its own session.
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
    let health = ServerHealth::new(options, !server.own_sessions);
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
            .map_err(to_store_error)
    };
    (health, Box::new(own))
}

fn batches() -> Vec<(&'static str, &'static str)> {
    ServerLimits::BATCH.settings().into_iter().chain(BY_INDEX).chain([BY_ID]).collect()
}

fn renewals() -> Vec<(&'static str, &'static str)> {
    ServerLimits::RENEWAL.settings().into_iter().chain(BY_INDEX).chain([BY_ID]).collect()
}

async fn open(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let opened = timeout(RESPONSE_TIMEOUT, PgConnection::connect_with(options)).await;
    opened.unwrap_or_else(|_| Err(NoResponse::TimedOut.into()))
}

/// Sets parameters when the session starts, so that `RESET ALL` in a handler does not change them.
fn with_settings(
    options: PgConnectOptions,
    server: Server,
    settings: &[(&str, &str)],
) -> PgConnectOptions {
    let checks = server.checks_clients.then_some(("client_connection_check_interval", "1s"));
    options.options(KEEPALIVES).options(checks).options(settings.iter().copied())
}

/// Checks the server's settings, and finds out how statements have to be sent.
async fn detect(one: &mut PgConnection, options: &PgConnectOptions) -> Result<Server, StoreError> {
    let settings = check(one, "connect").await?;
    let checks_clients = can_check_clients(one).await.map_err(to_store_error)?;
    let cache = statement_cache(options);
    let unknown =
        Server { mode: StatementMode::Prepared, own_sessions: false, checks_clients, settings };
    let own_sessions =
        cache.as_deref() != Some("0") && has_own_sessions(one, options, unknown).await?;
    let mode = match cache.as_deref() {
        Some("0") => StatementMode::Plain,
        // sqlx's default, which is not a choice of the application.
        Some("100") | None if settings.isolation != Isolation::READ_COMMITTED || !own_sessions => {
            StatementMode::Plain
        }
        Some(_) | None => StatementMode::Prepared,
    };
    Ok(Server { mode, own_sessions: own_sessions && mode == StatementMode::Prepared, ..unknown })
}

/// Whether the server supports `client_connection_check_interval`: Postgres 14 and later, on some
/// operating systems.
async fn can_check_clients(one: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let set = "BEGIN; SET LOCAL client_connection_check_interval = 1000";
    let can = sqlx::raw_sql(set).execute(&mut *one).await.is_ok();
    sqlx::raw_sql("ROLLBACK").execute(one).await?;
    Ok(can)
}

/// Whether each connection has its own session with the requested settings. A pooler may share
/// sessions between clients, or refuse or ignore the settings.
async fn has_own_sessions(
    one: &mut PgConnection,
    options: &PgConnectOptions,
    server: Server,
) -> Result<bool, StoreError> {
    let mut other =
        match open(&with_settings(options.clone(), server, &ServerLimits::STEP.settings())).await {
            Ok(other) => other,
            Err(error) if is_reply(&error) => return Ok(false),
            Err(error) => return Err(to_store_error(error)),
        };
    let set = "SELECT current_setting('lock_timeout')";
    let set: String = sqlx::raw_sql(set)
        .fetch_one(&mut other)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(to_store_error)?;
    let own =
        set == LOCK_TIMEOUT && !shares_sessions(one, &mut other).await.map_err(to_store_error)?;
    let _ = other.close().await;
    Ok(own)
}

fn statement_cache(options: &PgConnectOptions) -> Option<String> {
    let url = options.to_url_lossy();
    url.query_pairs()
        .find(|(key, _)| key == "statement-cache-capacity")
        .map(|(_, value)| value.into_owned())
}

/// Whether two open connections do not permanently have one server session each, as behind a pooler
/// in transaction mode.
async fn shares_sessions(
    one: &mut PgConnection,
    other: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    let first = (session(one).await?, session(other).await?);
    for _ in 1..SESSION_CHECKS {
        if first.0 == first.1 || (session(one).await?, session(other).await?) != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}

fn to_store_error(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
}
