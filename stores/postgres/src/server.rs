//! What the store finds out about a server, and the settings under which records could be lost.

use sqlx::{PgConnection, Row};

use crate::{error::NAME, error::store_error};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, UnsafeSetting};

pub(crate) mod health;
pub(crate) mod io_thread;
pub(crate) mod timeouts;

/// The statements use `AS MATERIALIZED`.
const MIN_VERSION: i64 = 12_00_00;

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
