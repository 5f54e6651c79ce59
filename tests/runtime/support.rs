//! Helpers that the tests share.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Digester, EncodedRecording, Key, OnAbandon, OwnerToken, Policy, RecordId, RequestDigest,
    Runtime, ScopeId,
    protocol::{Claim, ClaimOutcome, Rejection},
    runtime::{Admission, Attempt, RuntimeOptions, Verdict},
    store::Store,
};
use idempotent_http::recording::{RecordedBody, encode};

use test_support::{Fault, FaultyStore, Op};

/// The time limit for each step of a test. Each takes far less.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "POST /payments", &Key::from_text(key).unwrap())
}

pub(crate) fn request(body: &str) -> RequestDigest {
    let mut digester = Digester::new(["POST", "/payments"]);
    digester.update(body.as_bytes());
    digester.finish()
}

pub(crate) fn response(body: &'static str) -> EncodedRecording {
    recording(&[], &RecordedBody::Whole(Bytes::from_static(body.as_bytes())))
}

pub(crate) fn recording(headers: &[(&[u8], &[u8])], body: &RecordedBody) -> EncodedRecording {
    encode(201, headers, body)
}

/// Options without a purge, so that only the calls of the test reach the store.
pub(crate) fn no_purge() -> RuntimeOptions {
    options(|_| {})
}

/// The options of [`no_purge`], modified by `change`.
pub(crate) fn options(change: impl FnOnce(&mut RuntimeOptions)) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    options.purge_every = None;
    change(&mut options);
    options
}

pub(crate) fn runtime(store: &FaultyStore) -> Runtime {
    Runtime::new(store.clone(), no_purge())
}

pub(crate) const fn with_lease(lease: Duration) -> Policy {
    Policy::DEFAULT.with_lease(lease)
}

pub(crate) const fn with_wait(wait: Duration) -> Policy {
    Policy::DEFAULT.with_wait(wait)
}

pub(crate) const HOLD: Policy = Policy::DEFAULT.with_abandoned(OnAbandon::Hold);

pub(crate) async fn begin(runtime: &Runtime, key: &str, body: &str, policy: &Policy) -> Admission {
    runtime.begin(id(key), request(body), policy).await.expect("the store works")
}

pub(crate) async fn proceed(runtime: &Runtime, key: &str, body: &str, policy: &Policy) -> Attempt {
    expect_attempt(begin(runtime, key, body, policy).await)
}

pub(crate) async fn verdict_of(
    runtime: &Runtime,
    key: &str,
    body: &str,
    policy: &Policy,
) -> Verdict {
    match begin(runtime, key, body, policy).await {
        Admission::Rejected(verdict) => verdict,
        Admission::Proceed(attempt) => panic!("the claim was granted: {attempt:?}"),
    }
}

pub(crate) fn expect_attempt(admission: Admission) -> Attempt {
    match admission {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("the claim was rejected: {verdict:?}"),
    }
}

/// Claims a key like another process: directly in the store, without the runtime and its faults.
pub(crate) async fn claim_in_another_process(
    store: &FaultyStore,
    key: &str,
    body: &str,
    policy: &Policy,
) -> (OwnerToken, ClaimOutcome) {
    let owner = OwnerToken::random().unwrap();
    let fingerprint = RuntimeOptions::default().fingerprint_keys.sign(request(body));
    let claim = Claim::new(fingerprint, owner).with_policy(policy);
    (owner, store.inner().claim(&id(key), &claim).await.unwrap())
}

/// Waits for a future that must complete.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("the future takes too long")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        // With tokio's clock paused, `tokio::time::sleep` would be a busy loop.
        tokio::task::yield_now().await;
        std::thread::sleep(ms(1));
    }
}

/// Runs a time-dependent test up to five times, and requires that it succeeds once. A busy machine
/// may fail it occasionally; a defect fails it every time.
pub(crate) async fn once_in_five<T: std::fmt::Debug>(
    mut attempt: impl AsyncFnMut() -> Result<(), T>,
) {
    let mut failures = Vec::new();
    while let Err(failure) = attempt().await {
        failures.push(failure);
        assert!(failures.len() < 5, "{failures:?}");
    }
}

/// Makes every renewal fail, and waits for the end of renewals in progress, which could extend a
/// lease that the test lets expire.
pub(crate) async fn stop_renewals(store: &FaultyStore) {
    store.set_fault(Op::Renew, usize::MAX, Fault::Before);
    let before = store.begun(Op::Renew);
    until("renewals fail", || store.begun(Op::Renew) > before + 1).await;
}

/// The verdict on a request whose key has this response.
pub(crate) fn replay_of(body: &'static str) -> Verdict {
    Verdict::Rejected(Rejection::Completed(response(body)))
}

/// Whether the key was first used for a different request.
pub(crate) fn is_mismatch(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Rejected(Rejection::Mismatch { .. }))
}
