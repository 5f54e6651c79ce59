//! Pending operations in a SQLite file.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;
use sqlx::{
    Row, SqlitePool,
    sqlite::{
        SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
    },
};

use super::{PendingOperation, PendingStore, StoredRequest};
use crate::{clock, error::BoxError, key::Key};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS idempotent_pending (
    number     INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    label      TEXT UNIQUE,
    method     TEXT NOT NULL,
    url        TEXT NOT NULL,
    headers    BLOB NOT NULL, -- lines of `name: value`
    body       BLOB NOT NULL,
    started_at INTEGER NOT NULL, -- ms since 1970
    expires_at INTEGER NOT NULL,
    finished   INTEGER NOT NULL DEFAULT 0
) STRICT";
const REMOVE_EXPIRED: &str =
    "DELETE FROM idempotent_pending WHERE finished = 1 AND expires_at < ?1";
const INSERT: &str = "INSERT INTO idempotent_pending
        (key, label, method, url, headers, body, started_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT DO NOTHING";
const COLUMNS: &str =
    "SELECT key, label, method, url, headers, body, started_at, expires_at, finished
    FROM idempotent_pending";

/// Pending operations in a SQLite file.
///
/// Several processes can share the file. The file contains the bodies of the pending requests, so
/// protect it like other business data.
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
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        Ok(Self { pool })
    }
}

#[async_trait]
impl PendingStore for SqlitePending {
    async fn begin(&self, new: PendingOperation) -> Result<PendingOperation, BoxError> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let started_at = millis(new.started_at)?;
        sqlx::query(REMOVE_EXPIRED).bind(started_at).execute(&mut *transaction).await?;
        let inserted = sqlx::query(INSERT)
            .bind(new.key.as_str())
            .bind(&new.label)
            .bind(new.request.method.as_str())
            .bind(new.request.url.as_str())
            .bind(encode_headers(&new.request.headers))
            .bind(&new.request.body[..])
            .bind(started_at)
            .bind(millis(new.expires_at)?)
            .execute(&mut *transaction)
            .await?;
        let stored = if inserted.rows_affected() == 1 {
            new
        } else {
            let same = format!("{COLUMNS} WHERE key = ?1 OR label = ?2 ORDER BY label IS NOT ?2");
            let row = sqlx::query(sqlx::AssertSqlSafe(same))
                .bind(new.key.as_str())
                .bind(&new.label)
                .fetch_one(&mut *transaction)
                .await?;
            decode(&row)?
        };
        transaction.commit().await?;
        Ok(stored)
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

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        let unfinished = format!("{COLUMNS} WHERE finished = 0 ORDER BY number");
        let rows = sqlx::query(sqlx::AssertSqlSafe(unfinished)).fetch_all(&self.pool).await?;
        rows.iter().map(decode).collect()
    }

    async fn forget(&self, key: &Key) -> Result<(), BoxError> {
        let remove = sqlx::query("DELETE FROM idempotent_pending WHERE key = ?1");
        remove.bind(key.as_str()).execute(&self.pool).await?;
        Ok(())
    }
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
        started_at: time(row.try_get("started_at")?),
        expires_at: time(row.try_get("expires_at")?),
        finished: row.try_get("finished")?,
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
mod tests {
    use super::*;

    fn operation(label: Option<&str>, path: &str) -> PendingOperation {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("a"));
        headers.append("accept", HeaderValue::from_bytes(b"b: \xff").unwrap());
        headers.append("content-type", HeaderValue::from_static("text/plain"));
        let url = Url::parse("https://example.com").unwrap().join(path).unwrap();
        let body = Bytes::from_static(b"\0body\xff");
        let request = StoredRequest { method: Method::PATCH, url, headers, body };
        let ttl = Duration::from_secs(60);
        let mut new = PendingOperation::new(Key::random(), label.map(str::to_owned), request, ttl);
        new.started_at = whole_millis(new.started_at);
        new.expires_at = whole_millis(new.expires_at);
        new
    }

    fn whole_millis(at: SystemTime) -> SystemTime {
        time(millis(at).unwrap())
    }

    #[tokio::test]
    async fn an_operation_is_stored_until_it_is_finished() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pending.db");
        let store = SqlitePending::open(&file).await.unwrap();
        let (one, two) = (operation(None, "/one"), operation(None, "/two?a=b"));
        assert_eq!(store.begin(one.clone()).await.unwrap(), one);
        assert_eq!(store.begin(two.clone()).await.unwrap(), two);
        // Another process.
        let reopened = SqlitePending::open(&file).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), [one.clone(), two.clone()]);
        store.finish(&one.key).await.unwrap();
        store.finish(&one.key).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), std::slice::from_ref(&two));
        store.forget(&two.key).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_label_keeps_its_key_until_the_key_expires() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
        let first = operation(Some("order-17"), "/orders");
        assert_eq!(store.begin(first.clone()).await.unwrap(), first);
        assert_eq!(store.begin(operation(Some("order-17"), "/")).await.unwrap(), first);
        store.finish(&first.key).await.unwrap();
        assert_eq!(store.pending().await.unwrap(), []);
        let finished = PendingOperation { finished: true, ..first.clone() };
        assert_eq!(store.begin(operation(Some("order-17"), "/")).await.unwrap(), finished);
        let mut later = operation(Some("order-17"), "/");
        later.started_at = first.expires_at + Duration::from_millis(1);
        assert_eq!(store.begin(later.clone()).await.unwrap(), later);
    }

    #[tokio::test]
    async fn an_expired_operation_without_an_outcome_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
        let first = operation(Some("order-17"), "/orders");
        store.begin(first.clone()).await.unwrap();
        let mut later = operation(Some("order-17"), "/orders");
        later.started_at = first.expires_at + Duration::from_secs(60);
        assert_eq!(store.begin(later).await.unwrap(), first);
    }
}
