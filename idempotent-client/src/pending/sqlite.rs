//! Pending operations in a SQLite file.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use idempotent_http::Key;
use reqwest::Url;
use sqlx::{
    Row, Sqlite, SqliteConnection, SqlitePool,
    query::Query,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
        SqliteSynchronous,
    },
};

use super::{PendingOperation, PendingState, PendingStore, StoredRequest};
use crate::{clock, error::BoxError};

/// How long after its key has expired a finished operation is removed.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS idempotent_pending (
    number     INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    label      TEXT UNIQUE,
    method     TEXT NOT NULL,
    url        TEXT NOT NULL,
    headers    BLOB NOT NULL, -- lines of `name: value`
    body       BLOB NOT NULL,
    has_credentials INTEGER NOT NULL,
    started_at INTEGER NOT NULL, -- ms since 1970
    expires_at INTEGER NOT NULL,
    finished   INTEGER NOT NULL DEFAULT 0,
    -- How often it was begun or resumed; 0 if it was not done. An earlier release does not count.
    calls      INTEGER NOT NULL DEFAULT 2
) STRICT";
const HAS_CALLS: &str =
    "SELECT count(*) FROM pragma_table_info('idempotent_pending') WHERE name = 'calls'";
const ADD_CALLS: &str =
    "ALTER TABLE idempotent_pending ADD COLUMN calls INTEGER NOT NULL DEFAULT 2";
const REMOVE_EXPIRED: &str =
    "DELETE FROM idempotent_pending WHERE (finished = 1 OR calls = 0) AND expires_at < ?1";
const INSERT: &str = "INSERT INTO idempotent_pending
        (key, label, method, url, headers, body, has_credentials, started_at, expires_at, calls)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1)
    ON CONFLICT DO NOTHING";
const COUNT_CALL: &str = "UPDATE idempotent_pending
    SET calls = calls + 1, label = coalesce(label, ?2)
    WHERE key = ?1";
const OPEN_AGAIN: &str = "UPDATE idempotent_pending
    SET label = ?2, method = ?3, url = ?4, headers = ?5, body = ?6, has_credentials = ?7,
        started_at = ?8, expires_at = ?9, calls = 1
    WHERE key = ?1";
const COUNT_CALLS: &str =
    "UPDATE idempotent_pending SET calls = calls + 1 WHERE finished = 0 AND calls > 0";
const COLUMNS: &str =
    "SELECT key, label, method, url, headers, body, has_credentials, started_at, expires_at,
        finished, calls
    FROM idempotent_pending";

/// Pending operations in a SQLite file. Several clients and processes can use it.
///
/// The file contains the requests of the pending operations, and of the others that have a label,
/// so protect it like other business data. An operation that is finished or was not done is removed
/// 30 days after its key has expired. Until then the label of a finished one is refused.
#[derive(Clone, Debug)]
pub struct SqlitePending {
    pool: SqlitePool,
}

impl SqlitePending {
    /// Opens the file, and creates it and its table if they do not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or written.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::raw_sql(SCHEMA).execute(&mut *transaction).await?;
        let columns: i64 = sqlx::query_scalar(HAS_CALLS).fetch_one(&mut *transaction).await?;
        if columns == 0 {
            sqlx::raw_sql(ADD_CALLS).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(Self { pool })
    }
}

#[async_trait]
impl PendingStore for SqlitePending {
    async fn begin(&self, new: &PendingOperation) -> Result<Option<PendingOperation>, BoxError> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let before = clock::now().checked_sub(REMEMBERED).unwrap_or(UNIX_EPOCH);
        sqlx::query(REMOVE_EXPIRED).bind(millis(before)?).execute(&mut *transaction).await?;
        let inserted = bind(INSERT, &new.key, new)?.execute(&mut *transaction).await?;
        let known = if inserted.rows_affected() == 1 {
            None
        } else {
            let same = format!("{COLUMNS} WHERE key = ?1 OR label = ?2 ORDER BY label IS NOT ?2");
            let row = sqlx::query(sqlx::AssertSqlSafe(same))
                .bind(new.key.as_str())
                .bind(&new.label)
                .fetch_one(&mut *transaction)
                .await?;
            Some(call_again(&mut transaction, decode(&row)?, new).await?)
        };
        transaction.commit().await?;
        Ok(known)
    }

    async fn finish(&self, key: &Key) -> Result<(), BoxError> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        for statement in [
            "DELETE FROM idempotent_pending WHERE key = ?1 AND label IS NULL",
            "UPDATE idempotent_pending SET finished = 1 WHERE key = ?1",
        ] {
            sqlx::query(statement).bind(key.as_str()).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn retract(&self, key: &Key) -> Result<bool, BoxError> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let mut retracted = 0;
        for statement in [
            "DELETE FROM idempotent_pending
                WHERE key = ?1 AND label IS NULL AND finished = 0 AND calls = 1",
            "UPDATE idempotent_pending SET calls = 0
                WHERE key = ?1 AND finished = 0 AND calls = 1",
        ] {
            let done = sqlx::query(statement).bind(key.as_str()).execute(&mut *transaction).await?;
            retracted += done.rows_affected();
        }
        transaction.commit().await?;
        Ok(retracted == 1)
    }

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query(COUNT_CALLS).execute(&mut *transaction).await?;
        let open = format!("{COLUMNS} WHERE finished = 0 AND calls > 0 ORDER BY number");
        let rows = sqlx::query(sqlx::AssertSqlSafe(open)).fetch_all(&mut *transaction).await?;
        let open = rows.iter().map(decode).collect::<Result<_, _>>()?;
        transaction.commit().await?;
        Ok(open)
    }

    async fn forget(&self, key: &Key) -> Result<(), BoxError> {
        let remove = sqlx::query("DELETE FROM idempotent_pending WHERE key = ?1");
        remove.bind(key.as_str()).execute(&self.pool).await?;
        Ok(())
    }
}

/// Counts a further call of a known operation, or opens it again.
async fn call_again(
    connection: &mut SqliteConnection,
    known: PendingOperation,
    new: &PendingOperation,
) -> Result<PendingOperation, BoxError> {
    if known.state != PendingState::NotDone {
        let count = sqlx::query(COUNT_CALL).bind(known.key.as_str()).bind(&new.label);
        count.execute(connection).await?;
        return Ok(known);
    }
    let label = new.label.clone().or(known.label);
    let again = PendingOperation { key: known.key, label, state: known.state, ..new.clone() };
    bind(OPEN_AGAIN, &again.key, &again)?.execute(connection).await?;
    Ok(again)
}

/// Binds the columns from `key` to `expires_at`.
fn bind<'a>(
    statement: &'static str,
    key: &'a Key,
    operation: &'a PendingOperation,
) -> Result<Query<'a, Sqlite, SqliteArguments>, BoxError> {
    let PendingOperation { label, request, .. } = operation;
    Ok(sqlx::query(statement)
        .bind(key.as_str())
        .bind(label)
        .bind(request.method.as_str())
        .bind(request.url.as_str())
        .bind(encode_headers(&request.headers))
        .bind(&request.body[..])
        .bind(operation.has_credentials)
        .bind(millis(operation.started_at)?)
        .bind(millis(operation.expires_at)?))
}

fn decode(row: &SqliteRow) -> Result<PendingOperation, BoxError> {
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    Ok(PendingOperation {
        key: row.try_get::<String, _>("key")?.try_into()?,
        label: row.try_get("label")?,
        request: StoredRequest {
            method: Method::from_bytes(row.try_get::<String, _>("method")?.as_bytes())?,
            url: Url::parse(&row.try_get::<String, _>("url")?)?,
            headers: decode_headers(&bytes("headers")?)?,
            body: Bytes::from(bytes("body")?),
        },
        has_credentials: row.try_get("has_credentials")?,
        started_at: time(row.try_get("started_at")?),
        expires_at: time(row.try_get("expires_at")?),
        state: match (row.try_get("finished")?, row.try_get("calls")?) {
            (true, _) => PendingState::Finished,
            (false, 0) => PendingState::NotDone,
            (false, 1_i64..) => PendingState::Open,
            (false, _) => return Err("an operation has a negative number of calls".into()),
        },
    })
}

fn millis(at: SystemTime) -> Result<i64, BoxError> {
    Ok(i64::try_from(clock::since_epoch(at).as_millis())?)
}

fn time(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.unsigned_abs())
}

/// Values of headers contain no line break.
fn encode_headers(headers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
            lines.extend_from_slice(part);
        }
    }
    lines
}

fn decode_headers(lines: &[u8]) -> Result<HeaderMap, BoxError> {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':').ok_or("a header has no colon")?;
        let (name, value) = line.split_at(colon);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default())?;
        headers.append(HeaderName::from_bytes(name)?, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
