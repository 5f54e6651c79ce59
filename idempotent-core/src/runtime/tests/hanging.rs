//! Calls that the store never answers.

use std::time::{Duration, Instant};

use crate::{
    policy::{Abandoned, Policy},
    runtime::{
        AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

const FOR_EVER: usize = usize::MAX;

fn impatient(store: &Faulty) -> Runtime {
    Runtime::new(store.clone(), RuntimeOptions { store_timeout: ms(50), ..quiet() })
}

#[tokio::test(start_paused = true)]
async fn a_claim_fails_in_time_and_is_not_sent_again() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Claim, Fault::HangAfter, 1);
    let started = tokio::time::Instant::now();
    let error = runtime.begin(id("k"), request("b"), &Policy::DEFAULT).await.expect_err("it is not answered");
    assert!(error.is_transient());
    let took = started.elapsed();
    assert!((ms(9_990)..ms(10_100)).contains(&took), "{took:?}");
    assert_eq!(store.calls(Op::Claim), 1);
    soon_by_the_wall(|| runtime.shared.deferrals.load().ends == 0).await;
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1, "it was given back");
}

#[tokio::test(start_paused = true)]
async fn first_claims_do_not_queue_behind_one_another_s_failing_check() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Check, Fault::HangBefore, FOR_EVER);
    let started = tokio::time::Instant::now();
    let mut claims = tokio::task::JoinSet::new();
    for key in 0..20 {
        let runtime = runtime.clone();
        claims.spawn(async move { runtime.begin(id(&format!("k{key}")), request("b"), &Policy::DEFAULT).await });
    }
    while let Some(claim) = claims.join_next().await {
        assert!(claim.unwrap().expect_err("the check is not answered").is_transient());
    }
    let took = started.elapsed();
    assert!((ms(9_990)..ms(10_100)).contains(&took), "{took:?}");
    assert_eq!(store.calls(Op::Claim), 0);
    store.heal();
    assert_eq!(run(&runtime, "k0", "b", &Policy::DEFAULT).await.number(), 1, "the check is made again");
}

async fn soon_by_the_wall(holds: impl FnMut() -> bool) {
    until("it is settled", holds).await;
}

#[tokio::test]
async fn a_completion_is_deferred_in_time() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::Complete, Fault::HangBefore, 3);
    assert_eq!(soon(attempt.complete(&answer("a"))).await, AttemptOutcome::Deferred);
    soon(runtime.settled()).await;
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
}

#[tokio::test]
async fn a_deferral_gives_up_and_lets_the_runtime_go() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let attempt = run(&runtime, "k", "b", &Policy { ttl: ms(240), ..leased(ms(120)) }).await;
    store.fail(Op::Complete, Fault::HangBefore, FOR_EVER);
    assert_eq!(soon(attempt.complete(&answer("a"))).await, AttemptOutcome::Deferred);
    soon(runtime.settled()).await;
    assert_eq!(runtime.shared.renewal.count(), 0);
    drop(runtime);
    until("the runtime is gone", || store.holders() == 1).await;
}

#[tokio::test]
async fn a_fenced_attempt_is_told_something_in_time() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    stranger(&store, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::LookUp, Fault::HangBefore, FOR_EVER);
    let ending = soon(attempt.complete(&answer("its own"))).await;
    assert_eq!(ending, AttemptOutcome::Fenced(Verdict::InFlight { lease_left: Duration::ZERO }));
}

#[tokio::test]
async fn renewals_go_on_after_one_that_is_not_answered() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let attempt = run(&runtime, "k", "b", &leased(ms(90))).await;
    store.fail(Op::Renew, Fault::HangBefore, 2);
    until("it is renewed", || store.batches().len() >= 2).await;
    store.advance(ms(89));
    assert!(!store.inner().look_up(&id("k")).await.unwrap().is_some_and(|found| found.record.lapsed(found.at)));
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn an_abandonment_does_not_wait_for_a_renewal_without_end() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let attempt = run(&runtime, "k", "b", &leased(ms(90))).await;
    store.fail(Op::Renew, Fault::HangBefore, FOR_EVER);
    until("a renewal hangs", || store.calls(Op::Renew) > 0).await;
    assert_eq!(soon(attempt.abandon(Abandoned::Retry)).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn one_who_waits_is_told_in_time() {
    let store = Faulty::new();
    let runtime = impatient(&store);
    let _attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::Claim, Fault::HangBefore, FOR_EVER);
    let started = Instant::now();
    assert!(soon(runtime.begin(id("k"), request("b"), &waiting(ms(60_000)))).await.is_err());
    assert!(started.elapsed() < ms(5_000));
}

#[tokio::test]
async fn purges_go_on_after_one_that_is_not_answered() {
    let store = Faulty::new();
    let options = RuntimeOptions { store_timeout: ms(5), purge_every: Some(ms(5)), ..quiet() };
    let runtime = Runtime::new(store.clone(), options);
    store.fail(Op::Purge, Fault::HangBefore, 1);
    run(&runtime, "k", "b", &Policy::DEFAULT).await.complete(&answer("a")).await;
    store.advance(Policy::DEFAULT.ttl);
    until("it is purged", || store.purged() == 1).await;
}
