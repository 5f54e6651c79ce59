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
    Row, Sqlite, SqliteConnection, SqlitePool,
    query::Query,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
        SqliteSynchronous,
    },
};

use super::{PendingOperation, PendingState, PendingStore, StoredRequest};
use crate::{clock, error::BoxError, key::Key};

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
        let now = Some(whole_millis(clock::now()));
        PendingOperation {
            label: label.map(str::to_owned),
            has_credentials: label.is_none(),
            ..PendingOperation::new(Key::random(), now, Duration::from_secs(60), request)
        }
    }

    fn whole_millis(at: SystemTime) -> SystemTime {
        time(millis(at).unwrap())
    }

    async fn open() -> (tempfile::TempDir, SqlitePending) {
        let directory = tempfile::tempdir().unwrap();
        let store = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
        (directory, store)
    }

    #[tokio::test]
    async fn an_operation_is_stored_until_it_is_finished() {
        let (directory, store) = open().await;
        let (one, two) = (operation(None, "/one"), operation(None, "/two?a=b"));
        assert_eq!(store.begin(&one).await.unwrap(), None);
        assert_eq!(store.begin(&two).await.unwrap(), None);
        assert_eq!(store.begin(&one).await.unwrap().as_ref(), Some(&one));
        // Another process.
        let reopened = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), [one.clone(), two.clone()]);
        store.finish(&one.key).await.unwrap();
        store.finish(&one.key).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), std::slice::from_ref(&two));
        store.forget(&two.key).await.unwrap();
        assert_eq!(reopened.pending().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_label_keeps_its_key_long_after_the_key_has_expired() {
        let (_directory, store) = open().await;
        let ago = |days: u64| whole_millis(clock::now()) - Duration::from_secs(days * 24 * 60 * 60);
        for (days, is_kept) in [(0, true), (29, true), (31, false)] {
            let (label, other) = (format!("order-{days}"), operation(None, "/orders"));
            let mut first = operation(Some(&label), "/orders");
            (first.started_at, first.expires_at) = (ago(days), ago(days));
            assert_eq!(store.begin(&first).await.unwrap(), None);
            let again = store.begin(&operation(Some(&label), "/")).await.unwrap();
            assert_eq!(again.as_ref(), Some(&first), "it has no outcome");
            store.finish(&first.key).await.unwrap();
            assert_eq!(store.pending().await.unwrap(), []);
            store.begin(&other).await.unwrap();
            store.finish(&other.key).await.unwrap();
            let again = store.begin(&operation(Some(&label), "/")).await.unwrap();
            let finished = PendingOperation { state: PendingState::Finished, ..first };
            assert_eq!(again, is_kept.then_some(finished), "{days}");
            store.forget(&again.map_or(other.key, |again| again.key)).await.unwrap();
            for pending in store.pending().await.unwrap() {
                store.forget(&pending.key).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn an_operation_can_get_its_label_later() {
        let (_directory, store) = open().await;
        let first = operation(None, "/orders");
        store.begin(&first).await.unwrap();
        let labelled = PendingOperation { label: Some("order-17".to_owned()), ..first.clone() };
        assert_eq!(store.begin(&labelled).await.unwrap(), Some(first));
        let again = store.begin(&operation(Some("order-17"), "/")).await.unwrap();
        assert_eq!(again, Some(labelled));
    }

    #[tokio::test]
    async fn an_operation_is_retracted_only_by_its_only_call() {
        let (directory, store) = open().await;
        let file = directory.path().join("pending.db");
        let other = SqlitePending::open(&file).await.unwrap();
        for label in [None, Some("order-17")] {
            let first = operation(label, "/orders");
            store.begin(&first).await.unwrap();
            other.begin(&first).await.unwrap();
            assert!(!store.retract(&first.key).await.unwrap(), "another process has begun it");
            assert_eq!(other.pending().await.unwrap(), std::slice::from_ref(&first));
            store.forget(&first.key).await.unwrap();
            // It is being resumed.
            store.begin(&first).await.unwrap();
            other.pending().await.unwrap();
            assert!(!store.retract(&first.key).await.unwrap(), "another process resumes it");
            store.finish(&first.key).await.unwrap();
            assert!(!store.retract(&first.key).await.unwrap(), "its outcome is known");
            store.forget(&first.key).await.unwrap();
            store.begin(&first).await.unwrap();
            assert!(store.retract(&first.key).await.unwrap());
            assert!(!store.retract(&first.key).await.unwrap());
            assert_eq!(other.pending().await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn a_label_that_was_not_done_keeps_its_key() {
        let (_directory, store) = open().await;
        let first = operation(Some("order-17"), "/orders");
        store.begin(&first).await.unwrap();
        assert!(store.retract(&first.key).await.unwrap());
        let second = operation(Some("order-17"), "/orders?b=c");
        let again = store.begin(&second).await.unwrap().unwrap();
        let expected = PendingOperation { key: first.key.clone(), ..second };
        assert_eq!(again, PendingOperation { state: PendingState::NotDone, ..expected.clone() });
        assert_eq!(store.pending().await.unwrap(), [expected]);
    }

    #[tokio::test]
    async fn operations_of_an_earlier_release_stay_pending() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pending.db");
        let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let column = SCHEMA.find(",\n    -- How often").unwrap();
        let old = format!("{}) STRICT", &SCHEMA[..column]);
        sqlx::raw_sql(sqlx::AssertSqlSafe(old)).execute(&pool).await.unwrap();
        let first = operation(None, "/orders");
        let insert = INSERT.replace(", calls)", ")").replace(", 1)", ")");
        let insert = sqlx::AssertSqlSafe(insert);
        let PendingOperation { request, .. } = &first;
        sqlx::query(insert)
            .bind(first.key.as_str())
            .bind(&first.label)
            .bind(request.method.as_str())
            .bind(request.url.as_str())
            .bind(encode_headers(&request.headers))
            .bind(&request.body[..])
            .bind(first.has_credentials)
            .bind(millis(first.started_at).unwrap())
            .bind(millis(first.expires_at).unwrap())
            .execute(&pool)
            .await
            .unwrap();
        for _ in 0..2 {
            let store = SqlitePending::open(&file).await.unwrap();
            assert!(!store.retract(&first.key).await.unwrap(), "its calls were not counted");
            assert_eq!(store.pending().await.unwrap(), std::slice::from_ref(&first));
        }
    }
}
