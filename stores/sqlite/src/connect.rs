//! Opening a file, and refusing settings under which records could be lost.

use std::{
    path::{self, Path},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use sqlx::{
    SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use self::{
    connections::{BUSY_TIMEOUT, Connections, first_ready, verify},
    database_file::DatabaseFile,
};
use crate::error::{NAME, cannot_open, is_lost_race, store_error, unsafe_setting};
use idempotent_core::{StoreError, store::url};
use idempotent_sql::{ConnectionPool, Lifetime, PooledConnection, TableName};

pub(crate) mod connections;
pub(crate) mod database_file;
pub(crate) mod hooked;
pub(crate) mod hooks;

const READERS: usize = 4;
/// Earlier versions can corrupt a database whose WAL file is reset while another connection reads.
const MIN_VERSION: [u32; 3] = [3, 51, 3];
/// Switching a new file to WAL mode needs a lock that SQLite does not wait for.
const OPEN_ATTEMPTS: u32 = 100;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Opens the file of a URL: the write connection, and a pool of read connections.
pub(crate) async fn open(url: &str) -> Result<Connections, StoreError> {
    let options = parse(url)?;
    let configured = options.get_filename().to_owned();
    let (writer, readers) = own_pools(options).await?;
    checked(writer, readers, &configured).await
}

/// Uses the pool of an application.
pub(crate) async fn share(pool: SqlitePool) -> Result<Connections, StoreError> {
    let configured = pool.connect_options().get_filename().to_owned();
    let shared = ConnectionPool::shared(pool, None);
    checked(shared.clone(), shared, &configured).await
}

async fn checked(
    writer: ConnectionPool<SqliteConnection>,
    readers: ConnectionPool<SqliteConnection>,
    configured: &Path,
) -> Result<Connections, StoreError> {
    let resolved = check(&writer).await?;
    let file = Arc::new(DatabaseFile::opened(configured, resolved));
    Ok(Connections { writer, readers, file })
}

async fn own_pools(
    options: SqliteConnectOptions,
) -> Result<(ConnectionPool<SqliteConnection>, ConnectionPool<SqliteConnection>), StoreError> {
    let options = options.busy_timeout(BUSY_TIMEOUT);
    let writing =
        options.clone().journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let creator = pool(1, writing.clone())?;
    open_writer(&creator).await.map_err(to_store_error)?;
    // A connection that is opened later creates no file in place of one that was deleted.
    let writer = pool(1, writing.create_if_missing(false))?;
    open_writer(&writer).await.map_err(to_store_error)?;
    let reading = options.create_if_missing(false).pragma("query_only", "ON");
    Ok((writer, pool(READERS, reading)?))
}

/// The parameters of a URL.
const PARAMETERS: [&str; 4] = ["mode", "cache", "immutable", "vfs"];

/// Parses a URL.
pub(crate) fn parse(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    url::verify_file(NAME, url, &PARAMETERS)?;
    let path = url.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    let (file, parameters) = match path {
        Some(path) => path.split_once('?').unwrap_or((path, "")),
        None => return Err(StoreError::permanent(NAME, "connect", UnsupportedUrl::Scheme)),
    };
    if file.is_empty()
        || file == ":memory:"
        || parameters.split('&').any(|parameter| parameter == "mode=memory")
    {
        return Err(StoreError::permanent(NAME, "connect", UnsupportedUrl::Memory));
    }
    let is_file = !file.starts_with("file:");
    // The error of sqlx quotes the URL.
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|_| StoreError::permanent(NAME, "connect", UnsupportedUrl::Part))?;
    // The file stays the same if the process changes its directory.
    let file = path::absolute(options.get_filename()).unwrap_or_default();
    let options = if is_file { options.filename(file) } else { options };
    let has_mode = parameters.split('&').any(|parameter| parameter.starts_with("mode="));
    Ok(if has_mode { options } else { options.create_if_missing(true) })
}

/// A local file needs no connection lifetime.
fn pool(
    max_size: usize,
    options: SqliteConnectOptions,
) -> Result<ConnectionPool<SqliteConnection>, StoreError> {
    ConnectionPool::new(max_size, options, Lifetime::UNLIMITED).map_err(to_store_error)
}

async fn open_writer(writer: &ConnectionPool<SqliteConnection>) -> Result<(), sqlx::Error> {
    for _ in 1..OPEN_ATTEMPTS {
        match writer.get().await {
            Err(error) if is_lost_race(&error) => {
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            opened => return opened.map(PooledConnection::give_back),
        }
    }
    writer.get().await.map(PooledConnection::give_back)
}

/// Refuses connections that could lose or corrupt what they acknowledged. Returns the path of the
/// file.
async fn check(connections: &ConnectionPool<SqliteConnection>) -> Result<String, StoreError> {
    let mut connection = connections.get().await.map_err(to_store_error)?;
    if let Err(error @ sqlx::Error::Configuration(_)) = verify(&mut connection).await {
        connection.give_back();
        return Err(to_store_error(error));
    }
    let mut connection = first_ready(connections, connection).await.map_err(to_store_error)?;
    let version: String = sqlx::query_scalar("SELECT sqlite_version()")
        .fetch_one(&mut *connection)
        .await
        .map_err(to_store_error)?;
    let file = sqlx::query_scalar("SELECT file FROM main.pragma_database_list WHERE name = 'main'");
    let file = file.fetch_one(&mut *connection).await.map_err(to_store_error)?;
    connection.give_back();
    if is_new_enough(&version) {
        Ok(file)
    } else {
        Err(to_store_error(unsafe_setting("version", version, "3.51.3 or later")))
    }
}

fn is_new_enough(version: &str) -> bool {
    let numbers = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
    numbers.is_ok_and(|numbers| numbers.as_slice() >= MIN_VERSION.as_slice())
}

fn to_store_error(error: sqlx::Error) -> StoreError {
    if cannot_open(&error) {
        // Unlike for a file that could be opened before, this is a mistake in its path.
        return StoreError::permanent(NAME, "connect", error);
    }
    store_error("connect", &TableName::default(), error)
}

/// The URL names no file.
#[derive(Debug, thiserror::Error)]
enum UnsupportedUrl {
    #[error("a SQLite database in memory is separate for each connection; use the URL `memory:`")]
    Memory,
    #[error("the URL does not have the form `sqlite:FILE`")]
    Scheme,
    #[error(
        "the file in the URL is not UTF-8, or a parameter has an invalid value; the \
         parameters are `mode` (`ro`, `rw` or `rwc`), `cache` (`private` or `shared`), `immutable` \
         (`true` or `false`) and `vfs`"
    )]
    Part,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(["3.51.3", "3.51.10", "3.100.0", "4.0.0"].into_iter().all(is_new_enough));
        assert!(!["3.51.2", "3.9.9", "3.51", "new"].into_iter().any(is_new_enough));
    }
}
