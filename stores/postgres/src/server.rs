//! What the store finds out about a server, and the settings under which records could be lost.

use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions,
};

pub(crate) use self::opening::open;
use self::timeouts::{LOCK_TIMEOUT, ServerLimits};
use crate::error::{NAME, connect_error, is_reply, store_error};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, UnsafeSetting};

pub(crate) mod io_thread;
mod opening;
pub(crate) mod probe;
pub(crate) mod timeouts;
mod transactions;

/// The statements use `AS MATERIALIZED`.
const MIN_VERSION: i64 = 12_00_00;
/// The server ends the session and rolls its transaction back when the client's machine has not
/// responded for about a minute.
const KEEPALIVES: [(&str, &str); 3] = [
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
];
/// How often the sessions of two connections are compared.
const SESSION_CHECKS: usize = 8;

/// What the store has found out about the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) mode: StatementMode,
    /// Whether each connection has its own session, which keeps the settings with which it was
    /// opened.
    pub(crate) own_sessions: bool,
    /// Whether the server can check that the client of a running statement is still connected.
    pub(crate) checks_clients: bool,
    /// The server's settings for transactions.
    pub(crate) settings: ServerSettings,
}

/// The settings of server, database and role for transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSettings {
    /// The default isolation level.
    pub(crate) isolation: Isolation,
    /// Whether `bytea` has the hexadecimal form in text, the only one that the driver decodes.
    pub(crate) hex_output: bool,
    /// Whether the setting `transaction_timeout` exists (Postgres 17 and later).
    pub(crate) bounds_transactions: bool,
}

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isolation(pub(crate) &'static str);

impl Isolation {
    pub(crate) const READ_COMMITTED: Self = Self("READ COMMITTED");

    fn named(name: &str) -> Self {
        let others = [("serializable", "SERIALIZABLE"), ("repeatable read", "REPEATABLE READ")];
        // Postgres treats READ UNCOMMITTED as READ COMMITTED.
        others
            .iter()
            .find(|other| other.0 == name)
            .map_or(Self::READ_COMMITTED, |other| Self(other.1))
    }
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementMode {
    /// As prepared statements, for about three times as many replays per second. Not possible if a
    /// pooler hands sessions from client to client, together with the statements that another
    /// client has prepared under the same names.
    Prepared,
    /// As plain text in one message, which sets its own isolation level.
    Plain,
}

/// Refuses a server that could lose what it acknowledged; returns its settings for transactions.
pub(crate) async fn check(
    connection: &mut PgConnection,
    operation: &'static str,
) -> Result<ServerSettings, StoreError> {
    let to_store_error = |error| store_error(operation, &TableName::default(), error);
    let row = sqlx::raw_sql(include_str!("sql/check.sql"))
        .fetch_one(connection)
        .await
        .map_err(to_store_error)?;
    let version: i64 = row.try_get("version").map_err(to_store_error)?;
    let isolation: String = row.try_get("isolation").map_err(to_store_error)?;
    let synchronous_commit: String = row.try_get("synchronous_commit").map_err(to_store_error)?;
    let unsafe_setting = if version < MIN_VERSION {
        Some(("server_version_num", version.to_string(), "120000 or later"))
    } else if row.try_get("standby").map_err(to_store_error)? {
        Some((
            "pg_is_in_recovery()",
            "true".into(),
            "false: connect to the primary, not to a read replica",
        ))
    } else if row.try_get("read_only").map_err(to_store_error)? {
        Some(("default_transaction_read_only", "on".into(), "off"))
    } else if synchronous_commit == "off" {
        Some((
            "synchronous_commit",
            synchronous_commit,
            "on (or local, remote_write, remote_apply)",
        ))
    } else {
        None
    };
    let settings = ServerSettings {
        isolation: Isolation::named(&isolation),
        hex_output: row.try_get("hex_output").map_err(to_store_error)?,
        bounds_transactions: row.try_get("bounds_transactions").map_err(to_store_error)?,
    };
    unsafe_setting.map_or(Ok(settings), |(setting, actual, required)| {
        Err(StoreError::permanent(
            NAME,
            operation,
            UnsafeSetting { database: "Postgres", setting, actual, required },
        ))
    })
}

/// Checks the server's settings and its transactions, and finds out how statements have to be sent.
pub(crate) async fn detect(
    one: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<Server, StoreError> {
    let settings = check(one, "connect").await?;
    transactions::verify(one, options).await?;
    let checks_clients = can_check_clients(one).await.map_err(connect_error)?;
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
            Err(error) => return Err(connect_error(error)),
        };
    let set = "SELECT current_setting('lock_timeout')";
    let set: String = sqlx::raw_sql(set)
        .fetch_one(&mut other)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(connect_error)?;
    let own =
        set == LOCK_TIMEOUT && !shares_sessions(one, &mut other).await.map_err(connect_error)?;
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

/// Sets parameters when the session starts, so that `RESET ALL` in a handler does not change them.
pub(crate) fn with_settings(
    options: PgConnectOptions,
    server: Server,
    settings: &[(&str, &str)],
) -> PgConnectOptions {
    let checks = server.checks_clients.then_some(("client_connection_check_interval", "1s"));
    options.options(KEEPALIVES).options(checks).options(settings.iter().copied())
}
