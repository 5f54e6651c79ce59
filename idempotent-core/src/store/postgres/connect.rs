//! Opening a database, and refusing one that would forget.

use std::{str::FromStr, time::Duration};

use sqlx::{ConnectOptions, Connection as _, PgConnection, PgPool, Row, postgres::PgConnectOptions};

use super::{NAME, error::store_error};
use crate::{
    error::StoreError,
    store::sql::{Connections, Lifetime, TableName, UnsafeSetting},
};

const CONNECTIONS: usize = 10;
const LIFETIME: Lifetime = Lifetime { idle: Duration::from_secs(10 * 60), all: Duration::from_secs(30 * 60) };
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
    pub(super) way: Way,
    /// Each connection has one of the server's sessions to itself, so that what was prepared by SQL stays with it: no pooler follows that.
    pub(super) own_sessions: bool,
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
    let steps = own(CONNECTIONS, options.clone())?;
    let (way, own_sessions) = look(&steps, &options).await?;
    let for_handlers = if way == Way::Plain { options.clone().statement_cache_capacity(0) } else { options.clone() };
    let transactions = own(CONNECTIONS, for_handlers)?;
    Ok(Pools { steps, renewals: own(1, options)?, transactions, way, own_sessions })
}

/// Shares a pool with the application.
pub(super) async fn share(pool: PgPool) -> Result<Pools, StoreError> {
    let options = pool.connect_options().as_ref().clone();
    let shared = Connections::Shared(pool);
    let (way, own_sessions) = look(&shared, &options).await?;
    let renewals = own(1, options.clone())?;
    // A plain statement contains what must not get into a log, and it is the connection that writes the log.
    let steps = if way == Way::Plain { own(shared.most(), options)? } else { shared.clone() };
    Ok(Pools { steps, renewals, transactions: shared, way, own_sessions })
}

fn own(most: usize, options: PgConnectOptions) -> Result<Connections<PgConnection>, StoreError> {
    Connections::own(most, options.disable_statement_logging(), LIFETIME).map_err(failed)
}

/// Checks the server, and finds out how to talk to it, and whether each connection has a session to itself.
async fn look(connections: &Connections<PgConnection>, options: &PgConnectOptions) -> Result<(Way, bool), StoreError> {
    // The pool would try for a while, and then not say why it failed.
    let mut other = PgConnection::connect_with(options).await.map_err(failed)?;
    let mut one = connections.get().await.map_err(failed)?;
    let reads_committed = check(&mut one).await?;
    let cache = statement_cache(options);
    let own_sessions = cache.as_deref() != Some("0") && !shares_sessions(&mut one, &mut other).await.map_err(failed)?;
    let way = match cache.as_deref() {
        Some("0") => Way::Plain,
        // What sqlx chooses when nobody else does.
        Some("100") | None if !reads_committed || !own_sessions => Way::Plain,
        Some(_) | None => Way::Prepared,
    };
    one.give_back();
    // The server has noticed by itself if this fails.
    let _ = other.close().await;
    Ok((way, own_sessions && way == Way::Prepared))
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

/// Refuses a server that could forget what it acknowledged; says whether transactions are READ COMMITTED by default.
async fn check(connection: &mut PgConnection) -> Result<bool, StoreError> {
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
    unsafe_setting.map_or(Ok(isolation == "read committed"), |(setting, is, must)| {
        Err(StoreError::permanent(NAME, "connect", UnsafeSetting { database: "Postgres", setting, is, must }))
    })
}

fn failed(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
}
