//! The answer of an attempt that lost its key is never its own.

use crate::{
    lease::Lease,
    policy::{Abandoned, Policy},
    protocol::ClaimOutcome,
    runtime::{
        Attempt, AttemptOutcome, Runtime, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

/// An attempt whose key another process has taken over since.
async fn fenced(store: &Faulty, runtime: &Runtime) -> (Attempt, Lease) {
    let attempt = run(runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (owner, outcome) = stranger(store, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    (attempt, Lease { id: id("k"), owner })
}

async fn verdict(attempt: Attempt) -> Verdict {
    match attempt.complete(&answer("its own")).await {
        AttemptOutcome::Fenced(verdict) => verdict,
        ending @ (AttemptOutcome::Stored | AttemptOutcome::Deferred | AttemptOutcome::NotCommitted { .. }) => {
            panic!("not fenced: {ending:?}")
        }
    }
}

#[tokio::test]
async fn it_is_the_successors_answer_once_there_is_one() {
    let store = Faulty::new();
    let (attempt, successor) = fenced(&store, &runtime(&store)).await;
    store.inner().complete(&successor, &answer("the successor's").encode()).await.unwrap();
    assert_eq!(verdict(attempt).await, Verdict::Completed(answer("the successor's")));
}

#[tokio::test]
async fn it_is_in_flight_while_the_successor_is_at_work() {
    let store = Faulty::new();
    let (attempt, _) = fenced(&store, &runtime(&store)).await;
    assert_eq!(verdict(attempt).await, Verdict::InFlight { lease_left: Policy::DEFAULT.lease });
}

#[tokio::test]
async fn it_is_held_when_the_successor_gave_up() {
    let store = Faulty::new();
    let (attempt, successor) = fenced(&store, &runtime(&store)).await;
    store.inner().abandon(&successor, Abandoned::Hold).await.unwrap();
    assert_eq!(verdict(attempt).await, Verdict::Held { newly: false });
}

#[tokio::test]
async fn it_is_a_mismatch_when_the_key_belongs_to_another_request_by_now() {
    let store = Faulty::new();
    let (attempt, successor) = fenced(&store, &runtime(&store)).await;
    store.inner().release(&successor).await.unwrap();
    stranger(&store, "k", "other", &Policy::DEFAULT).await;
    assert_eq!(verdict(attempt).await, Verdict::Mismatch);
}

#[tokio::test]
async fn it_is_its_own_again_once_the_key_is_absent() {
    let store = Faulty::new();
    let (attempt, successor) = fenced(&store, &runtime(&store)).await;
    store.inner().release(&successor).await.unwrap();
    assert_eq!(
        attempt.complete(&answer("its own")).await,
        AttemptOutcome::Stored,
        "no other attempt has done anything"
    );
}

#[tokio::test]
async fn it_is_in_flight_when_the_record_cannot_be_read() {
    let store = Faulty::new();
    let (attempt, successor) = fenced(&store, &runtime(&store)).await;
    store.inner().complete(&successor, &answer("the successor's").encode()).await.unwrap();
    store.fail(Op::LookUp, Fault::Before, usize::MAX);
    assert_eq!(verdict(attempt).await, Verdict::InFlight { lease_left: ms(0) });
}

#[tokio::test]
async fn a_fenced_attempt_can_neither_release_nor_abandon() {
    for abandon in [false, true] {
        let store = Faulty::new();
        let (attempt, successor) = fenced(&store, &runtime(&store)).await;
        let ending = if abandon { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert!(matches!(ending, AttemptOutcome::Fenced(Verdict::InFlight { .. })), "{ending:?}");
        let found = store.inner().look_up(&id("k")).await.unwrap().expect("it is the successor's");
        assert_eq!((found.record.owner, found.record.lapsed(found.at)), (successor.owner, false));
    }
}
