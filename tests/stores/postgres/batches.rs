//! Claims and completions that are executed in batches.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, Store,
    internals::batched_postgres,
    protocol::{Claim, Fence, RenewOutcome, Renewal},
    store::postgres::PostgresStore,
};
use sqlx::postgres::PgPoolOptions;
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

use super::{check, database, number, sql, state_machine::assert_follows, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches() {
    let url = database().await;
    check(batched_postgres(PostgresStore::connect(&url).await.unwrap()), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_on_connections_of_the_application() {
    let url = database().await;
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    check(batched_postgres(PostgresStore::from_pool(pool).await.unwrap()), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_with_serializable_isolation() {
    let url = with(&database().await, "options=-cdefault_transaction_isolation%3Dserializable");
    let prepared = with(&url, "statement-cache-capacity=64");
    for url in [url, prepared] {
        check(batched_postgres(PostgresStore::connect(&url).await.unwrap()), &url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_in_batches() {
    let url = database().await;
    let store = batched_postgres(PostgresStore::connect(&url).await.unwrap().partitions(4));
    assert_follows(store, &url, 200..206).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_behind_a_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    check(batched_postgres(store), &server.url("postgres")).await;
}

/// Claims a key, renews its lease, and completes it, each step in a batch of its own.
async fn run(store: &PostgresStore, key: u8) {
    let claim =
        Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
            .with_lease(Duration::from_secs(30))
            .with_ttl(Duration::from_secs(3600));
    let lease = Lease { id: RecordId::from_bytes([key; 32]), owner: claim.owner };
    store.claim(&lease.id, &claim).await.unwrap();
    let renewed = store.renew(&[Renewal::new(lease, Duration::from_secs(30))]).await.unwrap();
    assert_eq!(renewed, [RenewOutcome::Renewed]);
    let completed = store.complete(&lease, &Bytes::from_static(b"recording")).await.unwrap();
    assert_eq!(completed, Fence::Passed);
}

/// The server plans a statement anew five times, and then keeps the plan. On an empty table, to
/// read all of an index is as cheap as a lookup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_were_planned_on_an_empty_table_read_no_other_records() {
    const OTHERS: i64 = 10_000;
    let url = database().await;
    sql(&url, "CREATE EXTENSION pg_stat_statements").await;
    let store = batched_postgres(PostgresStore::connect(&url).await.unwrap().partitions(64));
    store.migrate().await.unwrap();
    sql(&url, "VACUUM ANALYZE idempotency_records").await;
    for key in 0..10 {
        run(&store, key).await;
    }
    let others = format!(
        "INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, lease_until, \
         first_seen, expires_at, state, abandoned) \
         SELECT sha256(int8send(n)), decode(repeat('07', 36), 'hex'), \
         decode(repeat('08', 16), 'hex'), 1, 1, 9e15, 1, 9e15, 1, 0 \
         FROM generate_series(1::bigint, {OTHERS}) AS n"
    );
    sql(&url, others).await;
    // Each row that a statement reads is in a page that it reads.
    let pages = "SELECT sum(shared_blks_hit + shared_blks_read)::bigint \
        FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid \
        WHERE d.datname = current_database() AND query LIKE '%unnest(%'";
    let before = number(&url, pages).await;
    run(&store, 10).await;
    let read = number(&url, pages).await - before;
    println!("pages: {read}");
    assert!(read < OTHERS / 4, "{read}");
}
