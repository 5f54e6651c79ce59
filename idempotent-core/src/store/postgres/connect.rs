//! Opening a database, and refusing one that would forget.

use std::{error::Error, fmt, num::NonZeroU16, str::FromStr, sync::Arc, time::Duration};

use sqlx::{ConnectOptions, Connection as _, PgConnection, PgPool, Row, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::{
    NAME,
    error::{Unanswered, is_reply, store_error},
    health::Health,
    run::LIMIT,
    sessions::Sessions,
};
use crate::{
    error::StoreError,
    store::{
        namespace::take,
        sql::{Care, Connections, Lifetime, TableName, UnsafeSetting},
    },
};

const CONNECTIONS: usize = 10;
const LIFETIME: Lifetime = Lifetime { idle: Duration::from_secs(10 * 60), all: Duration::from_secs(30 * 60) };
/// How long a statement of the store's own waits for another transaction: a call that needs longer waits again, or says that the key is
/// in flight, and meanwhile keeps nobody from a connection. In the form in which the server shows it.
pub(super) const LOCK_TIMEOUT: &str = "100ms";
/// How long a statement of the store's own may take in the server: a little less than its caller waits.
pub(super) const STATEMENT_TIMEOUT: &str = "9s";
/// Those of the sessions of [`Pools::steps`].
const STEPS: [(&str, &str); 2] = [("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", STATEMENT_TIMEOUT)];
/// Those of the session of [`Pools::renewals`], which has to be free for the next renewal.
const RENEWALS: [(&str, &str); 2] = [("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", "3s")];
/// The server ends the session, and rolls its transaction back, when the client's machine has been silent for about a minute.
const KEEPALIVES: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "30"), ("tcp_keepalives_interval", "10"), ("tcp_keepalives_count", "3")];
/// The statements use `AS MATERIALIZED`.
const OLDEST: i64 = 12_00_00;
/// How often two connections are asked which of the server's sessions they have.
const LOOKS: usize = 8;

/// The connections of a store.
#[derive(Clone)]
pub(super) struct Pools {
    pub(super) steps: Connections<PgConnection>,
    /// One connection that nothing else uses, however busy the others are.
    pub(super) renewals: Connections<PgConnection>,
    /// Connections that handlers keep while they run.
    pub(super) transactions: Connections<PgConnection>,
    pub(super) server: Server,
    pub(super) health: Arc<Health>,
}

/// The URL's parameter that says how many handlers may have a transaction at once.
const TRANSACTIONS: &str = "max_transactions=";

/// Takes that parameter out of a URL, since the driver does not know it.
pub(super) fn transactions(url: &str) -> Result<(String, Option<NonZeroU16>), StoreError> {
    let (rest, values) = take(TRANSACTIONS, url);
    let invalid = || StoreError::permanent(NAME, "connect", InvalidTransactions);
    match values.as_slice() {
        [] => Ok((rest, None)),
        [most] => Ok((rest, Some(most.parse().map_err(|_| invalid())?))),
        _ => Err(invalid()),
    }
}

#[derive(Debug)]
struct InvalidTransactions;

impl fmt::Display for InvalidTransactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the URL's parameter `max_transactions` must be given once, with a number from 1 to 65535")
    }
}

impl Error for InvalidTransactions {}

/// How to talk to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) way: Way,
    /// Each connection has one of the server's sessions to itself, with the settings that it was opened with.
    pub(super) own_sessions: bool,
    /// Whether the server can look whether the client of a running statement is still there.
    pub(super) checks_clients: bool,
    /// What its settings say.
    pub(super) settings: Settings,
}

/// What the settings of a server, a database and a role say of transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// What transactions have that name no other.
    pub(super) isolation: Isolation,
    /// Whether there is a `transaction_timeout` (Postgres 17 and later).
    pub(super) bounds_transactions: bool,
}

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Isolation(pub(super) &'static str);

impl Isolation {
    const READ_COMMITTED: Self = Self("READ COMMITTED");

    fn named(name: &str) -> Self {
        let others = [("serializable", "SERIALIZABLE"), ("repeatable read", "REPEATABLE READ")];
        // What the server calls read uncommitted is the same.
        others.iter().find(|other| other.0 == name).map_or(Self::READ_COMMITTED, |other| Self(other.1))
    }
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Prepared once a connection: about three times as many replays a second. But a pooler that hands a session of the server
    /// from client to client hands over what one client has prepared, under a name that another one uses too.
    Prepared,
    /// Whole, in one message each, which can say first that its transaction is to be READ COMMITTED.
    Plain,
}

/// Opens connections of the store's own.
pub(super) async fn connect(url: &str) -> Result<Pools, StoreError> {
    // PgBouncer refuses a client that asks for a setting it does not follow, as sqlx does for this one.
    let options = PgConnectOptions::from_str(url).map_err(failed)?.extra_float_digits(None);
    let options =
        if options.get_application_name().is_none() { options.application_name("idempotency") } else { options };
    let mut one = open(&options).await.map_err(failed)?;
    let server = look(&mut one, &options).await?;
    // The server has noticed by itself if this fails.
    let _ = one.close().await;
    let for_handlers =
        if server.way == Way::Plain { options.clone().statement_cache_capacity(0) } else { options.clone() };
    let (health, own) = owner(server, &options);
    Ok(Pools {
        steps: own(CONNECTIONS, &options, &STEPS)?,
        renewals: own(1, &options, &RENEWALS)?,
        transactions: own(CONNECTIONS, &for_handlers, &[])?,
        server,
        health,
    })
}

/// Shares a pool with the application.
pub(super) async fn share(pool: PgPool) -> Result<Pools, StoreError> {
    let options = pool.connect_options().as_ref().clone();
    // The pool would try for a while, and then not say why it failed.
    let _ = open(&options).await.map_err(failed)?.close().await;
    let mut one = pool.acquire().await.map_err(failed)?;
    let server = look(&mut one, &options).await?;
    drop(one);
    let (health, own) = owner(server, &options);
    let shared = Connections::shared(pool, Some(Arc::new(Sessions(health.clone()))));
    let renewals = own(1, &options, &RENEWALS)?;
    // A plain statement contains what must not get into a log, and it is the connection that writes the log.
    let steps = if server.way == Way::Plain { own(shared.most(), &options, &STEPS)? } else { shared.clone() };
    Ok(Pools { steps, renewals, transactions: shared, server, health })
}

/// What opens connections of the store's own, in sessions with these settings where each has a session to itself.
type Own =
    Box<dyn Fn(usize, &PgConnectOptions, &[(&str, &str)]) -> Result<Connections<PgConnection>, StoreError> + Send>;

fn owner(server: Server, options: &PgConnectOptions) -> (Arc<Health>, Own) {
    let options = options.clone().disable_statement_logging();
    let health = Health::new(options, !server.own_sessions);
    let care: Arc<dyn Care<PgConnection>> = Arc::new(Sessions(health.clone()));
    let own = move |most, options: &PgConnectOptions, settings: &[(&str, &str)]| {
        let options = options.clone().disable_statement_logging();
        let options = if server.own_sessions { with_settings(options, server, settings) } else { options };
        Connections::own_with(most, options, LIFETIME, Some(care.clone())).map_err(failed)
    };
    (health, Box::new(own))
}

async fn open(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let opened = timeout(LIMIT, PgConnection::connect_with(options)).await;
    opened.unwrap_or_else(|_| Err(Unanswered::TooSlow.into()))
}

/// Asks for settings as the session begins, so that not even a handler that resets everything resets them.
fn with_settings(options: PgConnectOptions, server: Server, settings: &[(&str, &str)]) -> PgConnectOptions {
    let checks = server.checks_clients.then_some(("client_connection_check_interval", "1s"));
    options.options(KEEPALIVES).options(checks).options(settings.iter().copied())
}

/// Checks the server, and finds out how to talk to it.
async fn look(one: &mut PgConnection, options: &PgConnectOptions) -> Result<Server, StoreError> {
    let settings = check(one, "connect").await?;
    let checks_clients = can_check_clients(one).await.map_err(failed)?;
    let cache = statement_cache(options);
    let unknown = Server { way: Way::Prepared, own_sessions: false, checks_clients, settings };
    let own_sessions = cache.as_deref() != Some("0") && has_own_sessions(one, options, unknown).await?;
    let way = match cache.as_deref() {
        Some("0") => Way::Plain,
        // What sqlx chooses when nobody else does.
        Some("100") | None if settings.isolation != Isolation::READ_COMMITTED || !own_sessions => Way::Plain,
        Some(_) | None => Way::Prepared,
    };
    Ok(Server { way, own_sessions: own_sessions && way == Way::Prepared, ..unknown })
}

/// Postgres 14 and later, where the server's system can tell.
async fn can_check_clients(one: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let set = "BEGIN; SET LOCAL client_connection_check_interval = 1000";
    let can = sqlx::raw_sql(set).execute(&mut *one).await.is_ok();
    sqlx::raw_sql("ROLLBACK").execute(one).await?;
    Ok(can)
}

/// Whether each connection has a session of the server to itself, with settings of its own. A pooler deals sessions out by the
/// transaction; or it refuses or ignores the settings.
async fn has_own_sessions(
    one: &mut PgConnection,
    options: &PgConnectOptions,
    server: Server,
) -> Result<bool, StoreError> {
    let mut other = match open(&with_settings(options.clone(), server, &STEPS)).await {
        Ok(other) => other,
        Err(error) if is_reply(&error) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let set = "SELECT current_setting('lock_timeout')";
    let set: String = sqlx::raw_sql(set).fetch_one(&mut other).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    let own = set == LOCK_TIMEOUT && !shares_sessions(one, &mut other).await.map_err(failed)?;
    let _ = other.close().await;
    Ok(own)
}

fn statement_cache(options: &PgConnectOptions) -> Option<String> {
    let url = options.to_url_lossy();
    url.query_pairs().find(|(key, _)| key == "statement-cache-capacity").map(|(_, value)| value.into_owned())
}

/// Whether two connections that are open at once do not have one session of the server each, for good: then a pooler deals them
/// out by the transaction.
async fn shares_sessions(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let first = (session(one).await?, session(other).await?);
    for _ in 1..LOOKS {
        if first.0 == first.1 || (session(one).await?, session(other).await?) != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}

/// Refuses a server that could forget what it acknowledged; returns what transactions have by default.
pub(super) async fn check(connection: &mut PgConnection, operation: &'static str) -> Result<Settings, StoreError> {
    let failed = |error| store_error(operation, &TableName::default(), error);
    let row =
        sqlx::raw_sql(include_str!("../../sql/postgres/check.sql")).fetch_one(connection).await.map_err(failed)?;
    let version: i64 = row.try_get("version").map_err(failed)?;
    let isolation: String = row.try_get("isolation").map_err(failed)?;
    let synchronous_commit: String = row.try_get("synchronous_commit").map_err(failed)?;
    let unsafe_setting = if version < OLDEST {
        Some(("server_version_num", version.to_string(), "120000 or later"))
    } else if row.try_get("standby").map_err(failed)? {
        Some(("pg_is_in_recovery()", "true".into(), "false: connect to the primary, not to a read replica"))
    } else if row.try_get("read_only").map_err(failed)? {
        Some(("default_transaction_read_only", "on".into(), "off"))
    } else if synchronous_commit == "off" {
        Some(("synchronous_commit", synchronous_commit, "on (or local, remote_write, remote_apply)"))
    } else {
        None
    };
    let bounds_transactions = row.try_get("bounds_transactions").map_err(failed)?;
    let settings = Settings { isolation: Isolation::named(&isolation), bounds_transactions };
    unsafe_setting.map_or(Ok(settings), |(setting, is, must)| {
        Err(StoreError::permanent(NAME, operation, UnsafeSetting { database: "Postgres", setting, is, must }))
    })
}

fn failed(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
}
