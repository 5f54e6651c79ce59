//! Ends of attempts that reach the store later than their lease would have expired.

use std::{sync::Arc, time::Duration};

use idempotent_core::{
    Abandoned, Policy, RecordId, Runtime, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
    store::memory::MemoryStore,
};
use idempotent_redis::RedisStore;
use test_support::{
    Fault, FaultyStore, Op,
    cuts::{digest, id, recording, runtime},
    servers::postgres::sql,
    subjects::{postgres, redis::TestServer, sqlite::File},
};
use tokio::time::{Instant, sleep};

use super::proceed;

const LEASE: Duration = Duration::from_millis(900);
const POLICY: Policy = Policy::DEFAULT.with_lease(LEASE);

/// Claims a key in another process until `duration` has passed. Another attempt never runs.
async fn claim_for(duration: Duration, other: &Runtime, id: RecordId) {
    let began = Instant::now();
    while began.elapsed() < duration {
        match other.begin(id, digest(), &POLICY).await.unwrap() {
            Admission::Rejected(verdict) => {
                assert!(
                    matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })),
                    "{verdict:?}"
                );
            }
            Admission::Proceed(attempt) => panic!("attempt {} runs", attempt.number()),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// An end that hangs for three leases on its way to the store.
async fn check(store: impl Store) {
    let store = Arc::new(store);
    store.migrate().await.unwrap();
    let other = runtime(store.clone());
    for op in [Op::Complete, Op::Abandon] {
        let (faulty, id) = (FaultyStore::around(store.clone()), id());
        let attempt = proceed(&runtime(faulty.clone()), id, &POLICY).await;
        faulty.set_fault(op, 1, Fault::HangBefore);
        let ending = tokio::spawn(async move {
            if op == Op::Complete {
                attempt.complete(&recording()).await
            } else {
                attempt.abandon(Abandoned::Hold).await
            }
        });
        claim_for(3 * LEASE, &other, id).await;
        faulty.resume();
        assert_eq!(ending.await.unwrap(), AttemptOutcome::Stored, "{op:?}");
        let begun = other.begin(id, digest(), &POLICY).await.unwrap();
        assert!(
            matches!(
                begun,
                Admission::Rejected(Verdict::Rejected(
                    Rejection::Completed(_) | Rejection::Held { .. }
                ))
            ),
            "{op:?}: {begun:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_an_end_that_takes_longer_than_its_lease_is_not_overtaken() {
    check(MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_an_end_that_takes_longer_than_its_lease_is_not_overtaken() {
    let file = File::new();
    check(file.open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_an_end_that_takes_longer_than_its_lease_is_not_overtaken() {
    check(postgres::store().await.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_an_end_that_takes_longer_than_its_lease_is_not_overtaken() {
    let server = TestServer::start();
    check(RedisStore::connect(server.url()).await.unwrap()).await;
}

/// The completion in the transaction of a handler waits before it locks the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_commit_that_takes_longer_than_its_lease_is_not_overtaken() {
    let (store, url) = postgres::store().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF current_query() LIKE '%recording = CASE%' THEN PERFORM pg_sleep(3); END IF; \
         RETURN NULL; END $$;
        CREATE TRIGGER slow BEFORE UPDATE ON idempotency_records \
         FOR EACH STATEMENT EXECUTE FUNCTION slow()";
    sql(&url, slow).await;
    let (runtime, other, id) = (runtime(store.clone()), runtime(store), id());
    let mut attempt: Attempt = proceed(&runtime, id, &POLICY).await;
    attempt.begin_transaction().await.unwrap();
    let ending = tokio::spawn(async move { attempt.complete(&recording()).await });
    claim_for(Duration::from_millis(2_700), &other, id).await;
    assert!(!ending.is_finished(), "the completion does not wait");
    assert_eq!(ending.await.unwrap(), AttemptOutcome::Stored);
    let begun = other.begin(id, digest(), &POLICY).await.unwrap();
    assert!(
        matches!(begun, Admission::Rejected(Verdict::Rejected(Rejection::Completed(_)))),
        "{begun:?}"
    );
}
