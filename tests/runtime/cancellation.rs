//! Futures that are dropped before they complete.

use std::{future::Future, pin::pin, task::Poll};

use idempotent_core::{
    Abandoned, Policy, Runtime, internals::gauges, runtime::Attempt, store::memory::MemoryStore,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// Polls a future until its call to the store hangs, and drops the future.
async fn drop_once_it_hangs(store: &FaultyStore, op: Op, future: impl Future) {
    let before = store.begun(op);
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "the call does not hang");
        if store.begun(op) > before { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_is_dropped_is_given_back() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        store.set_fault(Op::Claim, 1, fault);
        drop_once_it_hangs(
            &store,
            Op::Claim,
            runtime.begin(id("k"), request("b"), &Policy::DEFAULT),
        )
        .await;
        in_time(runtime.drain()).await;
        assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_claim_that_is_dropped_while_it_waits_is_given_back() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let policy = with_wait(ms(60_000));
    let (claims, mut set) = (store.begun(Op::Claim), false);
    let mut waiter = Box::pin(begin(&runtime, "k", "b", &policy));
    in_time(std::future::poll_fn(|context| {
        assert!(waiter.as_mut().poll(context).is_pending());
        if !set {
            set = true;
            store.set_fault(Op::Claim, 1, Fault::HangAfter);
        }
        if store.begun(Op::Claim) >= claims + 3 { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
    first.release().await;
    drop(waiter);
    in_time(runtime.drain()).await;
    assert_eq!((gauges(&runtime).waited_keys, gauges(&runtime).live_leases), (0, 0));
    assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn a_completion_that_is_dropped_is_stored_in_the_background() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.set_fault(Op::Complete, 1, fault);
        drop_once_it_hangs(&store, Op::Complete, attempt.complete(&response("a"))).await;
        in_time(runtime.drain()).await;
        assert_eq!(
            verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await,
            replay_of("a"),
            "{fault:?}"
        );
        assert_eq!(gauges(&runtime).live_leases, 0);
    }
}

#[tokio::test]
async fn a_completion_that_is_never_polled_is_not_renewed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    drop(attempt.complete(&response("a")));
    assert_eq!(gauges(&runtime).live_leases, 0);
}

#[tokio::test]
async fn a_release_and_an_abandonment_that_are_dropped_are_sent_in_the_background() {
    for (op, number) in [(Op::Release, 1), (Op::Abandon, 2)] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.set_fault(op, 1, Fault::HangBefore);
        if op == Op::Release {
            drop_once_it_hangs(&store, op, attempt.release()).await;
        } else {
            drop_once_it_hangs(&store, op, attempt.abandon(Abandoned::Retry)).await;
        }
        in_time(runtime.drain()).await;
        assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), number);
    }
}

/// The runtime works in frameworks whose tasks move between threads.
#[test]
fn every_future_is_send() {
    fn assert_send<T: Send>(of: impl FnOnce() -> T) {
        // Only the type is checked; `of` is never called.
        let _ = of;
    }
    let (runtime, recording) = (Runtime::new(MemoryStore::new(), no_purge()), response("done"));
    assert_send(|| runtime.begin(id("k"), request("b"), &Policy::DEFAULT));
    assert_send(|| runtime.begin_in_transaction(id("k"), request("b"), &Policy::DEFAULT));
    let attempt = || -> Attempt { unreachable!("never called") };
    assert_send(|| async { attempt().begin_transaction().await });
    assert_send(|| attempt().complete(&recording));
    assert_send(|| attempt().complete_rolled_back(&recording));
    assert_send(|| attempt().release());
    assert_send(|| attempt().abandon(Abandoned::Hold));
}
