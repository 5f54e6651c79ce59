//! Plans that a session keeps.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, Store,
    protocol::{Claim, Fence, RenewOutcome, Renewal},
};
use idempotent_postgres::{PostgresStore, internals::batched_postgres};

use crate::helpers::{database, number, sql};

const OTHERS: i64 = 10_000;
const FEW_PAGES: i64 = 150;

/// Claims a key, renews its lease, and completes it, one step after the other.
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

/// Lets the server plan the store's statements on an empty table, and returns how many pages they
/// read for one more key, once there are other records.
async fn pages_read(store: &PostgresStore, url: &str) -> i64 {
    sql(url, "CREATE EXTENSION pg_stat_statements").await;
    store.migrate().await.unwrap();
    sql(url, "VACUUM ANALYZE idempotency_records").await;
    // A session keeps the plan that it makes after five executions, until the table is analyzed.
    for key in 0..100 {
        run(store, key).await;
        if key == 89 {
            sql(url, "DELETE FROM idempotency_records").await;
            sql(url, "VACUUM ANALYZE idempotency_records").await;
        }
    }
    let others = format!(
        "INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, lease_until, \
         first_seen, expires_at, state, abandoned) \
         SELECT sha256(int8send(n)), decode(repeat('07', 36), 'hex'), \
         decode(repeat('08', 16), 'hex'), 1, 1, 9e15, 1, 9e15, 1, 0 \
         FROM generate_series(1::bigint, {OTHERS}) AS n"
    );
    sql(url, others).await;
    let pages = "SELECT sum(shared_blks_hit + shared_blks_read)::bigint \
        FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid \
        WHERE d.datname = current_database() AND query ~ '^(WITH|UPDATE)'";
    let before = number(url, pages).await;
    run(store, 100).await;
    let read = number(url, pages).await - before;
    println!("pages: {read}");
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_were_planned_on_an_empty_table_read_no_other_records() {
    let url = database().await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let read = pages_read(&store, &url).await;
    assert!(read < FEW_PAGES, "{read}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_were_planned_on_empty_partitions_read_no_other_records() {
    let url = database().await;
    let store = PostgresStore::options().partitions(64).connect(&url).await.unwrap();
    let store = batched_postgres(store);
    let read = pages_read(&store, &url).await;
    assert!(read < FEW_PAGES, "{read}");
}
