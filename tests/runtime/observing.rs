//! What an observer gets to know.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use idempotent_core::{
    Abandoned, Key, OnAbandon, Policy, Runtime, ScopeId, StoreError,
    job::{Failure, Job},
    protocol::RecordCount,
    runtime::{
        Attempt, AttemptOutcome, FencedStep, HeldOperation, Observer, RenewalOutcome,
        RuntimeOptions, Subject,
    },
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// Notes each call in a word. Times are not noted, since they vary.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has(&self, note: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|each| each == note)
    }

    fn count(&self, note: &str) -> usize {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.iter().filter(|each| *each == note).count()
    }
}

impl Observer for Notes {
    fn claimed(&self, operation: &str, _: Duration) {
        self.add(format!("claimed {operation}"));
    }
    fn waited(&self, operation: &str, took: Duration) {
        assert!(took >= ms(20), "{took:?}");
        self.add(format!("waited {operation}"));
    }
    fn began(&self, operation: &str) {
        self.add(format!("began {operation}"));
    }
    fn ended(&self, operation: &str, _: Duration, _: Duration) {
        self.add(format!("ended {operation}"));
    }
    fn left(&self, operation: &str) {
        self.add(format!("left {operation}"));
    }
    fn held(&self, held: &HeldOperation) {
        let HeldOperation { id, operation, reference, .. } = held;
        let reference = reference.as_deref().unwrap_or_default();
        self.add(format!("held {} {operation} {reference}", id.short()));
    }
    fn fenced(&self, step: FencedStep) {
        self.add(format!("fenced {}", step.as_str()));
    }
    fn renewed(&self, outcome: RenewalOutcome, leases: usize) {
        self.add(format!("{} {leases}", outcome.as_str()));
    }
    fn deferred(&self, ends: usize, bytes: usize) {
        assert_eq!(ends == 0, bytes == 0);
        self.add(format!("deferred {ends}"));
    }
    fn purged(&self, records: u64) {
        self.add(format!("purged {records}"));
    }
    fn counted(&self, count: &RecordCount) {
        self.add(format!("counted {} {}", count.held, count.records));
    }
    fn store_failed(&self, error: &StoreError) {
        self.add(format!("failed {}", error.operation()));
    }
}

fn observed_with(
    store: &FaultyStore,
    change: impl FnOnce(&mut RuntimeOptions),
) -> (Runtime, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let observer = notes.clone();
    let options = options(|options| {
        options.observer = Some(observer);
        change(options);
    });
    (Runtime::new(store.clone(), options), notes)
}

fn observed(store: &FaultyStore) -> (Runtime, Arc<Notes>) {
    observed_with(store, |_| {})
}

async fn pay(runtime: &Runtime, key: &str, policy: &Policy) -> Attempt {
    let subject = Subject::new(id(key)).with_operation("pay");
    expect_attempt(runtime.begin(subject, request("b"), policy).await.unwrap())
}

/// The note of a held key whose handler has set no reference.
fn held(key: &str) -> String {
    format!("held {} pay ", id(key).short())
}

#[tokio::test]
async fn an_attempt_is_observed_from_its_claim_to_its_end() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    assert_eq!(notes.take(), ["claimed pay", "began pay"]);
    assert_eq!(attempt.complete(&response("r")).await, AttemptOutcome::Stored);
    assert_eq!(notes.take(), ["ended pay", "left pay"]);
    let subject = Subject::new(id("k")).with_operation("pay");
    drop(runtime.begin(subject, request("b"), &Policy::DEFAULT).await.unwrap());
    assert_eq!(notes.take(), ["claimed pay"]);
    drop(pay(&runtime, "dropped", &Policy::DEFAULT).await);
    assert_eq!(notes.take(), ["claimed pay", "began pay", "left pay"]);
}

#[tokio::test]
async fn a_wait_is_not_part_of_a_claim() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let _attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    notes.take();
    let subject = Subject::new(id("k")).with_operation("pay");
    drop(runtime.begin(subject, request("b"), &with_wait(ms(30))).await.unwrap());
    assert_eq!(notes.take(), ["claimed pay", "waited pay"]);
}

#[tokio::test]
async fn a_key_that_its_attempt_holds_is_observed_once() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    attempt.operation().set_reference("re_1").await.unwrap();
    notes.take();
    attempt.abandon(Abandoned::Hold).await;
    let held = format!("held {} pay re_1", id("k").short());
    assert_eq!(notes.take(), [&held, "ended pay", "left pay"]);
    // Later requests find the key held, which is not new.
    verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(!notes.take().iter().any(|note| note.starts_with("held")));
    // After the point of no return the store holds the key, whatever the end is.
    let policy = Policy::DEFAULT.with_abandoned(OnAbandon::RetryThenHold);
    let attempt = pay(&runtime, "no return", &policy).await;
    attempt.operation().point_of_no_return().await.unwrap();
    drop(attempt.abandon(Abandoned::Retry).await);
    assert_eq!(notes.count(&self::held("no return")), 1);
}

#[tokio::test]
async fn a_key_whose_lease_has_expired_is_observed_by_the_request_that_finds_it() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    claim_in_another_process(&store, "k", "b", &HOLD).await;
    store.advance(HOLD.lease);
    for _ in 0..3 {
        let subject = Subject::new(id("k")).with_operation("pay");
        drop(runtime.begin(subject, request("b"), &HOLD).await.unwrap());
    }
    assert_eq!(notes.count(&held("k")), 1);
}

#[tokio::test]
async fn a_key_that_is_held_later_is_observed_then() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    notes.take();
    store.fail(Op::Abandon, 2, Fault::Before);
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Deferred);
    assert!(notes.has("deferred 1") && !notes.has(&held("k")), "{:?}", notes.take());
    in_time(runtime.drain()).await;
    until("the end is freed", || notes.has("deferred 0")).await;
    assert_eq!(notes.count(&held("k")), 1);
    assert!(notes.count("failed start the call") >= 2, "{:?}", notes.take());
}

#[tokio::test]
async fn an_attempt_that_has_lost_its_key_is_observed() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    drop(attempt.complete(&response("r")).await);
    assert_eq!(notes.count("fenced end"), 1, "{:?}", notes.take());
    let policy = with_lease(ms(60));
    let _attempt = pay(&runtime, "renewed", &policy).await;
    until("a lease is renewed", || notes.has("renewed 1")).await;
    store.lose(id("renewed")).await;
    let lost = || notes.has("fenced 1") && notes.has("fenced renewal");
    until("a renewal is fenced", lost).await;
    assert_eq!(notes.count("fenced renewal"), 1);
}

#[tokio::test]
async fn failures_of_the_store_are_observed() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed_with(&store, |options| options.store_timeout = ms(50));
    store.fail(Op::Claim, 2, Fault::Before);
    let subject = Subject::new(id("k")).with_operation("pay");
    runtime.begin(subject, request("b"), &Policy::DEFAULT).await.unwrap_err();
    assert_eq!(notes.count("failed start the call"), 2, "{:?}", notes.take());
    let policy = with_lease(ms(60));
    let _attempt = pay(&runtime, "k2", &policy).await;
    stop_renewals(&store).await;
    until("a renewal fails", || notes.has("failed 1") && notes.has("failed start the call")).await;
    store.heal();
    store.set_fault(Op::LookUp, 1, Fault::HangBefore);
    runtime.look_up(&id("k3")).await.unwrap_err();
    assert_eq!(notes.count("failed look up"), 1);
}

#[tokio::test]
async fn the_error_of_a_call_that_takes_too_long_names_the_step() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed_with(&store, |options| options.store_timeout = ms(50));
    let hang = |op| store.set_fault(op, 2, Fault::HangBefore);
    hang(Op::Claim);
    let begun = runtime.begin(id("k"), request("b"), &Policy::DEFAULT).await;
    let chain = test_support::error_chain(&begun.unwrap_err());
    assert_eq!(chain, "runtime: failed to claim: the store has not responded within 50ms");
    store.heal();
    let attempt = pay(&runtime, "k2", &Policy::DEFAULT).await;
    hang(Op::Note);
    attempt.operation().set_reference("re_1").await.unwrap_err();
    hang(Op::Complete);
    drop(attempt.complete(&response("r")).await);
    store.heal();
    let attempt = pay(&runtime, "k3", &Policy::DEFAULT).await;
    hang(Op::Release);
    attempt.release().await;
    for step in ["claim", "note", "complete", "release"] {
        assert!(notes.has(&format!("failed {step}")), "{step}: {:?}", notes.take());
    }
}

#[tokio::test]
async fn records_are_counted_and_purged() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed_with(&store, |options| {
        options.count_every = Some(ms(1));
        options.purge_every = Some(ms(1));
    });
    let short = Policy::DEFAULT.with_ttl(Policy::DEFAULT.lease * 2);
    pay(&runtime, "held", &Policy::DEFAULT).await.abandon(Abandoned::Hold).await;
    pay(&runtime, "short", &short).await.complete(&response("r")).await;
    until("the records are counted", || notes.has("counted 1 2")).await;
    store.advance(short.ttl);
    until("the expired record is purged", || notes.has("purged 1")).await;
}

#[tokio::test]
async fn a_run_of_a_job_is_observed() {
    let store = FaultyStore::default();
    let (runtime, notes) = observed(&store);
    let (scope, key) = (ScopeId::global(), Key::from_text("k").unwrap());
    let run = runtime
        .run(&const { Job::new("import") }, &scope, &key, &1, |_| async { Ok::<_, Failure>(7) });
    run.await.unwrap();
    let expected = ["claimed import", "began import", "ended import", "left import"];
    assert_eq!(notes.take(), expected);
}

/// An observer whose methods panic.
struct Panics;

impl Observer for Panics {
    fn began(&self, _: &str) {
        panic!("in the observer");
    }
    fn ended(&self, _: &str, _: Duration, _: Duration) {
        panic!("in the observer");
    }
    fn held(&self, _: &HeldOperation) {
        panic!("in the observer");
    }
    fn left(&self, _: &str) {
        panic!("in the observer");
    }
}

#[tokio::test]
async fn a_panic_of_the_observer_changes_nothing() {
    let store = FaultyStore::default();
    let options = options(|options| options.observer = Some(Arc::new(Panics)));
    let runtime = Runtime::new(store.clone(), options);
    let attempt = pay(&runtime, "k", &Policy::DEFAULT).await;
    assert_eq!(attempt.complete(&response("r")).await, AttemptOutcome::Stored);
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("r"));
    let attempt = pay(&runtime, "held", &Policy::DEFAULT).await;
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Stored);
}
