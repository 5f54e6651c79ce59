//! Fenced attempts: their response is never stored.

use idempotent_core::{
    Abandoned, Lease, Policy, Runtime,
    protocol::ClaimOutcome,
    runtime::{Attempt, AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// An attempt whose key another process has taken over.
async fn fenced_attempt(store: &FaultyStore, runtime: &Runtime) -> (Attempt, Lease) {
    let attempt = proceed(runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (owner, outcome) = claim_in_another_process(store, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    (attempt, Lease { id: id("k"), owner })
}

async fn fenced_verdict(attempt: Attempt) -> Verdict {
    match attempt.complete(&response("the fenced attempt's")).await {
        AttemptOutcome::Fenced(verdict) => verdict,
        ending @ (AttemptOutcome::Stored
        | AttemptOutcome::Deferred
        | AttemptOutcome::NotCommitted { .. }) => {
            panic!("not fenced: {ending:?}")
        }
    }
}

#[tokio::test]
async fn a_fenced_attempt_gets_the_response_of_its_successor() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().complete(&successor, &response("the successor's").encode()).await.unwrap();
    assert_eq!(fenced_verdict(attempt).await, Verdict::Completed(response("the successor's")));
}

#[tokio::test]
async fn a_fenced_attempt_is_in_flight_while_its_successor_is() {
    let store = FaultyStore::default();
    let (attempt, _) = fenced_attempt(&store, &runtime(&store)).await;
    assert_eq!(
        fenced_verdict(attempt).await,
        Verdict::InFlight { lease_left: Policy::DEFAULT.lease, reference: None }
    );
}

#[tokio::test]
async fn a_fenced_attempt_is_held_if_its_successor_was_abandoned() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().abandon(&successor, Abandoned::Hold).await.unwrap();
    assert_eq!(fenced_verdict(attempt).await, Verdict::Held { newly: false, reference: None });
}

#[tokio::test]
async fn a_fenced_attempt_is_a_mismatch_if_another_request_has_the_key() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().release(&successor).await.unwrap();
    claim_in_another_process(&store, "k", "other", &Policy::DEFAULT).await;
    assert_eq!(fenced_verdict(attempt).await, Verdict::Mismatch);
}

#[tokio::test]
async fn an_attempt_whose_successor_released_the_key_completes() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().release(&successor).await.unwrap();
    assert_eq!(
        attempt.complete(&response("the fenced attempt's")).await,
        AttemptOutcome::Stored,
        "the attempt is fenced although the key was free"
    );
}

#[tokio::test]
async fn a_fenced_attempt_is_in_flight_if_the_record_cannot_be_read() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().complete(&successor, &response("the successor's").encode()).await.unwrap();
    store.set_fault(Op::LookUp, usize::MAX, Fault::Before);
    assert_eq!(
        fenced_verdict(attempt).await,
        Verdict::InFlight { lease_left: ms(0), reference: None }
    );
}

#[tokio::test]
async fn a_fenced_attempt_can_neither_release_nor_abandon() {
    for abandon in [false, true] {
        let store = FaultyStore::default();
        let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
        let ending =
            if abandon { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert!(matches!(ending, AttemptOutcome::Fenced(Verdict::InFlight { .. })), "{ending:?}");
        let found =
            store.inner().look_up(&id("k")).await.unwrap().expect("the record of the successor");
        assert_eq!(
            (found.record.owner, found.record.lease_expired(found.at)),
            (successor.owner, false)
        );
    }
}
