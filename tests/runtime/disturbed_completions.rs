//! Completions while the store panics, loses the record, or grants the key to another attempt.

use std::task::{Context, Waker};

use idempotent_core::{
    Lease, Policy, Runtime,
    internals::gauges,
    protocol::{ClaimOutcome, Rejection},
    runtime::{Admission, AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const ALWAYS: usize = usize::MAX;

#[tokio::test]
async fn a_deferred_response_is_stored_although_the_store_panics_once() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = Policy::DEFAULT;
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    let before = store.begun(Op::Complete);
    store.set_fault(Op::Complete, 1, Fault::Panic);
    until("the background has tried", || store.begun(Op::Complete) > before).await;
    store.heal();
    in_time(runtime.drain()).await;
    store.advance(policy.lease);
    match begin(&runtime, "k", "b", &policy).await {
        Admission::Rejected(verdict) => {
            assert_eq!(verdict, replay_of("a"))
        }
        Admission::Proceed(attempt) => {
            panic!("the handler runs again after its client got a response: {attempt:?}")
        }
    }
}

#[tokio::test]
async fn a_fenced_completion_is_not_stored_after_the_successors_record_has_expired() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(100)).with_ttl(ms(300));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    tokio::time::sleep(ms(250)).await;
    stop_renewals(&store).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    store.advance(policy.lease);
    let (owner, outcome) = claim_in_another_process(&store, "k", "b", &policy).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    let recording = bytes::Bytes::from(response("the successor's"));
    store.inner().complete(&Lease { id: id("k"), owner }, &recording).await.unwrap();
    // The ttl of both records is over, and the background still retries the completion.
    store.advance(policy.ttl);
    tokio::time::sleep(ms(150)).await;
    store.heal();
    assert_eq!(
        proceed(&runtime, "k", "b", &policy).await.number(),
        1,
        "the key is not new after the ttl"
    );
    in_time(runtime.drain()).await;
}

#[tokio::test]
async fn an_attempt_whose_end_is_in_progress_is_not_run_again() {
    let store = FaultyStore::default();
    let runtime = Runtime::new(store.clone(), options(|options| options.store_timeout = ms(400)));
    let policy = with_lease(ms(60_000));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::HangBefore);
    let first = response("the first's");
    let mut ending = Box::pin(attempt.complete(&first));
    assert!(ending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // Like a server that restarts without its data while the completion waits on the old
    // connection.
    store.lose(id("k")).await;
    let retried = begin(&runtime, "k", "b", &policy).await;
    let ended = ending.await;
    if let Admission::Proceed(attempt) = retried {
        panic!(
            "the handler runs again as attempt {}, although the first client gets its response: \
             {ended:?}",
            attempt.number()
        );
    }
}

#[tokio::test]
async fn a_stored_completion_is_replayed_before_it_is_acknowledged() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60_000));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, 1, Fault::HangAfter);
    let first = response("the first's");
    let mut ending = Box::pin(attempt.complete(&first));
    let mut polled = || ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled().is_pending());
    assert_eq!(verdict_of(&runtime, "k", "b", &policy).await, replay_of("the first's"));
    assert!(polled().is_pending(), "the completion was acknowledged early");
    store.resume();
    assert_eq!(ending.await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn the_response_of_an_attempt_that_this_process_has_taken_over_is_not_replayed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = Policy::DEFAULT;
    let earlier = proceed(&runtime, "k", "b", &policy).await;
    store.advance(policy.lease);
    let later = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    let ended = earlier.complete(&response("the earlier's")).await;
    let between = verdict_of(&runtime, "k", "b", &policy).await;
    store.heal();
    assert_eq!(later.complete(&response("the later's")).await, AttemptOutcome::Stored);
    let after = verdict_of(&runtime, "k", "b", &policy).await;
    assert_eq!(after, replay_of("the later's"));
    assert!(
        !matches!(between, Verdict::Rejected(Rejection::Completed(_))),
        "one key has two different replays: {ended:?} {between:?}, then {after:?}"
    );
}

#[tokio::test]
async fn a_record_that_is_claimed_again_is_kept_alive_until_it_is_completed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(300));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    store.lose(id("k")).await;
    until("the renewal finds the record lost", || gauges(&runtime).live_leases == 0).await;
    // The record can be claimed again, but not completed.
    store.heal();
    store.set_fault(Op::Claim, 2, Fault::HangBefore);
    let claims = store.begun(Op::Claim);
    let retry = tokio::spawn({
        let runtime = runtime.clone();
        async move { verdict_of(&runtime, "k", "b", &policy).await }
    });
    while store.begun(Op::Claim) == claims {
        tokio::time::sleep(ms(1)).await;
    }
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    store.set_fault(Op::Claim, 0, Fault::HangBefore);
    store.resume();
    assert_eq!(in_time(retry).await.unwrap(), replay_of("a"), "not replayed from memory");
    let renewals = store.renewals(&id("k"));
    until("the lease is renewed", || store.renewals(&id("k")) > renewals).await;
    assert_eq!(gauges(&runtime).live_leases, 1);
    store.heal();
    in_time(runtime.drain()).await;
    assert_eq!(gauges(&runtime).live_leases, 0);
}
