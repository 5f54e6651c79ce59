//! The thread, and what it purges.

use std::time::Duration;

use crate::{
    policy::Policy,
    runtime::{
        Runtime, RuntimeOptions,
        background::rest,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
};

fn purging(store: &Faulty, every: Option<Duration>) -> Runtime {
    Runtime::new(store.clone(), RuntimeOptions { purge_every: every, ..RuntimeOptions::default() })
}

async fn expired(store: &Faulty, runtime: &Runtime, count: usize) {
    for key in 0..count {
        run(runtime, &format!("k{key}"), "b", &Policy::DEFAULT).await.complete(&answer("a")).await;
    }
    store.advance(Policy::DEFAULT.ttl);
}

#[tokio::test]
async fn expired_records_are_purged_in_batches_and_live_ones_stay() {
    let store = Faulty::new();
    let runtime = purging(&store, Some(ms(20)));
    expired(&store, &runtime, 1_500).await;
    let _live = run(&runtime, "live", "b", &Policy::DEFAULT).await;
    until("they are purged", || store.purged() == 1_500).await;
    assert!(runtime.look_up(&id("live")).await.unwrap().is_some());
}

#[test]
fn a_purge_rests_for_longer_than_it_works_once_it_has_worked_for_a_moment() {
    for (worked, rests) in [(0, 0), (1, 5), (2, 8), (500, 2000)] {
        assert_eq!(rest(ms(worked)).unwrap_or_default(), ms(rests), "{worked} ms");
    }
}

#[tokio::test]
async fn a_purge_that_fails_is_made_again() {
    let store = Faulty::new();
    store.fail(Op::Purge, Fault::Before, 2);
    let runtime = purging(&store, Some(ms(5)));
    expired(&store, &runtime, 1).await;
    until("it is purged", || store.purged() == 1).await;
    store.fail(Op::Purge, Fault::Panic, 1);
    expired(&store, &runtime, 1).await;
    until("it is purged after a panic", || store.purged() == 2).await;
}

#[tokio::test]
async fn the_purge_can_be_left_to_somebody_else() {
    let store = Faulty::new();
    let runtime = purging(&store, None);
    let _attempt = run(&runtime, "k", "b", &leased(ms(30))).await;
    until("the thread has worked", || store.calls(Op::Renew) > 3).await;
    assert_eq!(store.calls(Op::Purge), 0);
}

#[tokio::test]
async fn intervals_of_any_length_are_taken() {
    for every in [Duration::ZERO, Duration::MAX] {
        let store = Faulty::new();
        let runtime = purging(&store, Some(every));
        let attempt = run(&runtime, "k", "b", &leased(ms(30))).await;
        until("the thread has worked", || store.calls(Op::Renew) > 3).await;
        assert!(every == Duration::ZERO || store.calls(Op::Purge) == 0);
        attempt.release().await;
    }
}

#[tokio::test]
async fn the_thread_ends_with_the_last_runtime() {
    let store = Faulty::new();
    let runtime = purging(&store, Some(ms(5)));
    let attempt = run(&runtime, "k", "b", &leased(ms(30))).await;
    let clone = runtime.clone();
    until("it has worked", || store.calls(Op::Purge) > 0 && store.calls(Op::Renew) > 0).await;
    drop(runtime);
    let renewals = store.calls(Op::Renew);
    until("a clone keeps it at work", || store.calls(Op::Renew) > renewals).await;
    assert!(store.thread_is_alive());
    drop(clone);
    let renewals = store.calls(Op::Renew);
    until("so does an attempt", || store.calls(Op::Renew) > renewals).await;
    drop(attempt);
    until("it ends", || !store.thread_is_alive()).await;
    assert_eq!(store.holders(), 1, "nobody holds the store any more");
}

#[tokio::test]
async fn a_long_purge_does_not_keep_a_dropped_runtime_alive() {
    let store = Faulty::new();
    let runtime = purging(&store, Some(ms(1)));
    expired(&store, &runtime, 30_000).await;
    until("a purge is under way", || store.purged() > 0).await;
    drop(runtime);
    until("it ends", || !store.thread_is_alive()).await;
    assert!(store.purged() < 30_000, "it went on to the end");
}

#[test]
fn claims_that_come_all_at_once_are_all_renewed() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let barrier = std::sync::Barrier::new(8);
    let begin = &|worker: usize| {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        barrier.wait();
        tokio.block_on(run(&runtime, &format!("k{worker}"), "b", &leased(ms(90))))
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
