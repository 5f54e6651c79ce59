//! What a claim in a transaction reads of a record that another transaction commits meanwhile.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    RecordId,
    protocol::{Fence, Rejection},
    store::{Store as _, TransactionClaim},
};
use idempotent_postgres::PostgresStore;
use sqlx::PgPool;
use tokio::time::sleep;

use crate::{
    helpers::{database, id, number, request, with},
    transaction_claims::{claim, connection, granted, rejected, stores},
};

const DONE: Bytes = Bytes::from_static(b"done");
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                       AND datname = current_database()";

/// A read that began before the lock was taken would not see the record, and the claim would then
/// get the lock of the transaction that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_the_lock_of_its_key_before_it_reads_the_record() {
    let ([store, other], url) = stores().await;
    // Prepares the statements in the session that the claim will use.
    granted(&other, &id()).await.1.roll_back().await;
    for _ in 0..5 {
        let id = id();
        let (lease, mut transaction) = granted(&store, &id).await;
        let lock = "LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE";
        sqlx::raw_sql(lock).execute(connection(&mut transaction)).await.unwrap();
        let duplicate = tokio::spawn({
            let other = other.clone();
            async move {
                let transactions = other.transactions().unwrap();
                transactions.claim(&id, &request(), Duration::ZERO).await
            }
        });
        while number(&url, WAITING).await == 0 && !duplicate.is_finished() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
        // The claim was not granted. On a busy machine its wait for the table has ended before.
        match duplicate.await.unwrap() {
            Ok(TransactionClaim::Granted { .. }) => panic!("a completed key was granted"),
            Ok(TransactionClaim::Rejected(_)) => {}
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        assert_eq!(rejected(claim(&other, &id, Duration::ZERO).await), Rejection::Completed(DONE));
    }
}

/// Claims a key again and again until it is no longer in flight.
async fn claim_until_completed(store: PostgresStore, id: RecordId) -> Rejection {
    loop {
        match claim(&store, &id, Duration::ZERO).await.1 {
            TransactionClaim::Rejected(Rejection::InFlight { .. }) => {}
            TransactionClaim::Rejected(rejection) => return rejection,
            TransactionClaim::Granted { .. } => panic!("a completed key was granted"),
        }
    }
}

/// Above READ COMMITTED the only snapshot of a transaction is older than its lock. Between the two
/// the record may be committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_read_committed_a_claim_does_not_read_in_its_transaction() {
    let url = with(&database().await, "options=-cdefault_transaction_isolation%3Dserializable");
    let prepared = with(&url, "statement-cache-capacity=64");
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let pool = PgPool::connect(&prepared).await.unwrap();
    for other in [
        PostgresStore::connect(&prepared).await.unwrap(),
        PostgresStore::connect(&url).await.unwrap(),
        PostgresStore::from_pool(pool).await.unwrap(),
    ] {
        for _ in 0..150 {
            let id = id();
            let (lease, transaction) = granted(&store, &id).await;
            let duplicates =
                [(); 8].map(|()| tokio::spawn(claim_until_completed(other.clone(), id)));
            sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
            let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
            assert_eq!(fence, Fence::Passed);
            for duplicate in duplicates {
                assert_eq!(duplicate.await.unwrap(), Rejection::Completed(DONE));
            }
        }
        let id = id();
        let (lease, transaction) = granted(&store, &id).await;
        let waits = tokio::spawn({
            let other = other.clone();
            async move { claim(&other, &id, Duration::from_secs(60)).await }
        });
        sleep(Duration::from_millis(20)).await;
        assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
        assert_eq!(rejected(waits.await.unwrap()), Rejection::Completed(DONE));
    }
}
