//! Many concurrent claims in transactions on one SQLite file. Each store stands for a process.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Digester, EncodedRecording, Lease, OwnerToken, Policy, RecordId, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
};
use idempotent_http::recording::{RecordedBody, Recording};
use tokio::task::JoinSet;

use test_support::subjects::sqlite::File;

fn id(key: u8) -> RecordId {
    RecordId::from_bytes([key; 32])
}

fn digest() -> idempotent_core::RequestDigest {
    Digester::new(["POST", "/orders"]).finish()
}

fn response() -> EncodedRecording {
    Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done"))).encode()
}

async fn process(file: &File) -> Runtime {
    let store = file.open().await;
    store.migrate().await.unwrap();
    let runtime = Runtime::new(store, RuntimeOptions::default());
    runtime.check().await.unwrap();
    runtime
}

async fn run(runtime: &Runtime, key: u8) -> Attempt {
    match runtime.begin_in_transaction(id(key), digest(), &Policy::DEFAULT).await.unwrap() {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("{verdict:?}"),
    }
}

/// Claims a key that must be in flight; returns how long the claim took.
async fn in_flight(runtime: Runtime, key: u8, wait: Duration) -> Result<Duration, String> {
    let started = Instant::now();
    let begun =
        runtime.begin_in_transaction(id(key), digest(), &Policy::DEFAULT.with_wait(wait)).await;
    let took = started.elapsed();
    match begun {
        Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => Ok(took),
        other => Err(format!("{key} after {took:?}: {other:?}")),
    }
}

/// While another process has a transaction with one key, claims this key and other keys. All of
/// these claims must be in flight, and take at least `wait`.
async fn assert_in_flight_after_wait(wait: Duration, others: u8) {
    let file = File::new();
    let (first, second) = (process(&file).await, process(&file).await);
    let attempt = run(&first, 0).await;
    let mut requests = JoinSet::new();
    for key in (0..=others).rev() {
        requests.spawn(in_flight(second.clone(), key, wait));
    }
    let wrong: Vec<_> = requests
        .join_all()
        .await
        .into_iter()
        .filter(
            |verdict| !matches!(verdict, Ok(took) if *took >= wait.max(Duration::from_millis(100))),
        )
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_behind_few_others_that_wait_long_is_in_flight_after_its_wait() {
    assert_in_flight_after_wait(Duration::from_secs(2), 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_behind_many_others_is_in_flight_after_its_wait() {
    assert_in_flight_after_wait(Duration::ZERO, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_behind_a_long_transaction_of_the_same_process_is_in_flight_after_its_wait() {
    let file = File::new();
    let runtime = process(&file).await;
    let attempt = run(&runtime, 0).await;
    let (short, long) = (Duration::from_secs(4), Duration::from_secs(6));
    let (soon, late) = tokio::join!(
        in_flight(runtime.clone(), 1, Duration::ZERO),
        in_flight(runtime.clone(), 2, long)
    );
    assert!(matches!(soon, Ok(took) if took >= short), "{soon:?}");
    assert!(matches!(late, Ok(took) if took >= long), "{late:?}");
    assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_behind_many_writes_without_a_transaction_is_in_flight_after_its_wait() {
    let file = File::new();
    let (first, store) = (process(&file).await, file.open().await);
    let second = Runtime::new(store.clone(), RuntimeOptions::default());
    assert_eq!(run(&second, 1).await.complete(&response()).await, AttemptOutcome::Stored);
    let attempt = run(&first, 0).await;
    let mut writes = JoinSet::new();
    for _ in 0..200 {
        let (store, lease) =
            (store.clone(), Lease { id: id(2), owner: OwnerToken::random().unwrap() });
        writes.spawn(async move { store.release(&lease).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let verdict = in_flight(second, 0, Duration::ZERO).await;
    assert!(verdict.is_ok(), "{verdict:?}");
    assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_waits_for_others_of_the_same_process() {
    const KEYS: u8 = 9;
    let file = File::new();
    let runtime = process(&file).await;
    let mut requests = JoinSet::new();
    for key in 0..KEYS {
        let runtime = runtime.clone();
        requests.spawn(async move {
            match runtime.begin_in_transaction(id(key), digest(), &Policy::DEFAULT).await {
                Ok(Admission::Proceed(attempt)) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
                    true
                }
                // On a busy machine a transaction may be suspended for too long.
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => false,
                Err(error) if error.is_transient() => false,
                other => panic!("{other:?}"),
            }
        });
    }
    let ran = requests.join_all().await.into_iter().filter(|ran| *ran).count();
    assert!(ran > usize::from(KEYS) / 2, "{ran} ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_replayed_even_if_another_transaction_follows_that_of_its_key() {
    let file = File::new();
    let (first, second) = (process(&file).await, process(&file).await);
    let attempt = run(&first, 0).await;
    let wait = Duration::from_secs(2);
    let duplicate = tokio::spawn(async move {
        second
            .begin_in_transaction(id(0), digest(), &Policy::DEFAULT.with_wait(wait))
            .await
            .unwrap()
    });
    tokio::time::sleep(wait / 4).await;
    let mut other = file.pool().await.acquire().await.unwrap();
    let follow =
        async { while sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *other).await.is_err() {} };
    let done = response();
    let (ended, ()) = tokio::join!(attempt.complete(&done), follow);
    assert_eq!(ended, AttemptOutcome::Stored);
    let begun = duplicate.await.unwrap();
    assert!(
        matches!(begun, Admission::Rejected(Verdict::Rejected(Rejection::Completed(_)))),
        "{begun:?}"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut *other).await.unwrap();
}
