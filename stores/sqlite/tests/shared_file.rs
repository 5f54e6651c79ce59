//! How processes that share a SQLite file affect each other. Each store stands for a process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Digester, EncodedRecording, Fingerprint, Lease, OwnerToken, Policy, RecordId,
    RecordState, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_sqlite::{SqliteStore, internals::batched_sqlite};
use sqlx::{ConnectOptions, Connection, SqlitePool};
use tokio::task::JoinSet;

use test_support::subjects::sqlite::File;

const LEASE: Duration = Duration::from_secs(2);
const LEASED: Policy = Policy::DEFAULT.with_lease(LEASE);
const KEYS: u8 = 5;

async fn process(file: &File) -> (SqliteStore, Runtime) {
    let store = file.open().await;
    store.migrate().await.unwrap();
    let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
    runtime.check().await.unwrap();
    (store, runtime)
}

fn id(key: u8) -> RecordId {
    RecordId::from_bytes([key; 32])
}

fn digest() -> idempotent_core::RequestDigest {
    Digester::new(["POST", "/orders"]).finish()
}

fn response() -> EncodedRecording {
    Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done"))).encode()
}

fn new_claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(LEASE)
        .with_ttl(Duration::from_secs(60))
}

async fn run(runtime: &Runtime, key: u8) -> Attempt {
    match runtime.begin(id(key), digest(), &LEASED).await.unwrap() {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("{verdict:?}"),
    }
}

/// Whether the leases of all keys have expired.
async fn all_expired(store: &SqliteStore) -> bool {
    for key in 0..KEYS {
        let found = store.look_up(&id(key)).await.unwrap().unwrap();
        if found.record.lease_until > found.at {
            return false;
        }
    }
    true
}

/// Claims all keys repeatedly until it is stopped. Returns how many claims found an expired lease
/// and were still rejected.
async fn claim_until_stopped(
    store: SqliteStore,
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    granted: Arc<AtomicUsize>,
) -> usize {
    let mut rejected = 0;
    while !stop.load(Ordering::SeqCst) {
        for key in 0..KEYS {
            let found = store.look_up(&id(key)).await.unwrap().unwrap();
            match runtime.begin(id(key), digest(), &LEASED).await {
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => {
                    rejected += usize::from(found.record.lease_until <= found.at)
                }
                // A claim that timed out waiting for the lock.
                Err(error) if error.is_transient() => {}
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(_)))) => {}
                Ok(Admission::Proceed(_)) => {
                    granted.fetch_add(1, Ordering::SeqCst);
                }
                other => panic!("{other:?}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rejected
}

/// Holds a transaction for longer than the leases last, in the process that owns the leases or in
/// another one.
async fn assert_a_long_transaction_costs_no_lease(of_the_owner: bool) {
    let file = File::new();
    let ((_, owner), (_, other), (setup, _)) =
        (process(&file).await, process(&file).await, process(&file).await);
    let mut attempts = Vec::new();
    for key in 0..KEYS {
        attempts.push(run(&owner, key).await);
    }
    let writer = if of_the_owner { &owner } else { &other };
    let transaction = writer.transaction().await.unwrap();
    let (stop, granted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut claimers = JoinSet::new();
    for _ in 0..3 {
        let (store, runtime) = process(&file).await;
        claimers.spawn(claim_until_stopped(store, runtime, stop.clone(), granted.clone()));
    }
    while !all_expired(&setup).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(LEASE).await;
    assert!(all_expired(&setup).await);
    transaction.roll_back().await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while all_expired(&setup).await && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(LEASE).await;
    stop.store(true, Ordering::SeqCst);
    let rejected: usize = claimers.join_all().await.into_iter().sum();
    let mut ended = Vec::new();
    for attempt in attempts {
        ended.push(attempt.complete(&response()).await);
    }
    let granted = granted.load(Ordering::SeqCst);
    assert!(
        granted == 0 && ended.iter().all(|ending| *ending == AttemptOutcome::Stored),
        "{granted} granted, {ended:?}"
    );
    assert!(rejected >= 50, "only {rejected} claims of an expired lease were rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_of_another_process_costs_no_lease() {
    assert_a_long_transaction_costs_no_lease(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_of_the_owner_costs_no_lease() {
    assert_a_long_transaction_costs_no_lease(true).await;
}

/// Completes all keys during a transaction of another process that ends this long after the leases
/// would have expired, and claims them from others meanwhile.
async fn assert_operations_run_once(expired: Duration) {
    let file = File::new();
    let ((_, owner), (_, writer), (setup, _)) =
        (process(&file).await, process(&file).await, process(&file).await);
    let mut attempts = Vec::new();
    for key in 0..KEYS {
        attempts.push(run(&owner, key).await);
    }
    let transaction = writer.transaction().await.unwrap();
    let complete = |attempt: Attempt| async move { attempt.complete(&response()).await };
    let ending = attempts.into_iter().map(complete).collect::<JoinSet<_>>();
    let (stop, granted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut claimers = JoinSet::new();
    for _ in 0..3 {
        let (store, runtime) = process(&file).await;
        claimers.spawn(claim_until_stopped(store, runtime, stop.clone(), granted.clone()));
    }
    while !all_expired(&setup).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(expired).await;
    transaction.roll_back().await;
    let ended = ending.join_all().await;
    owner.drain().await;
    stop.store(true, Ordering::SeqCst);
    claimers.join_all().await;
    assert_eq!(granted.load(Ordering::SeqCst), 0, "{ended:?}");
    let accepted = [AttemptOutcome::Stored, AttemptOutcome::Deferred];
    assert!(ended.iter().all(|ended| accepted.contains(ended)), "{ended:?}");
    for key in 0..KEYS {
        let found = setup.look_up(&id(key)).await.unwrap().unwrap();
        assert!(matches!(found.record.state, RecordState::Completed(_)), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_whose_completions_wait_for_another_process_run_once() {
    assert_operations_run_once(LEASE / 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_whose_completions_are_deferred_during_a_long_transaction_run_once() {
    assert_operations_run_once(2 * LEASE).await;
}

/// Without a runtime, nothing renews the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_waits_for_the_lock_precedes_takeovers() {
    let claim = || new_claim().with_lease(Duration::from_millis(300));
    for (alter, policy) in [
        ((|store| store) as fn(SqliteStore) -> SqliteStore, None),
        (batched_sqlite, None),
        (|store| store, Some(Abandoned::Hold)),
    ] {
        let file = File::new();
        let (owner, other) = (alter(file.open().await), file.open().await);
        owner.migrate().await.unwrap();
        let granted = claim();
        let lease = Lease { id: id(0), owner: granted.owner };
        owner.claim(&lease.id, &granted).await.unwrap();
        let mut writer = file.options().connect().await.unwrap();
        let lock = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let ending = tokio::spawn(async move {
            match policy {
                Some(policy) => owner.abandon(&lease, policy).await,
                None => owner.complete(&lease, &Bytes::from_static(b"done")).await,
            }
        });
        let deadline = Instant::now() + Duration::from_secs(4);
        while !file.has_waiting_owner() {
            assert!(Instant::now() < deadline, "{policy:?}: the end does not register");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        let found = other.look_up(&lease.id).await.unwrap().unwrap();
        assert!(found.record.lease_until < found.at, "the lease has not expired");
        let outcome = other.claim(&lease.id, &claim()).await.unwrap();
        assert!(
            matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{outcome:?}"
        );
        lock.rollback().await.unwrap();
        assert_eq!(ending.await.unwrap().unwrap(), Fence::Passed, "{policy:?}");
        assert!(!file.has_waiting_owner(), "{policy:?}: the end stays registered");
    }
}

#[tokio::test]
async fn a_lease_of_a_dead_owner_is_taken_over_while_others_renew() {
    let file = File::new();
    let ((owner_store, owner), (_, other)) = (process(&file).await, process(&file).await);
    drop(run(&owner, 0).await);
    let mut kept = run(&other, 1).await;
    while owner_store
        .look_up(&id(0))
        .await
        .unwrap()
        .is_some_and(|found| found.record.lease_until > found.at)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut tries = 0;
    loop {
        match other.begin(id(0), digest(), &LEASED).await.unwrap() {
            Admission::Proceed(attempt) => {
                assert_eq!(attempt.number(), 2);
                break;
            }
            Admission::Rejected(verdict) => {
                assert!(
                    matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })),
                    "{verdict:?}"
                )
            }
        }
        tries += 1;
        assert!(tries < 1_000);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    kept.begin_transaction().await.unwrap();
    assert_eq!(kept.complete(&response()).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_duplicate_of_a_transaction_in_another_process_is_in_flight_after_its_wait() {
    let file = File::new();
    let ((_, one), (store, other)) = (process(&file).await, process(&file).await);
    let Admission::Proceed(attempt) =
        one.begin_in_transaction(id(0), digest(), &Policy::DEFAULT).await.unwrap()
    else {
        panic!("the claim was rejected")
    };
    for wait in [Duration::ZERO, Duration::from_secs(6)] {
        let began = Instant::now();
        let begun = other
            .begin_in_transaction(id(0), digest(), &Policy::DEFAULT.with_wait(wait))
            .await
            .unwrap();
        assert!(
            matches!(begun, Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))),
            "{begun:?}"
        );
        assert!(began.elapsed() >= wait.max(Duration::from_millis(50)), "{:?}", began.elapsed());
        assert!(began.elapsed() < wait + Duration::from_secs(20), "{:?}", began.elapsed());
    }
    assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
    let begun = other.begin_in_transaction(id(0), digest(), &Policy::DEFAULT).await.unwrap();
    assert!(
        matches!(begun, Admission::Rejected(Verdict::Rejected(Rejection::Completed(_)))),
        "{begun:?}"
    );
    assert!(matches!(store.look_up(&id(1)).await, Ok(None)));
}

/// Writes in turn with other writers until it is stopped.
async fn write_until_stopped(file: SqlitePool, writing: Arc<AtomicBool>, stop: Arc<AtomicBool>) {
    let mut connection = file.acquire().await.unwrap();
    while !stop.load(Ordering::SeqCst) {
        // SQLite does not guarantee that no writer starves: a pause gives the others a chance.
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Ok(mut transaction) = connection.begin_with("BEGIN IMMEDIATE").await {
            writing.store(true, Ordering::SeqCst);
            sqlx::query("PRAGMA user_version = 1").execute(&mut *transaction).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            writing.store(false, Ordering::SeqCst);
            transaction.commit().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_waits_for_alternating_writers() {
    let file = File::new();
    let (_, runtime) = process(&file).await;
    let (writing, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        writers.spawn(write_until_stopped(file.pool().await, writing.clone(), stop.clone()));
    }
    let (mut ran, mut in_flight) = (0, 0);
    for key in 0..15 {
        while !writing.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match runtime.begin_in_transaction(id(key), digest(), &Policy::DEFAULT).await {
            Ok(Admission::Proceed(attempt)) => {
                assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
                ran += 1;
            }
            // On a busy machine a writer may be suspended for too long.
            Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => {
                in_flight += 1
            }
            Err(error) if error.is_transient() => {}
            other => panic!("{other:?}"),
        }
    }
    stop.store(true, Ordering::SeqCst);
    writers.join_all().await;
    println!("{ran} ran, {in_flight} were in flight");
    assert!(ran > in_flight, "{ran} ran, {in_flight} did not");
}

#[tokio::test]
async fn a_claim_during_a_transaction_of_another_process_fails_transiently() {
    let file = File::new();
    let ((_, one), (store, _)) = (process(&file).await, process(&file).await);
    let Admission::Proceed(attempt) =
        one.begin_in_transaction(id(0), digest(), &Policy::DEFAULT).await.unwrap()
    else {
        panic!("the claim was rejected")
    };
    let claim = new_claim();
    let began = Instant::now();
    let error = store.claim(&id(0), &claim).await.unwrap_err();
    assert!(
        error.is_transient() && began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    attempt.release().await;
    assert_eq!(store.claim(&id(0), &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
}
