//! Abandoned operations that are resumed without their clients.

use idempotent_core::{
    Policy, Runtime, ShortText, Store,
    protocol::{ClaimOutcome, Rejection},
    runtime::{Attempt, AttemptOutcome, NoteError, Verdict, decode_input},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// An operation that was abandoned after it had stored its input and done a step.
async fn abandoned(store: &FaultyStore, runtime: &Runtime) {
    let attempt = proceed(runtime, "k", "b", &Policy::DEFAULT).await;
    attempt.operation().set_input(&7).unwrap();
    attempt.operation().step("charge").run(|_| async { charged() }).await.unwrap();
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
}

async fn resume(runtime: &Runtime) -> Option<Attempt> {
    runtime.resume(id("k"), |_| Some(Policy::DEFAULT)).await.unwrap()
}

#[tokio::test]
async fn a_resumed_operation_is_the_next_attempt() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    abandoned(&store, &runtime).await;
    assert_eq!(runtime.resumable("", None, 10).await.unwrap().ids, [id("k")]);
    let resumed = runtime.resume(id("k"), |record| {
        assert_eq!(decode_input::<u32>(&record.notes.input).unwrap(), 7);
        assert!(decode_input::<String>(&record.notes.input).is_err());
        Some(Policy::DEFAULT)
    });
    let attempt = resumed.await.unwrap().unwrap();
    assert_eq!(attempt.number(), 2);
    assert!(runtime.resumable("", None, 10).await.unwrap().ids.is_empty());
    assert!(resume(&runtime).await.is_none(), "it is in flight");
    assert!(matches!(
        verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
    assert_eq!(attempt.complete(&response("done")).await, AttemptOutcome::Stored);
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("done"));
    assert!(resume(&runtime).await.is_none(), "it is completed");
}

#[tokio::test]
async fn an_operation_that_the_caller_does_not_accept_is_not_claimed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    abandoned(&store, &runtime).await;
    let before = store.inner().look_up(&id("k")).await.unwrap();
    assert!(runtime.resume(id("k"), |_| None).await.unwrap().is_none());
    assert!(runtime.resume(id("absent"), |_| Some(Policy::DEFAULT)).await.unwrap().is_none());
    assert_eq!(store.inner().look_up(&id("k")).await.unwrap(), before);
}

#[tokio::test]
async fn an_operation_that_another_attempt_takes_over_meanwhile_is_not_resumed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    abandoned(&store, &runtime).await;
    store.set_fault(Op::Claim, 1, Fault::HangBefore);
    let resuming = tokio::spawn({
        let runtime = runtime.clone();
        async move { resume(&runtime).await }
    });
    until("the claim is sent", || store.begun(Op::Claim) == 2).await;
    let (owner, outcome) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    store.resume();
    assert!(in_time(resuming).await.unwrap().is_none());
    assert_eq!(store.inner().look_up(&id("k")).await.unwrap().unwrap().record.owner, owner);
}

#[tokio::test]
async fn an_operation_whose_record_expires_meanwhile_is_not_run_as_a_new_one() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    abandoned(&store, &runtime).await;
    store.set_fault(Op::Claim, 1, Fault::HangBefore);
    let resuming = tokio::spawn({
        let runtime = runtime.clone();
        async move { resume(&runtime).await }
    });
    until("the claim is sent", || store.begun(Op::Claim) == 2).await;
    store.advance(Policy::DEFAULT.ttl);
    store.resume();
    assert!(in_time(resuming).await.unwrap().is_none());
    assert!(store.inner().look_up(&id("k")).await.unwrap().is_none(), "the key is free");
}

#[tokio::test]
async fn a_resumed_attempt_that_is_fenced_changes_nothing() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    abandoned(&store, &runtime).await;
    let attempt = resume(&runtime).await.unwrap();
    store.advance(Policy::DEFAULT.lease);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    // The resumed attempt does not know the request, but its successor has the same fingerprint.
    assert!(matches!(
        attempt.complete(&response("the fenced attempt's")).await,
        AttemptOutcome::Fenced(Verdict::Rejected(Rejection::InFlight { .. }))
    ));
}

#[tokio::test]
async fn an_end_that_is_deferred_is_not_resumed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    attempt.operation().set_input(&7).unwrap();
    attempt.operation().step("charge").run(|_| async { charged() }).await.unwrap();
    store.set_fault(Op::Complete, usize::MAX, Fault::Before);
    assert_eq!(attempt.complete(&response("done")).await, AttemptOutcome::Deferred);
    store.advance(Policy::DEFAULT.lease);
    assert_eq!(store.inner().resumable(&ShortText::EMPTY, None, 10).await.unwrap().ids, [id("k")]);
    assert!(resume(&runtime).await.is_none(), "its response was sent");
}

fn charged() -> Result<u32, NoteError> {
    Ok(1)
}
