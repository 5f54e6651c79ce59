//! Calls to the store that hang.

use std::time::{Duration, Instant};

use idempotent_core::{
    Abandoned, Policy, Runtime,
    internals::gauges,
    protocol::Rejection,
    runtime::{AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const ALWAYS: usize = usize::MAX;

fn short_timeout(store: &FaultyStore) -> Runtime {
    Runtime::new(store.clone(), options(|options| options.store_timeout = ms(50)))
}

#[tokio::test(start_paused = true)]
async fn a_hanging_claim_times_out_and_is_not_sent_again() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Claim, 1, Fault::HangAfter);
    let started = tokio::time::Instant::now();
    let error =
        runtime.begin(id("k"), request("b"), &Policy::DEFAULT).await.expect_err("the claim hangs");
    assert!(error.is_transient());
    let took = started.elapsed();
    assert!((ms(9_990)..ms(10_100)).contains(&took), "{took:?}");
    assert_eq!(store.begun(Op::Claim), 1);
    until("the claim is given back", || gauges(&runtime).deferred_ends == 0).await;
    assert_eq!(
        proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(),
        1,
        "the claim was not given back"
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_first_claims_wait_only_once_for_a_hanging_check() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Check, ALWAYS, Fault::HangBefore);
    let started = tokio::time::Instant::now();
    let mut claims = tokio::task::JoinSet::new();
    for key in 0..20 {
        let runtime = runtime.clone();
        claims.spawn(async move {
            runtime.begin(id(&format!("k{key}")), request("b"), &Policy::DEFAULT).await
        });
    }
    while let Some(claim) = claims.join_next().await {
        assert!(claim.unwrap().expect_err("the check hangs").is_transient());
    }
    let took = started.elapsed();
    assert!((ms(9_990)..ms(10_100)).contains(&took), "{took:?}");
    assert_eq!(store.begun(Op::Claim), 0);
    store.heal();
    assert_eq!(
        proceed(&runtime, "k0", "b", &Policy::DEFAULT).await.number(),
        1,
        "the check is not repeated"
    );
}

#[tokio::test]
async fn a_hanging_completion_is_deferred_in_time() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, 3, Fault::HangBefore);
    assert_eq!(in_time(attempt.complete(&response("a"))).await, AttemptOutcome::Deferred);
    in_time(runtime.drain()).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
}

#[tokio::test]
async fn a_hanging_deferred_end_is_given_up_and_frees_the_runtime() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let attempt = proceed(&runtime, "k", "b", &with_lease(ms(120)).with_ttl(ms(240))).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::HangBefore);
    assert_eq!(in_time(attempt.complete(&response("a"))).await, AttemptOutcome::Deferred);
    in_time(runtime.drain()).await;
    assert_eq!(gauges(&runtime).live_leases, 0);
    drop(runtime);
    until("the runtime is gone", || store.handles() == 1).await;
}

#[tokio::test]
async fn a_fenced_attempt_whose_look_up_hangs_gets_a_verdict_in_time() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::LookUp, ALWAYS, Fault::HangBefore);
    let ending = in_time(attempt.complete(&response("the fenced attempt's"))).await;
    assert_eq!(
        ending,
        AttemptOutcome::Fenced(Verdict::Rejected(Rejection::InFlight {
            lease_left: Duration::ZERO,
            reference: None
        }))
    );
}

#[tokio::test]
async fn renewals_continue_after_one_that_hangs() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let attempt = proceed(&runtime, "k", "b", &with_lease(ms(90))).await;
    store.set_fault(Op::Renew, 2, Fault::HangBefore);
    until("the lease is renewed", || store.batches().len() >= 2).await;
    store.advance(ms(89));
    assert!(
        !store
            .inner()
            .look_up(&id("k"))
            .await
            .unwrap()
            .is_some_and(|found| found.record.lease_expired(found.at))
    );
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn an_abandonment_does_not_wait_for_a_renewal_that_hangs() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let attempt = proceed(&runtime, "k", "b", &with_lease(ms(90))).await;
    store.set_fault(Op::Renew, ALWAYS, Fault::HangBefore);
    until("a renewal hangs", || store.begun(Op::Renew) > 0).await;
    assert_eq!(in_time(attempt.abandon(Abandoned::Retry)).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_waiter_whose_claim_hangs_gets_an_error_in_time() {
    let store = FaultyStore::default();
    let runtime = short_timeout(&store);
    let _attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Claim, ALWAYS, Fault::HangBefore);
    let started = Instant::now();
    assert!(in_time(runtime.begin(id("k"), request("b"), &with_wait(ms(60_000)))).await.is_err());
    assert!(started.elapsed() < ms(5_000));
}

#[tokio::test]
async fn purges_continue_after_one_that_hangs() {
    let store = FaultyStore::default();
    let options = options(|options| {
        options.store_timeout = ms(5);
        options.purge_every = Some(ms(5));
    });
    let runtime = Runtime::new(store.clone(), options);
    store.set_fault(Op::Purge, 1, Fault::HangBefore);
    proceed(&runtime, "k", "b", &Policy::DEFAULT).await.complete(&response("a")).await;
    store.advance(Policy::DEFAULT.ttl);
    until("the record is purged", || store.purged() == 1).await;
}
