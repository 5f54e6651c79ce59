//! Fenced attempts: their response is never stored.

use idempotent_core::{
    Abandoned, Lease, Policy, Runtime,
    protocol::{ClaimOutcome, Rejection},
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
        | AttemptOutcome::NotCommitted { .. }
        | AttemptOutcome::Held) => {
            panic!("not fenced: {ending:?}")
        }
    }
}

#[tokio::test]
async fn a_fenced_attempt_gets_the_response_of_its_successor() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().complete(&successor, &response("the successor's").into()).await.unwrap();
    assert_eq!(fenced_verdict(attempt).await, replay_of("the successor's"));
}

#[tokio::test]
async fn a_fenced_attempt_is_in_flight_while_its_successor_is() {
    let store = FaultyStore::default();
    let (attempt, _) = fenced_attempt(&store, &runtime(&store)).await;
    assert_eq!(
        fenced_verdict(attempt).await,
        Verdict::Rejected(Rejection::InFlight {
            lease_left: Policy::DEFAULT.lease,
            reference: None
        })
    );
}

#[tokio::test]
async fn a_fenced_attempt_is_held_if_its_successor_was_abandoned() {
    let store = FaultyStore::default();
    let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
    store.inner().abandon(&successor, Abandoned::Hold).await.unwrap();
    assert_eq!(
        fenced_verdict(attempt).await,
        Verdict::Rejected(Rejection::Held { newly: false, reference: None })
    );
}

/// How an attempt ends whose record the store has lost.
async fn end(attempt: Attempt, end: &str) -> AttemptOutcome {
    match end {
        "complete" => attempt.complete(&response("its own")).await,
        "release" => attempt.release().await,
        "abandon" => attempt.abandon(Abandoned::Retry).await,
        _ => attempt.abandon(Abandoned::Hold).await,
    }
}

/// A mismatch would report that the handler did not run.
#[tokio::test]
async fn an_attempt_that_lost_its_key_to_a_different_request_is_lost_and_no_mismatch() {
    for action in ["complete", "release", "abandon", "hold"] {
        for by_its_ttl in [false, true] {
            let store = FaultyStore::default();
            let runtime = runtime(&store);
            let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
            if by_its_ttl {
                store.advance(Policy::DEFAULT.ttl);
            } else {
                forget(&store).await;
            }
            let (_, outcome) =
                claim_in_another_process(&store, "k", "other", &Policy::DEFAULT).await;
            assert_eq!(outcome, ClaimOutcome::Granted { attempt: 1 });
            let ended = end(attempt, action).await;
            let lost = AttemptOutcome::Fenced(Verdict::Lost { reused: true });
            assert_eq!(ended, lost, "{action} {by_its_ttl}");
        }
    }
}

#[tokio::test]
async fn an_attempt_whose_record_is_lost_and_whose_key_is_free_is_lost() {
    for action in ["release", "abandon"] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        forget(&store).await;
        let lost = AttemptOutcome::Fenced(Verdict::Lost { reused: false });
        assert_eq!(end(attempt, action).await, lost, "{action}");
    }
}

/// Removes the record, as a failover does that loses acknowledged writes.
async fn forget(store: &FaultyStore) {
    let found = store.inner().look_up(&id("k")).await.unwrap().expect("a record");
    store.inner().release(&Lease { id: id("k"), owner: found.record.owner }).await.unwrap();
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
    store.inner().complete(&successor, &response("the successor's").into()).await.unwrap();
    store.set_fault(Op::LookUp, usize::MAX, Fault::Before);
    assert_eq!(
        fenced_verdict(attempt).await,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None })
    );
}

#[tokio::test]
async fn a_fenced_attempt_can_neither_release_nor_abandon() {
    for abandon in [false, true] {
        let store = FaultyStore::default();
        let (attempt, successor) = fenced_attempt(&store, &runtime(&store)).await;
        let ending =
            if abandon { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert!(
            matches!(ending, AttemptOutcome::Fenced(Verdict::Rejected(Rejection::InFlight { .. }))),
            "{ending:?}"
        );
        let found =
            store.inner().look_up(&id("k")).await.unwrap().expect("the record of the successor");
        assert_eq!(
            (found.record.owner, found.record.lease_expired(found.at)),
            (successor.owner, false)
        );
    }
}
