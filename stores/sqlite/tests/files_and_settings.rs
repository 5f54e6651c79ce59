//! The SQLite store's file, settings and errors.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, RecordId, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, Renewal, Resolution},
    store::TransactionClaim,
};
use idempotent_sqlite::SqliteStore;
use sqlx::{
    ConnectOptions, Connection, SqlitePool,
    sqlite::{SqliteJournalMode, SqliteSynchronous},
};
use tokio::task::JoinSet;

use test_support::decision;
use test_support::{error_chain, subjects::sqlite::File};

const ID: RecordId = RecordId::from_bytes([3; 32]);

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(60))
}

async fn migrated(file: &File) -> SqliteStore {
    let store = file.open().await;
    store.migrate().await.unwrap();
    store
}

async fn claim_and_complete(store: &SqliteStore) -> Lease {
    let claim = claim();
    let lease = Lease { id: ID, owner: claim.owner };
    assert_eq!(store.claim(&ID, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
    lease
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_several_stores_on_one_file_is_granted_a_key() {
    let file = File::new();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Arc::new(migrated(&file).await));
    }
    for key in 0..8 {
        let claims = (0..32).map(|number: usize| {
            let store = Arc::clone(&stores[number % 4]);
            async move { store.claim(&RecordId::from_bytes([key; 32]), &claim()).await.unwrap() }
        });
        let outcomes = claims.collect::<JoinSet<_>>().join_all().await;
        let granted = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, ClaimOutcome::Granted { .. }))
            .count();
        let in_flight = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })))
            .count();
        assert_eq!((granted, in_flight), (1, 31), "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_can_be_opened_and_migrated_concurrently() {
    for _ in 0..4 {
        let file = File::new();
        let openings = (0..8).map(|_| {
            let url = file.url();
            async move { SqliteStore::connect(&url).await.unwrap().migrate().await.unwrap() }
        });
        openings.collect::<JoinSet<_>>().join_all().await;
        let pool = file.pool().await;
        let applied: Vec<i64> =
            sqlx::query_scalar("SELECT version FROM idempotency_records_migrations")
                .fetch_all(&pool)
                .await
                .unwrap();
        assert_eq!(applied, [1]);
    }
}

#[tokio::test]
async fn acknowledged_records_persist_for_the_next_process() {
    let file = File::new();
    claim_and_complete(&migrated(&file).await).await;
    let outcome = file.open().await.claim(&ID, &claim()).await.unwrap();
    assert_eq!(outcome, ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"done"))));
}

#[tokio::test]
async fn a_new_file_is_in_wal_mode() {
    let file = File::new();
    let store = migrated(&file).await;
    claim_and_complete(&store).await;
    let mut raw = file.options().connect().await.unwrap();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut raw).await.unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_replay_and_a_duplicate_take_no_write_lock() {
    let file = File::new();
    let store = migrated(&file).await;
    claim_and_complete(&store).await;
    let other = RecordId::from_bytes([4; 32]);
    store.claim(&other, &claim()).await.unwrap();

    let mut writer = file.options().busy_timeout(Duration::ZERO).connect().await.unwrap();
    let lock = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    // A call that waits for the lock gives up after 5 seconds, with an error.
    let calls = async {
        assert!(matches!(
            store.claim(&ID, &claim()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(_))
        ));
        assert!(matches!(
            store.claim(&other, &claim()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        let mismatch = claim().with_fingerprint(Fingerprint::from_bytes([2; Fingerprint::BYTES]));
        assert!(matches!(
            store.claim(&ID, &mismatch).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Mismatch { .. })
        ));
        let in_transaction =
            store.transactions().unwrap().claim(&ID, &claim(), Duration::ZERO).await.unwrap();
        assert!(
            matches!(in_transaction, TransactionClaim::Rejected(Rejection::Completed(_))),
            "{in_transaction:?}"
        );
        assert!(store.look_up(&ID).await.unwrap().is_some());
        store.migrate().await.unwrap();
    };
    calls.await;
    lock.rollback().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_not_released_is_a_transient_error() {
    let file = File::new();
    // This store stays open, because the last connection to close would lock the file for a moment.
    let _open = migrated(&file).await;
    let without_busy_timeout =
        file.options().busy_timeout(Duration::ZERO).journal_mode(SqliteJournalMode::Wal);
    let store = SqliteStore::from_pool(
        SqlitePool::connect_with(without_busy_timeout.clone()).await.unwrap(),
    )
    .await
    .unwrap();
    let mut writer = without_busy_timeout.connect().await.unwrap();
    let lock = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.claim(&ID, &claim()).await.unwrap_err();
    assert!(error.is_transient(), "{}", error_chain(&error));
    lock.rollback().await.unwrap();
    assert_eq!(store.claim(&ID, &claim()).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
}

#[tokio::test]
async fn a_closed_pool_is_a_transient_error() {
    let file = File::new();
    let pool = file.pool().await;
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    pool.close().await;
    let error = store.look_up(&ID).await.unwrap_err();
    assert!(error.is_transient(), "{}", error_chain(&error));
}

#[tokio::test]
async fn without_the_table_the_error_of_every_call_names_migrate() {
    let file = File::new();
    let store = file.open().await;
    let lease = Lease { id: ID, owner: OwnerToken::random().unwrap() };
    let renewal = Renewal::new(lease, Duration::from_secs(1));
    for error in [
        store.claim(&ID, &claim()).await.map(drop).unwrap_err(),
        store.renew(&[renewal]).await.map(drop).unwrap_err(),
        store.complete(&lease, &Bytes::new()).await.map(drop).unwrap_err(),
        store.release(&lease).await.map(drop).unwrap_err(),
        store.abandon(&lease, Abandoned::Retry).await.map(drop).unwrap_err(),
        store.look_up(&ID).await.map(drop).unwrap_err(),
        store
            .resolve(&ID, &lease.owner, &Resolution::Release, &decision(&ID))
            .await
            .map(drop)
            .unwrap_err(),
        store.purge(1).await.map(drop).unwrap_err(),
    ] {
        assert!(!error.is_transient());
        assert!(error_chain(&error).contains("`migrate()`"), "{}", error_chain(&error));
    }
}

#[tokio::test]
async fn a_database_of_a_later_version_is_refused() {
    let file = File::new();
    let store = migrated(&file).await;
    let later = "INSERT INTO idempotency_records_migrations VALUES (99, 99, 0)";
    sqlx::query(later).execute(&file.pool().await).await.unwrap();
    let error = store.migrate().await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error_chain(&error).contains("version 99"), "{}", error_chain(&error));
}

#[tokio::test]
async fn two_tables_in_one_file_are_independent() {
    let file = File::new();
    let open = async |table| file.open_with(SqliteStore::options().table(table)).await;
    let (one, two) = (open("one").await, open("order").await);
    one.migrate().await.unwrap();
    two.migrate().await.unwrap();
    claim_and_complete(&one).await;
    assert_eq!(two.look_up(&ID).await.unwrap(), None);
    claim_and_complete(&two).await;
    let refused = SqliteStore::options().table("x; DROP TABLE one").connect(&file.url()).await;
    let error = refused.unwrap_err();
    assert!(!error.is_transient() && error_chain(&error).contains("`table`"), "{error:?}");
}

/// Overwrites a column of the only record, and bypasses the table's checks.
async fn corrupt(file: &File, change: &'static str) {
    let mut raw = file.options().pragma("ignore_check_constraints", "ON").connect().await.unwrap();
    let change = sqlx::AssertSqlSafe(format!("UPDATE idempotency_records SET {change}"));
    assert_eq!(sqlx::query(change).execute(&mut raw).await.unwrap().rows_affected(), 1);
}

#[tokio::test]
async fn an_unreadable_record_is_neither_run_again_nor_replayed() {
    for change in [
        "state = 7",
        "owner = x'00'",
        "fingerprint = x''",
        "attempt = -1",
        "attempt = 4294967296",
        "abandoned = 2",
        "lease = -1",
        "lease_until = -1",
        "first_seen = -1",
        "recording = NULL",
        "state = 1",
    ] {
        let file = File::new();
        let store = migrated(&file).await;
        claim_and_complete(&store).await;
        corrupt(&file, change).await;
        for _ in 0..2 {
            let error = store.claim(&ID, &claim()).await.unwrap_err();
            assert!(error.is_unreadable() && !error.is_transient(), "{change}");
            assert!(
                error_chain(&error).contains(change.split(' ').next().unwrap())
                    || change == "state = 1",
                "{}",
                error_chain(&error)
            );
            assert!(store.look_up(&ID).await.unwrap_err().is_unreadable(), "{change}");
            let in_transaction = store
                .transactions()
                .unwrap()
                .claim(&ID, &claim(), Duration::ZERO)
                .await
                .unwrap_err();
            assert!(in_transaction.is_unreadable(), "{change}");
        }
    }
}

async fn from_pool_error(pool: SqlitePool) -> String {
    let error = SqliteStore::from_pool(pool).await.unwrap_err();
    assert!(!error.is_transient());
    error_chain(&error)
}

#[tokio::test]
async fn a_pool_whose_settings_could_lose_records_is_refused_with_the_name_of_the_setting() {
    let file = File::new();
    let rollback = file.options().journal_mode(SqliteJournalMode::Delete);
    let refused = from_pool_error(SqlitePool::connect_with(rollback).await.unwrap()).await;
    assert!(refused.contains("`journal_mode` is `delete`"), "{refused}");

    let refused = from_pool_error(SqlitePool::connect("sqlite::memory:").await.unwrap()).await;
    assert!(refused.contains("`journal_mode` is `memory`"), "{refused}");

    let wal = file.options().journal_mode(SqliteJournalMode::Wal);
    for (synchronous, number) in [(SqliteSynchronous::Normal, 1), (SqliteSynchronous::Off, 0)] {
        let refused = from_pool_error(
            SqlitePool::connect_with(wal.clone().synchronous(synchronous)).await.unwrap(),
        )
        .await;
        assert!(refused.contains(&format!("`synchronous` is `{number}`")), "{refused}");
    }
    for synchronous in [SqliteSynchronous::Full, SqliteSynchronous::Extra] {
        let pool = SqlitePool::connect_with(wal.clone().synchronous(synchronous)).await.unwrap();
        assert!(SqliteStore::from_pool(pool).await.is_ok());
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_an_error_with_its_cause() {
    let error = SqliteStore::connect("sqlite:/nowhere/at/all/records.db").await.unwrap_err();
    assert!(error_chain(&error).contains("unable to open"), "{}", error_chain(&error));
    let missing = format!("{}?mode=rw", File::new().url());
    assert!(SqliteStore::connect(&missing).await.is_err());
}

/// The file's definitions of its tables and indexes.
async fn schema(file: &File) -> Vec<(String, String)> {
    let listed = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    sqlx::query_as(listed).fetch_all(&file.pool().await).await.unwrap()
}

#[tokio::test]
async fn the_documented_sql_creates_what_migrate_creates() {
    let document = include_str!("../../../MIGRATIONS.md");
    let section = document.split("\n## SQLite, version 1\n").nth(1).unwrap();
    let sql = section.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let (by_hand, by_migrate) = (File::new(), File::new());
    let script = format!("BEGIN; {sql} COMMIT;");
    sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&by_hand.pool().await).await.unwrap();
    migrated(&by_migrate).await;
    let migrated_schema = schema(&by_migrate).await;
    // One of them is created by SQLite for `AUTOINCREMENT`.
    assert_eq!(migrated_schema.len(), 7, "{migrated_schema:#?}");
    assert_eq!(schema(&by_hand).await, migrated_schema);
    claim_and_complete(&migrated(&by_hand).await).await;
    assert_eq!(schema(&by_hand).await, migrated_schema);
}

/// A statement that takes longer than any test waits.
const LONG_STATEMENT: &str = "WITH RECURSIVE n(i) AS \
    (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000000000) SELECT max(i) FROM n";

/// The handler is dropped during its statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_of_a_dropped_handler_blocks_no_writer() {
    let file = File::new();
    let store = migrated(&file).await;
    for rolls_back in [true, false] {
        let mut transaction = store.transactions().unwrap().begin().await.unwrap();
        let connection: &mut sqlx::SqliteConnection =
            transaction.connection_mut().downcast_mut().unwrap();
        let statement = sqlx::raw_sql(LONG_STATEMENT).execute(connection);
        tokio::time::timeout(Duration::from_millis(100), statement).await.unwrap_err();
        if rolls_back {
            transaction.roll_back().await;
        } else {
            drop(transaction)
        }
        let id = RecordId::from_bytes([u8::from(rolls_back); 32]);
        assert_eq!(
            store.claim(&id, &claim()).await.unwrap(),
            ClaimOutcome::Granted { attempt: 1 },
            "{rolls_back}"
        );
    }
}
