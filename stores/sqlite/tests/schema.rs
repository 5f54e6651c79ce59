//! What is detected before the first claim: a table or file that cannot be used, and tables of
//! later releases.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, Policy, RecordId, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    runtime::{Runtime, RuntimeOptions},
};
use idempotent_sqlite::SqliteStore;
use sqlx::{SqlitePool, sqlite::SqliteJournalMode};

use test_support::{error_chain, subjects::sqlite::File};

const ID: RecordId = RecordId::from_bytes([5; 32]);

/// Records a migration of a later release.
async fn insert_later_migration(file: &File, version: i64, compatible_from: i64) {
    let enter = "INSERT INTO idempotency_records_migrations (version, compatible_from, \
        applied_at) VALUES (?1, ?2, 0)";
    sqlx::query(enter)
        .bind(version)
        .bind(compatible_from)
        .execute(&file.pool().await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_table_of_a_later_release_is_shared_if_that_release_allows_it() {
    let file = File::new();
    file.open().await.migrate().await.unwrap();
    insert_later_migration(&file, 2, 2).await;
    insert_later_migration(&file, 3, 1).await;
    let store = file.open().await;
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let claim =
        Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
            .with_lease(Duration::from_secs(30))
            .with_ttl(Duration::from_secs(60));
    assert_eq!(store.claim(&ID, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    let lease = Lease { id: ID, owner: claim.owner };
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
    let again = claim.with_owner(OwnerToken::random().unwrap());
    assert_eq!(
        store.claim(&ID, &again).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"done")))
    );
}

/// The error with which a runtime refuses a store before it claims anything.
async fn refusal_error(store: SqliteStore) -> String {
    let checked = store.check().await.unwrap_err();
    assert!(!checked.is_transient(), "{}", error_chain(&checked));
    let digest = idempotent_core::Digester::new(["POST", "/"]).finish();
    let runtime = Runtime::new(store, RuntimeOptions::default());
    let claimed = runtime.begin(ID, digest, &Policy::DEFAULT).await.unwrap_err();
    assert_eq!(error_chain(&claimed), error_chain(&checked));
    error_chain(&checked)
}

#[tokio::test]
async fn a_table_of_a_later_release_is_refused_otherwise() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    insert_later_migration(&file, 2, 1).await;
    insert_later_migration(&file, 7, 6).await;
    let error = store.migrate().await.unwrap_err();
    assert!(!error.is_transient());
    for refused in [error_chain(&error), refusal_error(store).await] {
        for part in ["version 7", "version 6 or later", "up to 1", "upgrade this instance"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_store_that_was_not_migrated_is_refused() {
    let file = File::new();
    let refused = refusal_error(file.open().await).await;
    assert!(refused.contains("`migrate()`"), "{refused}");
}

#[tokio::test]
async fn a_dropped_table_is_refused_although_its_migration_is_recorded() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    sqlx::query("DROP TABLE idempotency_records").execute(&file.pool().await).await.unwrap();
    let migrated = store.migrate().await.unwrap_err();
    let shown = error_chain(&migrated);
    assert!(!migrated.is_transient() && shown.contains("drop `idempotency_records_migrations`"));
    let refused = refusal_error(store).await;
    assert!(refused.contains("`idempotency_records`"), "{refused}");
}

/// Each alteration, and what the error names.
const ALTERED: [(&str, &str); 3] = [
    (
        "ALTER TABLE r RENAME COLUMN kept TO kept_before",
        "`idempotency_records` cannot be used: it \
      lacks the columns kept",
    ),
    ("ALTER TABLE r ADD COLUMN tenant TEXT NOT NULL DEFAULT 'none'", ""),
    (
        "CREATE TABLE copied AS SELECT * FROM r; DROP TABLE r; \
         ALTER TABLE copied RENAME TO idempotency_records",
        "its column `id` is not unique",
    ),
];

#[tokio::test]
async fn a_check_that_has_passed_finds_a_table_that_was_altered_since() {
    for (alter, named) in ALTERED {
        let file = File::new();
        let store = file.open().await;
        store.migrate().await.unwrap();
        let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
        runtime.check().await.unwrap();
        let alter = alter.replace(" r", " idempotency_records");
        sqlx::raw_sql(sqlx::AssertSqlSafe(alter)).execute(&file.pool().await).await.unwrap();
        for checked in [runtime.check().await, store.migrate().await] {
            match checked {
                Ok(()) => assert_eq!(named, ""),
                Err(error) => {
                    let shown = error_chain(&error);
                    assert!(!named.is_empty() && shown.contains(named), "{shown}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    let file = File::new();
    // This store stays open, so that the WAL files exist, which a read-only connection needs.
    let writable = file.open().await;
    writable.migrate().await.unwrap();
    writable.check().await.unwrap();
    let read_only = SqliteStore::connect(&format!("{}?mode=ro", file.url())).await.unwrap();
    let options = file.options().journal_mode(SqliteJournalMode::Wal).pragma("query_only", "ON");
    let query_only =
        SqliteStore::from_pool(SqlitePool::connect_with(options).await.unwrap()).await.unwrap();
    for store in [read_only, query_only] {
        let refused = refusal_error(store).await;
        assert!(refused.contains("the database cannot be written"), "{refused}");
    }
}

#[tokio::test]
async fn a_check_writes_nothing_and_waits_for_no_writer() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    let pool = file.pool().await;
    let version = "PRAGMA data_version";
    let mut watching = pool.acquire().await.unwrap();
    let before: i64 = sqlx::query_scalar(version).fetch_one(&mut *watching).await.unwrap();
    store.check().await.unwrap();
    let after: i64 = sqlx::query_scalar(version).fetch_one(&mut *watching).await.unwrap();
    assert_eq!(before, after, "the check committed a change");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *watching).await.unwrap();
    store.check().await.unwrap();
    sqlx::query("ROLLBACK").execute(&mut *watching).await.unwrap();
}
