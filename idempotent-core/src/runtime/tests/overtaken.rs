//! Ends of attempts while the store loses records, panics, or grants the key to another attempt.

use std::task::{Context, Waker};

use crate::{
    lease::Lease,
    policy::Policy,
    protocol::ClaimOutcome,
    runtime::{
        Admission, AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

const FOR_EVER: usize = usize::MAX;

#[tokio::test]
async fn a_store_that_panics_once_in_the_background_does_not_cost_a_response() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = Policy::DEFAULT;
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    let before = store.calls(Op::Complete);
    store.fail(Op::Complete, Fault::Panic, 1);
    until("the background has tried", || store.calls(Op::Complete) > before).await;
    store.heal();
    soon(runtime.settled()).await;
    store.advance(policy.lease);
    match begin(&runtime, "k", "b", &policy).await {
        Admission::Rejected(verdict) => assert_eq!(verdict, Verdict::Completed(answer("a"))),
        Admission::Proceed(attempt) => panic!("its client has a response, and it runs again: {attempt:?}"),
    }
}

#[tokio::test]
async fn a_replaced_response_does_not_come_back_when_its_successor_s_record_has_expired() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = Policy { ttl: ms(300), lease: ms(100), ..Policy::DEFAULT };
    let attempt = run(&runtime, "k", "b", &policy).await;
    tokio::time::sleep(ms(250)).await;
    stop_renewals(&store).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    store.advance(policy.lease);
    let (owner, outcome) = stranger(&store, "k", "b", &policy).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    let recording = answer("the successor's").encode();
    store.inner().complete(&Lease { id: id("k"), owner }, &recording).await.unwrap();
    // Both its record and what it would be kept for are over, and the background still tries.
    store.advance(policy.ttl);
    tokio::time::sleep(ms(150)).await;
    store.heal();
    assert_eq!(run(&runtime, "k", "b", &policy).await.number(), 1, "after the ttl the key is new");
    soon(runtime.settled()).await;
}

#[tokio::test]
async fn a_finished_attempt_whose_end_is_under_way_is_not_run_again() {
    let store = Faulty::new();
    let runtime = Runtime::new(store.clone(), RuntimeOptions { store_timeout: ms(400), ..quiet() });
    let policy = leased(ms(60_000));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::HangBefore, FOR_EVER);
    let first = answer("the first's");
    let mut ending = Box::pin(attempt.complete(&first));
    assert!(ending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The server was restarted without its data; the completion waits on the old connection.
    store.lose(id("k")).await;
    let retried = begin(&runtime, "k", "b", &policy).await;
    let ended = ending.await;
    if let Admission::Proceed(attempt) = retried {
        panic!(
            "the handler runs again as attempt {}, and the first client gets its response: {ended:?}",
            attempt.number()
        );
    }
}

#[tokio::test]
async fn a_completion_that_the_store_has_taken_is_replayed_before_it_is_acknowledged() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60_000));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::HangAfter, 1);
    let first = answer("the first's");
    let mut ending = Box::pin(attempt.complete(&first));
    let mut polled = || ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled().is_pending());
    assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(answer("the first's")));
    assert!(polled().is_pending(), "it is acknowledged already");
    store.let_go();
    assert_eq!(ending.await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn the_response_of_an_attempt_that_this_process_has_replaced_is_not_replayed() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = Policy::DEFAULT;
    let earlier = run(&runtime, "k", "b", &policy).await;
    store.advance(policy.lease);
    let later = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    let ended = earlier.complete(&answer("the earlier's")).await;
    let between = told(&runtime, "k", "b", &policy).await;
    store.heal();
    assert_eq!(later.complete(&answer("the later's")).await, AttemptOutcome::Stored);
    let after = told(&runtime, "k", "b", &policy).await;
    assert_eq!(after, Verdict::Completed(answer("the later's")));
    assert!(
        !matches!(between, Verdict::Completed(_)),
        "two different replays of one key: {ended:?} {between:?}, then {after:?}"
    );
}

#[tokio::test]
async fn a_record_that_is_claimed_again_is_kept_alive_until_it_is_completed() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(300));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    store.lose(id("k")).await;
    until("the renewal finds it lost", || runtime.shared.renewal.count() == 0).await;
    // It can be claimed again, and then it cannot be completed.
    store.heal();
    store.fail(Op::Claim, Fault::HangBefore, 2);
    let claims = store.calls(Op::Claim);
    let retry = tokio::spawn({
        let runtime = runtime.clone();
        async move { told(&runtime, "k", "b", &policy).await }
    });
    while store.calls(Op::Claim) == claims {
        tokio::time::sleep(ms(1)).await;
    }
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    store.fail(Op::Claim, Fault::HangBefore, 0);
    store.let_go();
    assert_eq!(soon(retry).await.unwrap(), Verdict::Completed(answer("a")), "from memory");
    let renewals = store.renewals(&id("k"));
    until("it is renewed", || store.renewals(&id("k")) > renewals).await;
    assert_eq!(runtime.shared.renewal.count(), 1);
    store.heal();
    soon(runtime.settled()).await;
    assert_eq!(runtime.shared.renewal.count(), 0);
}
