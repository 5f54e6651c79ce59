//! Releases and abandonments.

use idempotent_core::{
    Abandoned, Policy,
    protocol::Rejection,
    runtime::{AttemptOutcome, Verdict},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

#[tokio::test]
async fn a_released_key_starts_again_with_attempt_one() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    assert_eq!(
        proceed(&runtime, "k", "b", &Policy::DEFAULT).await.release().await,
        AttemptOutcome::Stored
    );
    assert_eq!(proceed(&runtime, "k", "another", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn an_abandoned_key_is_taken_over_at_once() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.abandon(Abandoned::Retry).await, AttemptOutcome::Stored);
    assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 2);
}

#[tokio::test]
async fn an_abandoned_key_is_held_if_either_policy_holds_it() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    for (key, policy, abandoned) in
        [("p", HOLD, Abandoned::Retry), ("h", Policy::DEFAULT, Abandoned::Hold)]
    {
        assert_eq!(
            proceed(&runtime, key, "b", &policy).await.abandon(abandoned).await,
            AttemptOutcome::Stored
        );
        assert_eq!(
            verdict_of(&runtime, key, "b", &policy).await,
            Verdict::Rejected(Rejection::Held { newly: false, reference: None })
        );
    }
}

#[tokio::test]
async fn a_release_after_a_takeover_keeps_the_attempt_count() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    drop(proceed(&runtime, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    let second = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(second.number(), 2);
    assert_eq!(second.release().await, AttemptOutcome::Stored);
    assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &Policy::DEFAULT).await));
    // The outcome of the first attempt is still unknown, so the third must not be number 1.
    assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 3);
}

#[tokio::test]
async fn a_renewal_in_progress_does_not_revive_an_abandoned_attempt() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(3_000));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Renew, 1, Fault::HangBefore);
    until("a renewal is in progress", || store.begun(Op::Renew) == 1).await;
    let (ending, ()) = tokio::join!(attempt.abandon(Abandoned::Retry), async {
        tokio::time::sleep(ms(20)).await;
        store.resume();
    });
    assert_eq!(ending, AttemptOutcome::Stored);
    until("the renewal has its outcome", || store.batches() == [1]).await;
    assert_eq!(
        proceed(&runtime, "k", "b", &policy).await.number(),
        2,
        "the key cannot be taken over at once"
    );
}

#[tokio::test]
async fn an_attempt_that_is_dropped_expires_and_is_no_longer_renewed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60));
    let other = proceed(&runtime, "other", "b", &policy).await;
    drop(proceed(&runtime, "k", "b", &policy).await);
    // An earlier renewal may be in progress.
    let before = store.batches().len() + 1;
    until("others are renewed", || store.batches().len() >= before + 2).await;
    assert!(store.batches()[before..].iter().all(|leases| *leases == 1), "{:?}", store.batches());
    store.advance(policy.lease);
    assert_eq!(proceed(&runtime, "k", "b", &policy).await.number(), 2);
    assert_eq!(other.complete(&response("a")).await, AttemptOutcome::Stored);
}
