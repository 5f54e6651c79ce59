//! What the cases share.

use std::{future::Future, time::Duration};

use bytes::Bytes;

use crate::{
    fingerprint::{BodyForm, Digester, RequestDigest},
    key::Key,
    lease::OwnerToken,
    policy::{Abandoned, Policy},
    protocol::{Claim, ClaimOutcome},
    record_id::RecordId,
    recording::{RecordedBody, Recording},
    runtime::{
        Admission, Attempt, Runtime, RuntimeOptions, Verdict,
        tests::faulty::{Fault, Faulty, Op},
    },
    scope::ScopeId,
    store::Store,
};

/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn id(key: &str) -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "POST /payments", &Key::parse(key.as_bytes()).unwrap())
}

pub(super) fn request(body: &str) -> RequestDigest {
    let mut digester = Digester::new("POST", "/payments", "", b"application/json", BodyForm::Raw);
    digester.update(body.as_bytes());
    digester.finish()
}

pub(super) fn answer(body: &'static str) -> Recording {
    Recording { status: 201, headers: Vec::new(), body: RecordedBody::Whole(Bytes::from_static(body.as_bytes())) }
}

/// No purge, so that only what a case does reaches the store.
pub(super) fn quiet() -> RuntimeOptions {
    RuntimeOptions { purge_every: None, ..RuntimeOptions::default() }
}

pub(super) fn runtime(store: &Faulty) -> Runtime {
    Runtime::new(store.clone(), quiet())
}

pub(super) const fn leased(lease: Duration) -> Policy {
    Policy { lease, ..Policy::DEFAULT }
}

pub(super) const fn waiting(wait: Duration) -> Policy {
    Policy { wait, ..Policy::DEFAULT }
}

pub(super) const HOLD: Policy = Policy { abandoned: Abandoned::Hold, ..Policy::DEFAULT };

pub(super) async fn begin(runtime: &Runtime, key: &str, body: &str, policy: &Policy) -> Admission {
    runtime.begin(id(key), request(body), policy).await.expect("the store works")
}

pub(super) async fn run(runtime: &Runtime, key: &str, body: &str, policy: &Policy) -> Attempt {
    ran(begin(runtime, key, body, policy).await)
}

pub(super) async fn told(runtime: &Runtime, key: &str, body: &str, policy: &Policy) -> Verdict {
    match begin(runtime, key, body, policy).await {
        Admission::Rejected(verdict) => verdict,
        Admission::Proceed(attempt) => panic!("it runs: {attempt:?}"),
    }
}

pub(super) fn ran(begun: Admission) -> Attempt {
    match begun {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("it does not run: {verdict:?}"),
    }
}

/// Claims as another process would, past the runtime and its faults; gives the owner.
pub(super) async fn stranger(store: &Faulty, key: &str, body: &str, policy: &Policy) -> (OwnerToken, ClaimOutcome) {
    let owner = OwnerToken::random().unwrap();
    let fingerprint = RuntimeOptions::default().fingerprint_keys.sign(request(body));
    let Policy { lease, ttl, abandoned, .. } = *policy;
    let outcome = store
        .inner()
        .claim(&id(key), &Claim { fingerprint, owner, lease, ttl, abandoned, principal: None })
        .await
        .unwrap();
    (owner, outcome)
}

/// Waits for a future that is sure to end.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes too long")
}

/// Waits until a condition holds that is sure to.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        // A paused clock would turn a pause of tokio's into a busy loop.
        tokio::task::yield_now().await;
        std::thread::sleep(ms(1));
    }
}

/// For what holds unless the machine is too busy: it has to hold once in five times. Without its guard it never does.
pub(super) async fn once_in_five<T: std::fmt::Debug>(mut attempt: impl AsyncFnMut() -> Result<(), T>) {
    let mut failures = Vec::new();
    while let Err(failure) = attempt().await {
        failures.push(failure);
        assert!(failures.len() < 5, "{failures:?}");
    }
}

/// Lets every renewal fail. Returns when no earlier one is in progress, which would revive a lease that the test lets expire.
pub(super) async fn stop_renewals(store: &Faulty) {
    store.fail(Op::Renew, Fault::Before, usize::MAX);
    let before = store.calls(Op::Renew);
    until("renewals fail", || store.calls(Op::Renew) > before + 1).await;
}
