//! How a locked record, a call that hangs, or a handler that never ends affects other requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, Policy, Store, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    runtime::{Admission, Verdict},
};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection, Executor, PgConnection, postgres::PgPoolOptions};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    helpers::{id, number, request, sql, store, with},
    observed_sessions::ObservedSessions,
};
use test_support::{
    cuts::{digest, runtime},
    timing::one_of_five_within,
};

/// Repeats a call while its error is transient, for at most 30 s. On a busy machine a probe may
/// time out while calls wait, and the store is then considered down until the next probe.
async fn retry_while_transient<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match call().await {
            Ok(outcome) => return outcome,
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                sleep(Duration::from_millis(50)).await
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The outcome of a call, and how long it took.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let outcome = call.await;
    (outcome, began.elapsed())
}

async fn claim_new_key(store: &PostgresStore) -> Lease {
    let (id, claim) = (id(), request());
    assert_eq!(
        retry_while_transient(|| store.claim(&id, &claim)).await,
        ClaimOutcome::Granted { attempt: 1 }
    );
    Lease { id, owner: claim.owner }
}

fn renewal(lease: &Lease) -> Renewal {
    Renewal::new(*lease, Duration::from_secs(30))
}

fn literal(lease: &Lease) -> String {
    format!(
        "'\\x{}'",
        lease.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    )
}

/// A session that holds a lock until it is dropped.
async fn hold_lock(url: &str, text: &str) -> PgConnection {
    let mut other = PgConnection::connect(url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut other).await.unwrap();
    other
}

#[tokio::test]
async fn a_locked_record_does_not_block_the_renewal_of_other_leases() {
    let (store, url) = store().await;
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push(claim_new_key(&store).await);
    }
    let lock =
        format!("SELECT FROM idempotency_records WHERE id = {} FOR UPDATE", literal(&leases[3]));
    let other = hold_lock(&url, &lock).await;
    let stale = Lease { owner: request().owner, ..leases[0] };
    let all: Vec<_> = leases.iter().chain([&stale]).map(renewal).collect();
    let mut expected = [RenewOutcome::Renewed; 9];
    (expected[3], expected[8]) = (RenewOutcome::Unknown, RenewOutcome::Fenced);
    one_of_five_within(Duration::from_secs(3), async || {
        let (renewed, took) = timed(store.renew(&all)).await;
        assert_eq!(renewed.unwrap(), expected);
        took
    })
    .await;
    other.close().await.unwrap();
    // The server may notice with a delay that the other session has ended.
    for _ in 0..100 {
        match store.renew(&[renewal(&leases[3])]).await.unwrap()[..] {
            [RenewOutcome::Renewed] => return,
            [RenewOutcome::Unknown] => sleep(Duration::from_millis(20)).await,
            ref other => panic!("{other:?}"),
        }
    }
    panic!("the lease is not renewed after the lock is released");
}

#[tokio::test]
async fn a_lease_is_not_lost_while_its_completion_is_in_progress() {
    let (store, _) = store().await;
    let (lease, other_lease) = (claim_new_key(&store).await, claim_new_key(&store).await);
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    assert_eq!(
        transaction.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(),
        Fence::Passed
    );
    let both = [renewal(&lease), renewal(&other_lease)];
    // The completion is not committed yet.
    let renewed = timeout(Duration::from_secs(30), store.renew(&both))
        .await
        .expect("the call waits for the lock")
        .unwrap();
    assert_eq!(renewed, [RenewOutcome::Unknown, RenewOutcome::Renewed]);
    transaction.commit().await.unwrap();
    assert_eq!(store.renew(&both).await.unwrap(), [RenewOutcome::Fenced, RenewOutcome::Renewed]);
}

#[tokio::test]
async fn more_leases_than_one_statement_renews_are_all_renewed() {
    let (store, _) = store().await;
    let (first, last) = (claim_new_key(&store).await, claim_new_key(&store).await);
    let unknown: Vec<_> =
        (0..2_500).map(|_| renewal(&Lease { id: id(), owner: first.owner })).collect();
    let renewed =
        store.renew(&[&[renewal(&first)], &unknown[..], &[renewal(&last)]].concat()).await.unwrap();
    assert_eq!(
        (renewed.first(), renewed.last()),
        (Some(&RenewOutcome::Renewed), Some(&RenewOutcome::Renewed))
    );
    assert_eq!(renewed.iter().filter(|outcome| **outcome == RenewOutcome::Fenced).count(), 2_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncommitted_record_is_in_flight_and_delays_no_other_key() {
    let (store, url) = store().await;
    let lease = Lease { id: id(), owner: request().owner };
    let insert = format!(
        "INSERT INTO idempotency_records VALUES ({}, decode(repeat('01', 36), 'hex'), \
         decode(repeat('01', 16), 'hex'), 1, 0, 0, 0, 0, 1, 0)",
        literal(&lease)
    );
    let other = hold_lock(&url, &insert).await;
    one_of_five_within(Duration::from_secs(3), async || {
        let (outcome, took) = timed(store.claim(&lease.id, &request())).await;
        assert_eq!(outcome.unwrap(), ClaimOutcome::IN_FLIGHT);
        println!("a claim waits for {took:?}");
        took
    })
    .await;

    // More duplicates than connections.
    let (runtime, done) = (runtime(store.clone()), Arc::new(AtomicBool::new(false)));
    let mut duplicates = JoinSet::new();
    for _ in 0..16 {
        let (runtime, done) = (runtime.clone(), done.clone());
        let policy = Policy::DEFAULT.with_wait(Duration::from_secs(4));
        duplicates.spawn(async move {
            let begun = runtime.begin(lease.id, digest(), &policy).await.unwrap();
            (begun, done.load(Ordering::Relaxed))
        });
    }
    // As a control, a store without duplicates measures how slow the machine is.
    let control = PostgresStore::connect(&url).await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        let (control_call, call) =
            tokio::join!(timed(claim_new_key(&control)), timed(claim_new_key(&store)));
        slowest = slowest.max(call.1.saturating_sub(control_call.1));
    }
    assert!(duplicates.try_join_next().is_none(), "a duplicate did not wait");
    println!("the slowest claim of another key took {slowest:?} longer than the control");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    // When the other session ends, one duplicate gets the key.
    done.store(true, Ordering::Relaxed);
    other.close().await.unwrap();
    let begun = duplicates.join_all().await;
    assert_eq!(
        begun
            .iter()
            .filter(|(begun, done)| *done && matches!(begun, Admission::Proceed(_)))
            .count(),
        1,
        "{begun:?}"
    );
    assert!(begun.iter().all(|(begun, _)| matches!(
        begun,
        Admission::Proceed(_) | Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))
    )));
}

#[tokio::test]
async fn ends_that_wait_for_a_locked_record_time_out() {
    let (store, url) = store().await;
    let lease = claim_new_key(&store).await;
    let other = hold_lock(&url, "SELECT FROM idempotency_records FOR UPDATE").await;
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    let response = Bytes::from_static(b"done");
    let in_transaction = timed(transaction.complete(&lease, &response)).await;
    println!("a completion in a transaction waited for {:?}", in_transaction.1);
    assert!(in_transaction.0.is_err_and(|error| error.is_transient()));
    transaction.roll_back().await;
    one_of_five_within(Duration::from_secs(9).saturating_sub(in_transaction.1), async || {
        let ends = async {
            [
                store.complete(&lease, &response).await.unwrap_err(),
                store.release(&lease).await.unwrap_err(),
                store.abandon(&lease, Abandoned::Hold).await.unwrap_err(),
            ]
        };
        let (errors, took) = timed(ends).await;
        println!("three ends waited for {took:?}");
        assert!(errors.iter().all(StoreError::is_transient), "{errors:?}");
        took
    })
    .await;
    other.close().await.unwrap();
    // The lock may briefly outlive the session's client.
    assert_eq!(retry_while_transient(|| store.complete(&lease, &response)).await, Fence::Passed);
}

/// A locked table is not reported as a key in flight.
#[tokio::test]
async fn a_claim_that_waits_for_the_table_is_a_transient_error() {
    let (store, url) = store().await;
    let _other = hold_lock(&url, "LOCK TABLE idempotency_records").await;
    let error = timeout(Duration::from_secs(5), store.claim(&id(), &request()))
        .await
        .expect("the call waits for the lock")
        .unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = \
    'idempotency' AND datname = current_database()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_no_sessions_behind() {
    let (store, url) = store().await;
    let lease = claim_new_key(&store).await;
    // On a busy machine the calls may end before all sessions are open.
    while number(&url, SESSIONS).await < 5 {
        let claims = (0..30).map(|_| {
            let store = store.clone();
            async move { claim_new_key(&store).await }
        });
        claims.collect::<JoinSet<_>>().join_all().await;
    }
    let other = hold_lock(&url, "LOCK TABLE idempotency_records").await;
    let watch = ObservedSessions::observe(&url, SESSIONS);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        calls.spawn(async move {
            let mut given_up = 0;
            for _ in 0..20 {
                let empty = Bytes::new();
                let call = timeout(Duration::from_millis(150), store.complete(&lease, &empty));
                given_up += u32::from(call.await.is_err());
            }
            given_up
        });
    }
    let given_up: u32 = calls.join_all().await.iter().sum();
    let [most, lasting] = watch.most();
    println!("{given_up} calls were given up, with {most} sessions at most, {lasting} for long");
    assert!(given_up >= 200 && most >= 5, "{given_up}, {most}");
    // Ten for steps, two more for late batches, one for renewals, and one for the probe.
    assert!(lasting <= 14, "{lasting} sessions");
    other.close().await.unwrap();
    let empty = Bytes::new();
    assert_eq!(retry_while_transient(|| store.complete(&lease, &empty)).await, Fence::Passed);
}

const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' \
    AND datname = current_database() AND pid <> pg_backend_pid()";

/// Drops ten handlers during a statement that takes ten minutes.
async fn abandon_handlers(store: &PostgresStore) {
    let mut handlers = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        handlers.spawn(async move {
            let mut transaction =
                retry_while_transient(|| store.transactions().unwrap().begin()).await;
            let connection: &mut PgConnection =
                transaction.connection_mut().downcast_mut().unwrap();
            let sleep = sqlx::raw_sql("SELECT pg_sleep(600)").execute(connection);
            timeout(Duration::from_millis(300), sleep).await.unwrap_err();
        });
    }
    handlers.join_all().await;
}

async fn await_no_sleeping_session(url: &str) {
    for _ in 0..150 {
        if number(url, SLEEPING).await == 0 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("{} sessions are still running", number(url, SLEEPING).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handlers_leave_no_sessions_behind() {
    let (store, url) = store().await;
    let watch = ObservedSessions::observe(&url, SLEEPING);
    for _ in 0..3 {
        abandon_handlers(&store).await;
    }
    await_no_sleeping_session(&url).await;
    let [most, lasting] = watch.most();
    println!("{most} sessions at most, {lasting} for long");
    assert!(most >= 5 && lasting <= 10, "{most} sessions, {lasting} for long");
    retry_while_transient(|| store.transactions().unwrap().begin()).await.roll_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handlers_on_connections_of_the_application_end() {
    let (_, url) = store().await;
    let pool = PgPoolOptions::new().max_connections(10).connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool).await.unwrap();
    abandon_handlers(&store).await;
    assert!(number(&url, SLEEPING).await > 0, "no handler was running");
    await_no_sleeping_session(&url).await;
    claim_new_key(&store).await;
}

/// Sessions of the application do not have the store's settings, so each statement sets them.
#[tokio::test]
async fn waits_are_bounded_on_connections_of_the_application_and_in_simple_queries() {
    let (store, url) = store().await;
    let pool = PgPoolOptions::new().max_connections(3).connect(&url).await.unwrap();
    let shared = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let uncached = PostgresStore::connect(&with(&url, "statement-cache-capacity=0")).await.unwrap();
    let lease = claim_new_key(&store).await;
    let other = hold_lock(&url, "SELECT FROM idempotency_records FOR UPDATE").await;
    for store in [shared, uncached] {
        let empty = Bytes::new();
        let error = timeout(Duration::from_secs(6), store.complete(&lease, &empty))
            .await
            .expect("the call waits for the lock")
            .unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    // The application's statements keep the application's time limits.
    let set: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(set, "0");
    other.close().await.unwrap();
    sql(&url, "SELECT 1").await;
}
