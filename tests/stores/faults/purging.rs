//! How much a purge reads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use idempotent_core::Store;
use idempotent_postgres::PostgresStore;
use idempotent_sqlite::SqliteStore;
use sqlx::{
    AssertSqlSafe, SqliteConnection, SqlitePool,
    sqlite::{SqliteJournalMode, SqlitePoolOptions},
};

use test_support::{
    WAIT_LIMIT,
    servers::postgres::{database, number, sql},
    subjects::{postgres::store, sqlite::File},
};
use tokio::time::{Instant, sleep};

/// Records past their ttl that a purge never removes: half of them are held, and the processes of
/// the others have died.
const HELD: i64 = 20_000;
/// Completed records past their ttl.
const EXPIRED: i64 = 100;
/// Completed records within their ttl.
const LIVE: i64 = 20_000;
const LIMIT: u32 = 1_000;

const POSTGRES: &str = "INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, \
    lease_until, first_seen, expires_at, state, abandoned, recording)
    SELECT sha256(convert_to('KIND' || n, 'UTF8')), decode(repeat('07', 36), 'hex'), \
    decode(repeat('08', 16), 'hex'), 1, 1, 1, 1, 2 + n % 1000, STATE, ABANDONED, RECORDING \
    FROM generate_series(1, COUNT) AS n";
const SQLITE: &str = "WITH RECURSIVE numbers (n) AS \
    (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT COUNT)
    INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, lease_until, \
    first_seen, expires_at, state, abandoned, recording)
    SELECT randomblob(32), zeroblob(36), zeroblob(16), 1, 1, 1, 1, 2 + n % 1000, STATE, ABANDONED, \
    RECORDING FROM numbers";

/// The statement that inserts records of one kind.
fn insert(text: &str, kind: &str, [state, abandoned, recording]: [&str; 3], count: i64) -> String {
    text.replace("KIND", kind)
        .replace("STATE", state)
        .replace("ABANDONED", abandoned)
        .replace("RECORDING", recording)
        .replace("COUNT", &count.to_string())
}

fn held(text: &str) -> [String; 2] {
    [["3", "0", "NULL"], ["1", "1", "NULL"]].map(|columns| {
        insert(text, &format!("held {columns:?}").replace('"', ""), columns, HELD / 2)
    })
}

/// Purges with a store of its own, and returns how many rows the purge has read. The server counts
/// them when the store's sessions end.
async fn rows_read(url: &str) -> i64 {
    let read = "SELECT sum(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables \
        WHERE relname LIKE 'idempotency_records%'";
    let sessions = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid() \
        AND backend_type = 'client backend'";
    let ended = async || {
        let until = Instant::now() + WAIT_LIMIT;
        while number(url, sessions).await > 0 {
            assert!(Instant::now() < until, "the store's sessions do not end");
            sleep(Duration::from_millis(10)).await;
        }
    };
    ended().await;
    let before = number(url, read).await;
    let store = PostgresStore::connect(url).await.unwrap();
    assert_eq!(store.purge(LIMIT).await.unwrap(), EXPIRED.unsigned_abs());
    drop(store);
    ended().await;
    number(url, read).await - before
}

/// Fails if a purge reads held records again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_purge_reads_each_held_record_once() {
    let (store, url) = store().await;
    drop(store);
    for text in held(POSTGRES) {
        sql(&url, text).await;
    }
    let mut read = Vec::new();
    for round in ["a", "b", "c"] {
        sql(&url, insert(POSTGRES, round, ["2", "1", "'\\x01'"], EXPIRED)).await;
        // Removes the index entries of records that the last purge has marked or removed.
        sql(&url, "VACUUM ANALYZE idempotency_records").await;
        read.push(rows_read(&url).await);
    }
    println!("rows: {read:?}");
    let once = HELD..HELD * 8;
    assert!(once.contains(&read[0]), "the first purge did not read the held records: {read:?}");
    assert!(read[1..].iter().all(|rows| *rows < HELD / 4), "{read:?}");
    assert_eq!(number(&url, "SELECT count(*) FROM idempotency_records").await, HELD);
}

/// A database whose table has 16 partitions.
async fn partitions() -> String {
    let url = database().await;
    let store = PostgresStore::options().partitions(16).connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    url
}

/// Fails if a purge reads the live records of the partitions, as the planner would choose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_purge_of_partitions_reads_no_live_record() {
    let url = partitions().await;
    sql(&url, insert(POSTGRES, "live", ["2", "1", "'\\x01'"], LIVE)).await;
    sql(&url, "UPDATE idempotency_records SET expires_at = 9e15").await;
    sql(&url, insert(POSTGRES, "expired", ["2", "1", "'\\x01'"], EXPIRED)).await;
    sql(&url, insert(POSTGRES, "held", ["3", "0", "NULL"], EXPIRED)).await;
    sql(&url, "VACUUM (FULL, ANALYZE) idempotency_records").await;
    let read = rows_read(&url).await;
    println!("rows: {read}");
    assert!(read < LIVE / 4, "{read}");
}

/// The planner overestimates the cost of a purge of many partitions. Compiling it to machine code
/// takes a hundred times as long as the purge itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_no_purge_is_compiled_to_machine_code() {
    let url = partitions().await;
    sql(&url, "CREATE EXTENSION pg_stat_statements").await;
    let costs = ["above", "inline_above", "optimize_above"]
        .map(|cost| format!("ALTER DATABASE current SET jit_{cost}_cost = 0;"));
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    sql(&url, costs.concat().replace("current", name)).await;
    let compiled = async |query: &str| {
        let functions = "SELECT count(*) FILTER (WHERE jit_functions > 0) \
            FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid \
            WHERE d.datname = current_database() AND query LIKE ";
        number(&url, format!("{functions}'{query}'")).await
    };
    // The server can compile, and counts it.
    number(&url, "SELECT count(*) FROM idempotency_records").await;
    assert_eq!(compiled("SELECT count(*) FROM idempotency_records").await, 1);
    sql(&url, insert(POSTGRES, "expired", ["2", "1", "'\\x01'"], EXPIRED)).await;
    sql(&url, insert(POSTGRES, "held", ["3", "0", "NULL"], EXPIRED)).await;
    rows_read(&url).await;
    assert_eq!(compiled("WITH%idempotency_records%").await, 0);
}

/// Counts the instructions of SQLite's virtual machine, in units of 100.
async fn count_instructions(
    connection: &mut SqliteConnection,
    counted: Arc<AtomicI64>,
) -> Result<(), sqlx::Error> {
    connection.lock_handle().await?.set_progress_handler(100, move || {
        counted.fetch_add(100, Ordering::Relaxed);
        true
    });
    Ok(())
}

/// Fails if a purge reads held records again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_purge_reads_each_held_record_once() {
    let (file, instructions) = (File::new(), Arc::new(AtomicI64::new(0)));
    let counted = instructions.clone();
    let pool: SqlitePool = SqlitePoolOptions::new()
        .max_connections(2)
        .after_connect(move |connection, _| {
            Box::pin(count_instructions(connection, counted.clone()))
        })
        .connect_with(file.options().journal_mode(SqliteJournalMode::Wal))
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool).await.unwrap();
    store.migrate().await.unwrap();
    let rows = file.pool().await;
    for text in held(SQLITE) {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&rows).await.unwrap();
    }
    let mut executed = Vec::new();
    for round in ["a", "b", "c"] {
        let expired = insert(SQLITE, round, ["2", "1", "x'01'"], EXPIRED);
        sqlx::raw_sql(AssertSqlSafe(expired)).execute(&rows).await.unwrap();
        let before = instructions.load(Ordering::Relaxed);
        assert_eq!(store.purge(LIMIT).await.unwrap(), EXPIRED.unsigned_abs(), "{round}");
        executed.push(instructions.load(Ordering::Relaxed) - before);
    }
    println!("instructions: {executed:?}");
    assert!(executed[0] > HELD * 4, "the first purge did not read the held records: {executed:?}");
    assert!(executed[1..].iter().all(|executed| *executed < HELD), "{executed:?}");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_records")
        .fetch_one(&rows)
        .await
        .unwrap();
    assert_eq!(left, HELD);
}
