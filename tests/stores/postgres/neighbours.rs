//! What one locked row, one stuck call or one handler that never ends costs other requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, Policy, Store, StoreError,
    protocol::{ClaimOutcome, Fence, RenewOutcome, Renewal},
    runtime::{Admission, Verdict},
    store::postgres::PostgresStore,
};
use sqlx::{Connection, Executor, PgConnection, postgres::PgPoolOptions};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{id, number, request, sql, store};
use test_support::{
    cuts::{digest, runtime},
    timing::one_of_five_within,
};

/// Repeats a call while its error is transient, for at most 30 s. On a busy machine a probe may
/// exceed its time limit while calls wait for a lock or for a new session; the store then counts as
/// down until the next probe.
async fn once_up<T, F>(call: impl Fn() -> F) -> T
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

/// How long a call takes, and its outcome.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let outcome = call.await;
    (outcome, began.elapsed())
}

async fn claimed(store: &PostgresStore) -> Lease {
    let (id, claim) = (id(), request());
    assert_eq!(once_up(|| store.claim(&id, &claim)).await, ClaimOutcome::Granted { attempt: 1 });
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
async fn locking(url: &str, text: &str) -> PgConnection {
    let mut other = PgConnection::connect(url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut other).await.unwrap();
    other
}

#[tokio::test]
async fn a_locked_record_keeps_no_other_lease_from_being_renewed() {
    let (store, url) = store().await;
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push(claimed(&store).await);
    }
    let lock =
        format!("SELECT FROM idempotency_records WHERE id = {} FOR UPDATE", literal(&leases[3]));
    let other = locking(&url, &lock).await;
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
    panic!("the lease is never renewed again");
}

#[tokio::test]
async fn a_lease_is_not_lost_while_its_completion_is_in_progress() {
    let (store, _) = store().await;
    let (lease, neighbour) = (claimed(&store).await, claimed(&store).await);
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    assert_eq!(
        transaction.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(),
        Fence::Passed
    );
    let both = [renewal(&lease), renewal(&neighbour)];
    // The completion is committed only afterwards.
    let renewed =
        timeout(Duration::from_secs(30), store.renew(&both)).await.expect("it waits").unwrap();
    assert_eq!(renewed, [RenewOutcome::Unknown, RenewOutcome::Renewed]);
    transaction.commit().await.unwrap();
    assert_eq!(store.renew(&both).await.unwrap(), [RenewOutcome::Fenced, RenewOutcome::Renewed]);
}

#[tokio::test]
async fn more_leases_than_one_statement_renews_are_all_renewed() {
    let (store, _) = store().await;
    let (first, last) = (claimed(&store).await, claimed(&store).await);
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
    let other = locking(&url, &insert).await;
    one_of_five_within(Duration::from_secs(3), async || {
        let (outcome, took) = timed(store.claim(&lease.id, &request())).await;
        assert_eq!(outcome.unwrap(), ClaimOutcome::InFlight { lease_left: Duration::ZERO });
        println!("a claim waits for {took:?}");
        took
    })
    .await;

    // As many duplicates as there are connections, and more.
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
    // A store without duplicates measures the machine's own delay.
    let control = PostgresStore::connect(&url).await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        let (beside, took) = tokio::join!(timed(claimed(&control)), timed(claimed(&store)));
        slowest = slowest.max(took.1.saturating_sub(beside.1));
    }
    assert!(duplicates.try_join_next().is_none(), "the duplicates do not wait");
    println!("the slowest claim of another key took {slowest:?} longer than the control");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    // One of them gets the key.
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
        Admission::Proceed(_) | Admission::Rejected(Verdict::InFlight { .. })
    )));
}

#[tokio::test]
async fn a_completion_that_waits_for_a_locked_record_is_bounded() {
    let (store, url) = store().await;
    let lease = claimed(&store).await;
    let other = locking(&url, "SELECT FROM idempotency_records FOR UPDATE").await;
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    let response = Bytes::from_static(b"done");
    let within = timed(transaction.complete(&lease, &response)).await;
    println!("an end in a transaction waited for {:?}", within.1);
    assert!(within.0.is_err_and(|error| error.is_transient()));
    transaction.roll_back().await;
    one_of_five_within(Duration::from_secs(9).saturating_sub(within.1), async || {
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
    // The lock may briefly outlive its client, and they wait for it.
    assert_eq!(once_up(|| store.complete(&lease, &response)).await, Fence::Passed);
}

/// A locked table does not make a key in flight.
#[tokio::test]
async fn a_claim_that_waits_for_the_table_is_a_transient_error() {
    let (store, url) = store().await;
    let _other = locking(&url, "LOCK TABLE idempotency_records").await;
    let error = timeout(Duration::from_secs(5), store.claim(&id(), &request()))
        .await
        .expect("it waits")
        .unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = \
    'idempotency' AND datname = current_database()";

/// Records the maximum number of sessions.
struct Watch {
    most: Arc<AtomicI64>,
    watching: tokio::task::JoinHandle<()>,
}

impl Watch {
    fn over(url: &str, count: &'static str) -> Self {
        let (most, url) = (Arc::new(AtomicI64::new(0)), url.to_owned());
        let seen = most.clone();
        let watching = tokio::spawn(async move {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            loop {
                let now: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap();
                seen.fetch_max(now, Ordering::Relaxed);
                sleep(Duration::from_millis(10)).await;
            }
        });
        Self { most, watching }
    }

    fn most(self) -> i64 {
        self.watching.abort();
        self.most.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_no_sessions_behind() {
    let (store, url) = store().await;
    let lease = claimed(&store).await;
    // A busy machine may not open them while the calls last.
    while number(&url, SESSIONS).await < 5 {
        let claims = (0..30).map(|_| {
            let store = store.clone();
            async move { claimed(&store).await }
        });
        claims.collect::<JoinSet<_>>().join_all().await;
    }
    let other = locking(&url, "LOCK TABLE idempotency_records").await;
    let watch = Watch::over(&url, SESSIONS);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        calls.spawn(async move {
            let mut given_up = 0;
            for _ in 0..20 {
                given_up += u32::from(
                    timeout(Duration::from_millis(150), store.complete(&lease, &Bytes::new()))
                        .await
                        .is_err(),
                );
            }
            given_up
        });
    }
    let given_up: u32 = calls.join_all().await.iter().sum();
    let most = watch.most();
    println!("{given_up} calls were given up, with {most} sessions at most");
    assert!(given_up >= 200 && most >= 5, "{given_up}, {most}");
    // Ten for steps, one for renewals, and one for the probe.
    assert!(most <= 12, "{most} sessions");
    other.close().await.unwrap();
    let empty = Bytes::new();
    assert_eq!(once_up(|| store.complete(&lease, &empty)).await, Fence::Passed);
}

const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' \
    AND datname = current_database() \
                        AND pid <> pg_backend_pid()";

/// A handler whose statement takes ten minutes, and that is dropped meanwhile.
async fn abandon_handlers(store: &PostgresStore) {
    let mut handlers = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        handlers.spawn(async move {
            let mut transaction = once_up(|| store.transactions().unwrap().begin()).await;
            let connection: &mut PgConnection =
                transaction.connection_mut().downcast_mut().unwrap();
            let sleep = sqlx::raw_sql("SELECT pg_sleep(600)").execute(connection);
            timeout(Duration::from_millis(300), sleep).await.unwrap_err();
        });
    }
    handlers.join_all().await;
}

async fn none_is_left(url: &str) {
    for _ in 0..150 {
        if number(url, SLEEPING).await == 0 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("{} sessions go on", number(url, SLEEPING).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handlers_leave_no_sessions_behind() {
    let (store, url) = store().await;
    let watch = Watch::over(&url, SLEEPING);
    for _ in 0..3 {
        abandon_handlers(&store).await;
    }
    none_is_left(&url).await;
    let most = watch.most();
    println!("{most} sessions at most");
    assert!((5..=10).contains(&most), "{most} sessions");
    once_up(|| store.transactions().unwrap().begin()).await.roll_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handlers_on_connections_of_the_application_end() {
    let (_, url) = store().await;
    let pool = PgPoolOptions::new().max_connections(10).connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool).await.unwrap();
    abandon_handlers(&store).await;
    assert!(number(&url, SLEEPING).await > 0, "no handler was running");
    none_is_left(&url).await;
    claimed(&store).await;
}

/// Where the session has no settings of the store, each statement sets them.
#[tokio::test]
async fn waits_are_bounded_on_connections_of_the_application_and_in_simple_queries() {
    let (own, url) = store().await;
    let pool = PgPoolOptions::new().max_connections(3).connect(&url).await.unwrap();
    let shared = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let whole =
        PostgresStore::connect(&super::with(&url, "statement-cache-capacity=0")).await.unwrap();
    let lease = claimed(&own).await;
    let other = locking(&url, "SELECT FROM idempotency_records FOR UPDATE").await;
    for store in [shared, whole] {
        let empty = Bytes::new();
        let error = timeout(Duration::from_secs(6), store.complete(&lease, &empty))
            .await
            .expect("it waits")
            .unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    // The application's own statements use the application's time limits.
    let set: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(set, "0");
    other.close().await.unwrap();
    sql(&url, "SELECT 1").await;
}
