//! Futures that are dropped on their way.

use std::{future::Future, pin::pin, task::Poll};

use crate::{
    policy::{Abandoned, Policy},
    runtime::{
        Attempt, Runtime, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::memory::MemoryStore,
};

/// Polls a future until it is at a store call that hangs, and drops it there.
async fn drop_at(store: &Faulty, op: Op, future: impl Future) {
    let before = store.calls(op);
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "it was to hang");
        if store.calls(op) > before { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_is_dropped_is_given_back() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        store.fail(Op::Claim, fault, 1);
        drop_at(&store, Op::Claim, runtime.begin(id("k"), request("b"), &Policy::DEFAULT)).await;
        soon(runtime.settled()).await;
        assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_claim_that_is_dropped_while_it_waits_is_given_back() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let first = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let policy = waiting(ms(60_000));
    let (claims, mut set) = (store.calls(Op::Claim), false);
    let mut waiter = Box::pin(begin(&runtime, "k", "b", &policy));
    soon(std::future::poll_fn(|context| {
        assert!(waiter.as_mut().poll(context).is_pending());
        if !set {
            set = true;
            store.fail(Op::Claim, Fault::HangAfter, 1);
        }
        if store.calls(Op::Claim) >= claims + 3 { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
    first.release().await;
    drop(waiter);
    soon(runtime.settled()).await;
    assert_eq!((runtime.shared.waiting.keys(), runtime.shared.renewal.count()), (0, 0));
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn a_completion_that_is_dropped_is_stored_in_the_background() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.fail(Op::Complete, fault, 1);
        drop_at(&store, Op::Complete, attempt.complete(&answer("a"))).await;
        soon(runtime.settled()).await;
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")), "{fault:?}");
        assert_eq!(runtime.shared.renewal.count(), 0);
    }
}

#[tokio::test]
async fn a_completion_that_is_never_polled_is_stored_in_the_background_or_lapses() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    drop(attempt.complete(&answer("a")));
    assert_eq!(runtime.shared.renewal.count(), 0);
}

#[tokio::test]
async fn a_release_and_an_abandonment_that_are_dropped_are_told_in_the_background() {
    for (op, number) in [(Op::Release, 1), (Op::Abandon, 2)] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.fail(op, Fault::HangBefore, 1);
        if op == Op::Release {
            drop_at(&store, op, attempt.release()).await;
        } else {
            drop_at(&store, op, attempt.abandon(Abandoned::Retry)).await;
        }
        soon(runtime.settled()).await;
        assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), number);
    }
}

/// A framework whose tasks move between threads can use all of it.
#[test]
fn every_future_may_move_to_another_thread() {
    fn movable<T: Send>(of: impl FnOnce() -> T) {
        // The type is what counts.
        let _ = of;
    }
    let (runtime, answer) = (Runtime::new(MemoryStore::new(), quiet()), answer("done"));
    movable(|| runtime.begin(id("k"), request("b"), &Policy::DEFAULT));
    movable(|| runtime.begin_within(id("k"), request("b"), &Policy::DEFAULT));
    let attempt = || -> Attempt { unreachable!("it is not called") };
    movable(|| async { attempt().transact().await });
    movable(|| attempt().complete(&answer));
    movable(|| attempt().complete_rolled_back(&answer));
    movable(|| attempt().release());
    movable(|| attempt().abandon(Abandoned::Hold));
}
