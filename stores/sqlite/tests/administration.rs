//! What lists, decisions and histories do in the file.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    RecordId, Store,
    history::Kind,
    protocol::{Fence, Resolution},
};
use idempotent_sqlite::{SqliteStore, internals::batched_sqlite};
use sqlx::{AssertSqlSafe, Row};
use tokio::task::JoinSet;

use test_support::{
    administering::{
        administration, assert_an_old_list_ends, assert_damaged_rows_are_named,
        assert_decisions_are_logged, assert_decisions_fail_unlogged,
        assert_filters_select_damaged_rows, claimed, completed, held, request,
    },
    decision,
    subjects::sqlite::File,
};

const WATCHED: &str = include_str!("../src/sql/watched.sql");
const SCAN: &str = include_str!("../src/sql/scan.sql");
const FIND: &str = include_str!("../src/sql/find.sql");
const COUNT: &str = include_str!("../src/sql/count.sql");
const AUDIT: &str = include_str!("../src/sql/audit.sql");

async fn store(file: &File) -> SqliteStore {
    let store = file.open().await;
    store.migrate().await.unwrap();
    store
}

async fn execute(file: &File, text: &str) {
    let text = AssertSqlSafe(text.to_owned());
    sqlx::raw_sql(text).execute(&file.pool().await).await.unwrap();
}

/// Executes a statement about the record `ID`.
async fn execute_on(file: &File, id: &RecordId, text: &str) {
    execute(file, &text.replace("ID", &format!("x'{id}'"))).await;
}

/// How SQLite executes a statement of the store.
async fn plan(file: &File, text: &str) -> String {
    let text = text.replace("{table}", "idempotency_records").replace("{now}", "1");
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
    let rows = sqlx::query(explain).fetch_all(&file.pool().await).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn lists_read_by_an_index() {
    let file = File::new();
    store(&file).await;
    for (text, expected) in [
        (WATCHED, "SEARCH main.idempotency_records USING INDEX idempotency_records_watch"),
        (
            SCAN,
            "SEARCH main.idempotency_records USING INDEX sqlite_autoindex_idempotency_records_1",
        ),
        (
            FIND,
            "SEARCH main.idempotency_records USING INDEX sqlite_autoindex_idempotency_records_1",
        ),
        (COUNT, "USING INDEX idempotency_records_watch"),
        (AUDIT, "SEARCH main.idempotency_records_audit USING INTEGER PRIMARY KEY"),
    ] {
        let plan = plan(&file, text).await;
        assert!(plan.contains(expected), "{plan}");
    }
}

#[tokio::test]
async fn a_decision_that_cannot_be_logged_changes_nothing() {
    let file = File::new();
    let store = store(&file).await;
    let shared = SqliteStore::from_pool(file.pool().await).await.unwrap();
    let (held, done) = (held(&store).await, completed(&store).await);
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON idempotency_records_audit
                  BEGIN SELECT RAISE(ABORT, 'refused'); END";
    execute(&file, refuse).await;
    for store in [&store, &shared] {
        assert_decisions_fail_unlogged(store, &held, &done).await;
    }
    execute(&file, "DROP TRIGGER refuse").await;
    assert_decisions_are_logged(&shared, &held, &done).await;
}

#[tokio::test]
async fn a_dropped_decision_leaves_no_transaction_open() {
    let file = File::new();
    let store = store(&file).await;
    for micros in (0..2_000).step_by(50) {
        let lease = held(&store).await;
        let audit = decision(&lease.id);
        let resolving = store.resolve(&lease.id, &lease.owner, &Resolution::Release, &audit);
        let _ = tokio::time::timeout(Duration::from_micros(micros), resolving).await;
        store.resolve(&lease.id, &lease.owner, &Resolution::Release, &audit).await.unwrap();
        assert_eq!(store.look_up(&lease.id).await.unwrap(), None);
    }
    let entries = administration(&store).audit(None, 100).await.unwrap().entries;
    assert_eq!(entries.len(), 40, "one for each decision");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_write_histories() {
    let file = File::new();
    let store = batched_sqlite(store(&file).await);
    let work = (0..64).map(|_| {
        let store = store.clone();
        async move { completed(&store).await }
    });
    for lease in work.collect::<JoinSet<_>>().join_all().await {
        // A repeated completion adds nothing.
        let again = store.complete(&lease, &Bytes::from_static(b"again")).await.unwrap();
        assert_eq!(again, Fence::Passed);
        let found = store.look_up(&lease.id).await.unwrap().unwrap().record;
        let entries: Vec<_> = found.history.entries().collect();
        let kinds: Vec<_> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Claimed, Kind::Completed]);
        assert_eq!(entries[0].at, found.first_seen);
        assert_eq!(Some(entries[1].at), found.completed_at);
    }
}

/// Adds completed records.
async fn add_others(file: &File, count: u32) {
    let insert = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
         INSERT INTO idempotency_records (id, state, fingerprint, owner, attempt, abandoned, lease,
             lease_until, first_seen, expires_at, recording)
         SELECT randomblob(32), 2, zeroblob(36), randomblob(16), 1, 0, 1, 1, 1, 9e15, x'01'
         FROM n"
    );
    execute(file, &insert).await;
}

#[tokio::test]
async fn many_records_are_not_counted_exactly() {
    let file = File::new();
    let store = store(&file).await;
    held(&store).await;
    add_others(&file, 99_999).await;
    let count = administration(&store).count().await.unwrap();
    assert_eq!((count.records, count.is_exact, count.held), (100_000, true, 1));
    // The oldest record stays, and a purge removes most of those that follow.
    add_others(&file, 400_000).await;
    execute(&file, "DELETE FROM idempotency_records WHERE rowid BETWEEN 2 AND 350000").await;
    let count = administration(&store).count().await.unwrap();
    assert_eq!((count.is_exact, count.held), (false, 1));
    assert!(count.records.abs_diff(150_000) < 40_000, "{count:?}");
}

#[tokio::test]
async fn a_damaged_record_is_named_beside_the_others() {
    let file = File::new();
    let store = store(&file).await;
    let sql = async |id: &RecordId, text: &str| execute_on(&file, id, text).await;
    assert_damaged_rows_are_named(&store, sql).await;
}

#[tokio::test]
async fn a_damaged_record_is_named_if_a_filter_may_select_it() {
    let file = File::new();
    let store = store(&file).await;
    let sql = async |id: &RecordId, text: &str| execute_on(&file, id, text).await;
    assert_filters_select_damaged_rows(&store, sql).await;
}

#[tokio::test]
async fn a_list_of_old_records_ends_at_the_first_young_one() {
    let file = File::new();
    let store = store(&file).await;
    let old = held(&store).await;
    execute(&file, "UPDATE idempotency_records SET first_seen = 1, watch = 1").await;
    let insert = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2001)
                  INSERT INTO idempotency_records (id, state, fingerprint, owner, attempt,
                      abandoned, lease, lease_until, first_seen, expires_at, watch)
                  SELECT randomblob(32), 3, zeroblob(36), randomblob(16), 1, 1, 1, 1,
                      unixepoch() * 1000, 9e15, unixepoch() * 1000 FROM n";
    execute(&file, insert).await;
    assert_an_old_list_ends(&store, &[old.id]).await;
}

#[tokio::test]
async fn a_log_that_cannot_be_used_is_refused() {
    for (alter, named) in [
        ("DROP TABLE idempotency_records_audit", "does not exist"),
        (
            "ALTER TABLE idempotency_records_audit RENAME COLUMN actor TO who",
            "lacks the columns actor",
        ),
        (
            "DROP TABLE idempotency_records_audit;
             CREATE TABLE idempotency_records_audit (number INTEGER NOT NULL PRIMARY KEY, at, \
             action, record_id, operation, principal, reference, before, after, actor, reason, \
             tenant TEXT NOT NULL)",
            "its columns tenant must not be null",
        ),
    ] {
        let file = File::new();
        let store = store(&file).await;
        store.check().await.unwrap();
        execute(&file, alter).await;
        let error = store.check().await.unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(!error.is_transient() && source.contains("`idempotency_records_audit`"));
        assert!(source.contains(named), "{source}");
    }
}

#[tokio::test]
async fn a_file_that_is_mostly_free_is_found() {
    let file = File::new();
    let store = store(&file).await;
    let before = store.look_up(&claimed(&store, request()).await.id).await.unwrap().unwrap().at;
    let facts = administration(&store).measure().await.unwrap();
    assert!(facts.at >= before && facts.server.starts_with("SQLite 3."), "{facts:?}");
    assert!(facts.sizes[0].bytes > 0 && facts.findings.is_empty(), "{facts:?}");
    add_others(&file, 100_000).await;
    assert_eq!(administration(&store).measure().await.unwrap().findings, []);
    execute(&file, "DELETE FROM idempotency_records").await;
    let facts = administration(&store).measure().await.unwrap();
    assert!(facts.findings[0].advice.contains("VACUUM"), "{facts:?}");
    let [size, free] = [0, 1].map(|index| facts.sizes[index].bytes);
    assert!(free > size / 2 && free < size, "{facts:?}");
}
