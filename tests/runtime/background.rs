//! The background thread and its purges.

use std::time::Duration;

use idempotent_core::{Policy, Runtime};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

fn with_purge(store: &FaultyStore, every: Option<Duration>) -> Runtime {
    Runtime::new(store.clone(), options(|options| options.purge_every = every))
}

async fn complete_and_expire(store: &FaultyStore, runtime: &Runtime, count: usize) {
    for key in 0..count {
        proceed(runtime, &format!("k{key}"), "b", &Policy::DEFAULT)
            .await
            .complete(&response("a"))
            .await;
    }
    store.advance(Policy::DEFAULT.ttl);
}

#[tokio::test]
async fn expired_records_are_purged_in_batches_and_live_ones_stay() {
    let store = FaultyStore::default();
    let runtime = with_purge(&store, Some(ms(20)));
    complete_and_expire(&store, &runtime, 1_500).await;
    let _live = proceed(&runtime, "live", "b", &Policy::DEFAULT).await;
    until("they are purged", || store.purged() == 1_500).await;
    assert!(runtime.look_up(&id("live")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_purge_that_fails_is_repeated() {
    let store = FaultyStore::default();
    store.set_fault(Op::Purge, 2, Fault::Before);
    let runtime = with_purge(&store, Some(ms(5)));
    complete_and_expire(&store, &runtime, 1).await;
    until("the record is purged", || store.purged() == 1).await;
    store.set_fault(Op::Purge, 1, Fault::Panic);
    complete_and_expire(&store, &runtime, 1).await;
    until("the record is purged after a panic", || store.purged() == 2).await;
}

#[tokio::test]
async fn the_purge_can_be_disabled() {
    let store = FaultyStore::default();
    let runtime = with_purge(&store, None);
    let _attempt = proceed(&runtime, "k", "b", &with_lease(ms(30))).await;
    until("the thread has renewed", || store.begun(Op::Renew) > 3).await;
    assert_eq!(store.begun(Op::Purge), 0);
}

#[tokio::test]
async fn purge_intervals_of_any_length_are_accepted() {
    for every in [Duration::ZERO, Duration::MAX] {
        let store = FaultyStore::default();
        let runtime = with_purge(&store, Some(every));
        let attempt = proceed(&runtime, "k", "b", &with_lease(ms(30))).await;
        until("the thread has renewed", || store.begun(Op::Renew) > 3).await;
        assert!(every == Duration::ZERO || store.begun(Op::Purge) == 0);
        attempt.release().await;
    }
}

#[tokio::test]
async fn the_thread_ends_with_the_last_runtime() {
    let store = FaultyStore::default();
    let runtime = with_purge(&store, Some(ms(5)));
    let attempt = proceed(&runtime, "k", "b", &with_lease(ms(30))).await;
    let clone = runtime.clone();
    until("the thread has purged and renewed", || {
        store.begun(Op::Purge) > 0 && store.begun(Op::Renew) > 0
    })
    .await;
    drop(runtime);
    let renewals = store.begun(Op::Renew);
    until("a clone keeps the thread alive", || store.begun(Op::Renew) > renewals).await;
    assert!(store.thread_is_alive());
    drop(clone);
    let renewals = store.begun(Op::Renew);
    until("an attempt keeps the thread alive", || store.begun(Op::Renew) > renewals).await;
    drop(attempt);
    until("the thread ends", || !store.thread_is_alive()).await;
    assert_eq!(store.handles(), 1, "the runtime still holds the store");
}

#[tokio::test]
async fn a_long_purge_does_not_keep_a_dropped_runtime_alive() {
    let store = FaultyStore::default();
    let runtime = with_purge(&store, Some(ms(1)));
    complete_and_expire(&store, &runtime, 30_000).await;
    until("a purge is in progress", || store.purged() > 0).await;
    drop(runtime);
    until("the thread ends", || !store.thread_is_alive()).await;
    assert!(store.purged() < 30_000, "the purge ran to the end");
}

#[test]
fn concurrent_claims_are_all_renewed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let barrier = std::sync::Barrier::new(8);
    let begin = &|worker: usize| {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        barrier.wait();
        tokio.block_on(proceed(&runtime, &format!("k{worker}"), "b", &with_lease(ms(90))))
    };
    let attempts: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|worker| scope.spawn(move || begin(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let started = std::time::Instant::now();
    while store.batches().iter().filter(|leases| **leases == 8).count() < 3 {
        assert!(started.elapsed() < ms(10_000), "{:?}", store.batches());
        std::thread::yield_now();
    }
    drop(attempts);
}
