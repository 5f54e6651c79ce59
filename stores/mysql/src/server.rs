//! What the store finds out about a server, and the settings under which records could be lost.

use sqlx::{
    Connection as _, MySqlConnection, Row as _,
    mysql::{MySqlConnectOptions, MySqlRow},
};
use tokio::time::timeout;

use self::timeouts::{RESPONSE_TIMEOUT, SHORT_STATEMENT_SECONDS, STATEMENT_SECONDS};
use crate::error::{NAME, connect_error, store_error};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, UnsafeSetting, server::NoResponse};

pub(crate) mod io_thread;
pub(crate) mod probe;
pub(crate) mod timeouts;

/// The statements use `SKIP LOCKED`.
const MIN_MARIADB: (u32, u32) = (10, 6);
const MIN_MYSQL: (u32, u32) = (8, 0);
/// How often the sessions of two connections are compared.
const SESSION_CHECKS: usize = 8;
/// The smallest accepted `max_allowed_packet`: the largest recording by default, and as much again.
const MIN_PACKET: i64 = 4 << 20;

/// Which of the two servers it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    MariaDb,
    MySql,
}

/// The settings of every session of the store: recordings are stored whole or not at all, and
/// times do not depend on the server's zone.
const MODE: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

impl Flavor {
    /// The settings of a session that only the store uses.
    pub(crate) fn session_settings(self, limits: SessionLimits) -> String {
        let SessionLimits { statement, lock } = limits;
        let common = format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
             SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = '{MODE}', \
             sql_safe_updates = 0, lock_wait_timeout = 1"
        );
        match self {
            Self::MariaDb => format!(
                "{common}, innodb_lock_wait_timeout = {lock}, max_statement_time = {statement}; "
            ),
            Self::MySql => format!("{common}, innodb_lock_wait_timeout = 1; "),
        }
    }

    /// A statement in a session that a handler uses, with the settings of the store's own. It waits
    /// for a lock for so many seconds; on MySQL as long as the session says.
    pub(crate) fn with_own_settings(self, statement: &str, lock: u32) -> String {
        match self {
            Self::MariaDb => format!(
                "SET STATEMENT time_zone = '+00:00', sql_mode = '{MODE}', sql_safe_updates = 0, \
                 innodb_lock_wait_timeout = {lock}, max_statement_time = {STATEMENT_SECONDS} \
                 FOR {statement}"
            ),
            Self::MySql => {
                let (keyword, rest) = statement.split_once(' ').unwrap_or((statement, ""));
                format!(
                    "{keyword} /*+ SET_VAR(time_zone = '+00:00') SET_VAR(sql_mode = '{MODE}') \
                     SET_VAR(sql_safe_updates = 0) */ {rest}"
                )
            }
        }
    }
}

/// How long a statement may take on a MariaDB server, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct SessionLimits {
    /// In all.
    statement: u32,
    /// Until a lock is free. With 0, a locked record is not waited for, but asked for again.
    lock: u32,
}

impl SessionLimits {
    pub(crate) const STEP: Self = Self { statement: STATEMENT_SECONDS, lock: 0 };
    pub(crate) const BATCH: Self = Self { statement: SHORT_STATEMENT_SECONDS, lock: 0 };
    /// For statements with `SKIP LOCKED`. If a lock may not be waited for at all, the server rolls
    /// back the transaction of one that has skipped a record, and reports that by its `COMMIT`.
    pub(crate) const SKIPPING: Self = Self { statement: SHORT_STATEMENT_SECONDS, lock: 1 };
}

/// What the store has found out about the server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) flavor: Flavor,
    /// The database of the connections.
    pub(crate) database: String,
}

/// Refuses a server that could lose what it acknowledged.
pub(crate) async fn check(
    connection: &mut MySqlConnection,
    operation: &'static str,
) -> Result<Server, StoreError> {
    let to_store_error = |error| store_error(operation, &TableName::default(), error);
    let row = sqlx::raw_sql(include_str!("sql/server.sql")).fetch_one(connection).await;
    let row = row.map_err(to_store_error)?;
    let text = |column| row.try_get::<String, _>(column).map_err(to_store_error);
    let version = text("version")?;
    let (flavor, required, is_supported) = supported(&version);
    let packet: i64 = row.try_get("packet").map_err(to_store_error)?;
    let is_on = |column| text(column).map(|value| !["0", "OFF"].contains(&value.as_str()));
    let unsafe_setting = if !is_supported {
        Some(("version()", version, required))
    } else if is_on("read_only")? {
        Some(("read_only", "ON".into(), "OFF: connect to the primary, not to a replica"))
    } else if is_on("innodb_read_only")? {
        Some(("innodb_read_only", "ON".into(), "OFF"))
    } else if !["1", "3"].contains(&text("flush")?.as_str()) {
        Some(("innodb_flush_log_at_trx_commit", text("flush")?, "1"))
    } else if packet < MIN_PACKET {
        Some(("max_allowed_packet", packet.to_string(), "4194304 or more"))
    } else {
        None
    };
    if let Some((setting, actual, required)) = unsafe_setting {
        let setting = UnsafeSetting { database: "MySQL", setting, actual, required };
        return Err(StoreError::permanent(NAME, operation, setting));
    }
    Ok(Server { flavor, database: database(&row, operation)? })
}

/// Opens a connection.
pub(crate) async fn open(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    let opened = timeout(RESPONSE_TIMEOUT, MySqlConnection::connect_with(options)).await;
    opened.unwrap_or_else(|_| Err(NoResponse::TimedOut.into()))
}

/// Which server has this version, which versions are supported, and whether this one is.
fn supported(version: &str) -> (Flavor, &'static str, bool) {
    let number = |part: Option<&str>| {
        let part = part.unwrap_or_default();
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let is_mariadb = version.contains("MariaDB");
    // MariaDB puts `5.5.5-` before its version for replicas of MySQL.
    let mut parts = version.strip_prefix("5.5.5-").unwrap_or(version).split('.');
    let version = (number(parts.next()), number(parts.next()));
    if is_mariadb {
        (Flavor::MariaDb, "MariaDB 10.6 or later", version >= MIN_MARIADB)
    } else {
        (Flavor::MySql, "MySQL 8.0.1 or later", version >= MIN_MYSQL)
    }
}

fn database(row: &MySqlRow, operation: &'static str) -> Result<String, StoreError> {
    let to_store_error = |error| store_error(operation, &TableName::default(), error);
    let database: Option<String> = row.try_get("database").map_err(to_store_error)?;
    let refused = |problem| Err(StoreError::permanent(NAME, operation, problem));
    match database {
        None => refused(UnusableDatabase::None),
        Some(name) if name.contains(['`', '\'', '"', '\\', '{', '}', '?']) => {
            refused(UnusableDatabase::Quoted)
        }
        Some(name) => Ok(name),
    }
}

/// The connections have no database that statements can name.
#[derive(Debug, thiserror::Error)]
enum UnusableDatabase {
    #[error("the URL names no database; write `mysql://USER@HOST/DATABASE`")]
    None,
    #[error("the name of the database contains a quote, a backslash, a brace or a question mark")]
    Quoted,
}

/// Refuses a pooler that hands the session of one connection to another: a session of the store
/// keeps its settings, and that of a handler its transaction.
pub(crate) async fn verify_own_sessions(
    one: &mut MySqlConnection,
    other: &mut MySqlConnection,
) -> Result<(), StoreError> {
    let first = pair(one, other).await.map_err(connect_error)?;
    for _ in 1..SESSION_CHECKS {
        if first.0 == first.1 || pair(one, other).await.map_err(connect_error)? != first {
            return Err(StoreError::permanent(NAME, "connect", SharedSessions));
        }
    }
    Ok(())
}

async fn pair(
    one: &mut MySqlConnection,
    other: &mut MySqlConnection,
) -> Result<(i64, i64), sqlx::Error> {
    Ok((session(one).await?, session(other).await?))
}

async fn session(connection: &mut MySqlConnection) -> Result<i64, sqlx::Error> {
    let id = sqlx::raw_sql("SELECT CAST(CONNECTION_ID() AS SIGNED)");
    id.fetch_one(connection).await?.try_get(0)
}

/// A pooler shares sessions between connections.
#[derive(Debug, thiserror::Error)]
#[error(
    "a pooler between the store and the server shares sessions between connections; connect to \
     the server itself, or let the pooler give each connection its own session (ProxySQL: \
     `multiplexing` off for the user's rules)"
)]
struct SharedSessions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for (version, flavor, is_supported) in [
            ("10.11.14-MariaDB-0+deb12u2", Flavor::MariaDb, true),
            ("5.5.5-10.6.1-MariaDB", Flavor::MariaDb, true),
            ("10.5.9-MariaDB", Flavor::MariaDb, false),
            ("8.0.36", Flavor::MySql, true),
            ("8.4.0-cloud", Flavor::MySql, true),
            ("5.7.44-log", Flavor::MySql, false),
        ] {
            let (found, _, supported) = supported(version);
            assert_eq!((found, supported), (flavor, is_supported), "{version}");
        }
    }

    #[test]
    fn the_hint_of_mysql_follows_the_first_keyword() {
        let text = Flavor::MySql.with_own_settings("UPDATE t SET a = 1", 0);
        assert!(text.starts_with("UPDATE /*+ SET_VAR(") && text.ends_with(" */ t SET a = 1"));
    }
}
