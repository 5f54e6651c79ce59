//! Ends without an answer.

use crate::{
    policy::{Abandoned, Policy},
    runtime::{
        AttemptOutcome, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
};

#[tokio::test]
async fn a_released_key_runs_as_the_first_again() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.release().await, AttemptOutcome::Stored);
    assert_eq!(run(&runtime, "k", "another", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn an_abandoned_key_is_taken_over_at_once() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.abandon(Abandoned::Retry).await, AttemptOutcome::Stored);
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 2);
}

#[tokio::test]
async fn an_abandoned_key_is_held_where_either_side_asks_for_it() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    for (key, policy, abandoned) in [("p", HOLD, Abandoned::Retry), ("h", Policy::DEFAULT, Abandoned::Hold)] {
        assert_eq!(run(&runtime, key, "b", &policy).await.abandon(abandoned).await, AttemptOutcome::Stored);
        assert_eq!(told(&runtime, key, "b", &policy).await, Verdict::Held { newly: false });
    }
}

#[tokio::test]
async fn a_release_keeps_the_trace_of_an_earlier_attempt() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    drop(run(&runtime, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    let second = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(second.number(), 2);
    assert_eq!(second.release().await, AttemptOutcome::Stored);
    assert_eq!(told(&runtime, "k", "other", &Policy::DEFAULT).await, Verdict::Mismatch);
    // What the first attempt did is still unknown, so the third must not take itself for the first.
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 3);
}

#[tokio::test]
async fn a_renewal_under_way_does_not_revive_what_is_abandoned() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(3_000));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Renew, Fault::HangBefore, 1);
    until("a renewal is under way", || store.calls(Op::Renew) == 1).await;
    let (ending, ()) = tokio::join!(attempt.abandon(Abandoned::Retry), async {
        tokio::time::sleep(ms(20)).await;
        store.let_go();
    });
    assert_eq!(ending, AttemptOutcome::Stored);
    until("the renewal is answered", || store.batches() == [1]).await;
    assert_eq!(run(&runtime, "k", "b", &policy).await.number(), 2, "it is free at once");
}

#[tokio::test]
async fn an_attempt_that_is_dropped_lapses_and_is_no_longer_renewed() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60));
    let other = run(&runtime, "other", "b", &policy).await;
    drop(run(&runtime, "k", "b", &policy).await);
    // One that began before may be under way.
    let before = store.batches().len() + 1;
    until("others are renewed", || store.batches().len() >= before + 2).await;
    assert!(store.batches()[before..].iter().all(|leases| *leases == 1), "{:?}", store.batches());
    store.advance(policy.lease);
    assert_eq!(run(&runtime, "k", "b", &policy).await.number(), 2);
    assert_eq!(other.complete(&answer("a")).await, AttemptOutcome::Stored);
}
