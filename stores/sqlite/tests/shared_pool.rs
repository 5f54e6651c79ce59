//! SQLite stores on a pool whose connections the application leaves in any state.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, RecordState, Store,
    protocol::{Claim, ClaimOutcome, Fence, Removal, RenewOutcome, Renewal},
    store::TransactionClaim,
};
use idempotent_sqlite::{SqliteStore, internals::batched_sqlite};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

use test_support::{decision, error_chain, subjects::sqlite::File};

const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(60))
}

fn id(key: u8) -> RecordId {
    RecordId::from_bytes([key; 32])
}

fn options(file: &File) -> SqliteConnectOptions {
    file.options().journal_mode(SqliteJournalMode::Wal)
}

async fn pool(file: &File, connections: u32) -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(connections);
    pool.connect_with(options(file)).await.unwrap()
}

/// Executes a statement on all connections of the pool, and returns them in whatever state they
/// are in then.
async fn leave_on_all(pool: &SqlitePool, statement: &'static str) {
    let mut connections = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await.unwrap();
        // It fails on a connection that still has a transaction open.
        let _ = sqlx::raw_sql(statement).execute(&mut *connection).await;
        connections.push(connection);
    }
}

/// Each step is seen by another process at once. It would not be if it were part of a transaction
/// that the application has left open.
#[tokio::test]
async fn a_connection_with_an_open_transaction_is_never_used() {
    const READING: &str = "BEGIN; SELECT count(*) FROM sqlite_schema";
    for (begin, alter) in [
        ("BEGIN", (|store| store) as fn(SqliteStore) -> SqliteStore),
        (READING, |store| store),
        ("BEGIN", batched_sqlite),
        (READING, batched_sqlite),
    ] {
        let file = File::new();
        let pool = pool(&file, 2).await;
        let store = alter(SqliteStore::from_pool(pool.clone()).await.unwrap());
        store.migrate().await.unwrap();
        let other = file.open().await;
        for key in 0..3 {
            let (id, claim) = (id(key), claim());
            let lease = Lease { id, owner: claim.owner };
            leave_on_all(&pool, begin).await;
            // A transaction that reads cannot write after this.
            other.purge(1).await.unwrap();
            assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED, "{begin}");
            let found = other.look_up(&id).await.unwrap().expect("the claim is committed");
            assert_eq!(found.record.state, RecordState::InFlight);

            leave_on_all(&pool, begin).await;
            let renewal = Renewal::new(lease, Duration::from_secs(60));
            assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);

            leave_on_all(&pool, begin).await;
            let recording = Bytes::from_static(b"done");
            assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
            let found = other.look_up(&id).await.unwrap().unwrap();
            assert_eq!(found.record.state, RecordState::Completed(recording), "{begin}");
        }
    }
}

/// A transaction that was left open would read the records as they were when it began.
#[tokio::test]
async fn no_snapshot_that_the_application_left_open_is_read() {
    let file = File::new();
    let pool = pool(&file, 3).await;
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    leave_on_all(&pool, "BEGIN; SELECT count(*) FROM idempotency_records").await;
    file.open().await.claim(&id(0), &claim()).await.unwrap();
    assert!(store.look_up(&id(0)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_transaction_begins_although_all_connections_have_one_open() {
    let file = File::new();
    let pool = pool(&file, 2).await;
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    let transactions = store.transactions().unwrap();
    leave_on_all(&pool, "BEGIN").await;
    transactions.begin().await.unwrap().commit().await.unwrap();
    leave_on_all(&pool, "BEGIN").await;
    let claimed = transactions.claim(&id(0), &claim(), Duration::ZERO).await.unwrap();
    assert!(matches!(claimed, TransactionClaim::Granted { .. }), "{claimed:?}");
}

#[tokio::test]
async fn a_connection_whose_setting_could_lose_records_is_not_used() {
    let file = File::new();
    let pool = pool(&file, 2).await;
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    for (key, setting) in [(0, "PRAGMA synchronous = OFF"), (1, "PRAGMA synchronous = NORMAL")] {
        leave_on_all(&pool, setting).await;
        assert_eq!(store.claim(&id(key), &claim()).await.unwrap(), GRANTED);
        let synchronous: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&pool).await.unwrap();
        assert_eq!(synchronous, 2, "{setting}: the claim was not committed on a new connection");
    }
}

#[tokio::test]
async fn if_no_connection_is_safe_the_error_names_the_setting() {
    let file = File::new();
    let careless = Arc::new(AtomicBool::new(false));
    let hook = careless.clone();
    let pool = SqlitePoolOptions::new()
        .max_connections(2)
        .after_connect(move |connection, _| {
            let careless = hook.load(Ordering::SeqCst);
            Box::pin(async move {
                if careless {
                    sqlx::raw_sql("PRAGMA synchronous = OFF").execute(connection).await?;
                }
                Ok(())
            })
        })
        .connect_with(options(&file))
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    careless.store(true, Ordering::SeqCst);
    leave_on_all(&pool, "PRAGMA synchronous = OFF").await;
    let error = store.claim(&id(0), &claim()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error_chain(&error).contains("`synchronous` is `0`"), "{}", error_chain(&error));
    careless.store(false, Ordering::SeqCst);
    assert_eq!(store.claim(&id(0), &claim()).await.unwrap(), GRANTED);
}

/// Names that hide the store's table, its list of migrations, and what its statements use.
const HIDING: &str = "CREATE TEMP TABLE idempotency_records (id);
    CREATE TEMP TABLE idempotency_records_migrations (version, compatible_from);
    INSERT INTO idempotency_records_migrations VALUES (99, 99);
    CREATE TEMP TABLE idempotency_records_audit (number);
    CREATE TEMP TABLE json_each (value);
    CREATE TEMP TABLE pragma_synchronous (synchronous);
    CREATE TEMP TABLE pragma_journal_mode (journal_mode);
    CREATE TEMP TABLE pragma_busy_timeout (timeout);
    CREATE TEMP TABLE pragma_database_list (name, file)";

#[tokio::test]
async fn temporary_tables_of_the_application_hide_nothing() {
    let file = File::new();
    let pool = SqlitePoolOptions::new()
        .after_connect(|connection, _| {
            Box::pin(async { sqlx::raw_sql(HIDING).execute(connection).await.map(drop) })
        })
        .connect_with(options(&file))
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let indexes: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM main.sqlite_schema WHERE type = 'index' AND sql IS NOT NULL \
         AND tbl_name = 'idempotency_records'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(indexes, 3);
    let claim = claim();
    let lease = Lease { id: id(0), owner: claim.owner };
    assert_eq!(store.claim(&lease.id, &claim).await.unwrap(), GRANTED);
    let renewal = Renewal::new(lease, Duration::from_secs(60));
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    let recording = Bytes::from_static(b"done");
    assert_eq!(transaction.complete(&lease, &recording).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    let found = file.open().await.look_up(&lease.id).await.unwrap().unwrap();
    assert_eq!(found.record.state, RecordState::Completed(recording));
    let removal = Removal::of_completed(lease.owner);
    let administration = store.administration().unwrap();
    assert!(administration.remove(&lease.id, &removal, &decision(&lease.id)).await.unwrap());
    assert_eq!(administration.audit(None, 2).await.unwrap().entries.len(), 1);
}
