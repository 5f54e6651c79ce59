//! Opening a file, and refusing one that would forget or break.

use std::{error::Error, fmt, str::FromStr, time::Duration};

use sqlx::{
    SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{
    BUSY_TIMEOUT, NAME,
    error::{is_passing, store_error},
};
use crate::{
    error::StoreError,
    store::sql::{Connections, Lent, Lifetime, TableName, UnsafeSetting},
};

const READERS: usize = 4;
/// Before it, a WAL file that is reset while another connection reads can corrupt the database.
const OLDEST: [u32; 3] = [3, 51, 3];
/// Turning a new file to WAL needs a lock that SQLite does not wait for.
const OPENINGS: u32 = 100;
const BETWEEN_OPENINGS: Duration = Duration::from_millis(50);

/// Opens the connection that writes, and names where those that read come from.
pub(super) async fn connect(
    url: &str,
) -> Result<(Connections<SqliteConnection>, Connections<SqliteConnection>), StoreError> {
    let options = options(url)?.busy_timeout(BUSY_TIMEOUT);
    let writing = options.clone().journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let writer = own(1, writing)?;
    open_writer(&writer).await.map_err(failed)?;
    let reading = options.create_if_missing(false).pragma("query_only", "ON");
    Ok((writer, own(READERS, reading)?))
}

fn options(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    let path = url.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    let (file, parameters) = match path {
        Some(path) => path.split_once('?').unwrap_or((path, "")),
        None => return Err(StoreError::permanent(NAME, "connect", NotAFile::OtherUrl)),
    };
    if file.is_empty() || file == ":memory:" || parameters.split('&').any(|parameter| parameter == "mode=memory") {
        return Err(StoreError::permanent(NAME, "connect", NotAFile::Memory));
    }
    let options = SqliteConnectOptions::from_str(url).map_err(failed)?;
    let says_mode = parameters.split('&').any(|parameter| parameter.starts_with("mode="));
    Ok(if says_mode { options } else { options.create_if_missing(true) })
}

/// A file does not go away as a server does.
fn own(most: usize, options: SqliteConnectOptions) -> Result<Connections<SqliteConnection>, StoreError> {
    Connections::own(most, options, Lifetime::UNLIMITED).map_err(failed)
}

async fn open_writer(writer: &Connections<SqliteConnection>) -> Result<(), sqlx::Error> {
    for _ in 1..OPENINGS {
        match writer.get().await {
            Err(error) if is_passing(&error) && error.as_database_error().is_some() => {
                tokio::time::sleep(BETWEEN_OPENINGS).await;
            }
            opened => return opened.map(Lent::give_back),
        }
    }
    writer.get().await.map(Lent::give_back)
}

/// Refuses connections that could lose or break what they acknowledged. Returns the name of the
/// file.
pub(super) async fn check(connections: &Connections<SqliteConnection>) -> Result<String, StoreError> {
    let mut connection = connections.get().await.map_err(failed)?;
    let version: String =
        sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut *connection).await.map_err(failed)?;
    let journal: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(failed)?;
    let synchronous: i64 =
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await.map_err(failed)?;
    let file = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'");
    let file = file.fetch_one(&mut *connection).await.map_err(failed)?;
    connection.give_back();
    let unsafe_setting = if !is_new_enough(&version) {
        Some(("version", version, "3.51.3 or later"))
    } else if !journal.eq_ignore_ascii_case("wal") {
        Some(("journal_mode", journal, "wal"))
    } else if !matches!(synchronous, 2 | 3) {
        Some(("synchronous", synchronous.to_string(), "2 (full) or 3 (extra)"))
    } else {
        None
    };
    unsafe_setting.map_or(Ok(file), |(setting, is, must)| {
        Err(StoreError::permanent(NAME, "connect", UnsafeSetting { database: "SQLite", setting, is, must }))
    })
}

fn is_new_enough(version: &str) -> bool {
    let numbers = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
    numbers.is_ok_and(|numbers| numbers.as_slice() >= OLDEST.as_slice())
}

fn failed(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
}

/// The URL names no file.
#[derive(Debug)]
enum NotAFile {
    Memory,
    OtherUrl,
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => {
                "each connection to a SQLite database in memory has one of its own; use the store `memory:`"
            }
            Self::OtherUrl => "the URL is not of the form `sqlite:FILE`",
        })
    }
}

impl Error for NotAFile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(["3.51.3", "3.51.10", "3.100.0", "4.0.0"].into_iter().all(is_new_enough));
        assert!(!["3.51.2", "3.9.9", "3.51", "new"].into_iter().any(is_new_enough));
    }
}
