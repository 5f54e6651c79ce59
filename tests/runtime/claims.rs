//! Claims whose outcome is unknown.

use std::sync::Arc;

use futures_util::FutureExt;
use idempotent_core::{
    OwnerToken, Policy, Runtime, StoreError,
    internals::{Gauges, gauges, open_transaction, runtime_of_another_process},
    protocol::{Actor, Rejection, Resolution},
    runtime::{AttemptOutcome, Verdict},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

async fn begin_error(runtime: &Runtime, policy: &Policy) -> StoreError {
    runtime.begin(id("k"), request("b"), policy).await.expect_err("the store fails")
}

/// A forked process has no thread that renews leases.
#[test]
#[cfg(unix)]
fn a_claim_in_a_forked_process_fails() {
    let runtime = runtime(&FaultyStore::default());
    let claim = || begin_error(&runtime, &Policy::DEFAULT).now_or_never();
    // The child has this thread alone; the C library's allocator may be used there.
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let is_refused = claim().is_some_and(|error| !error.is_transient());
            std::process::exit(i32::from(!is_refused));
        }
        fork::Fork::Parent(child) => {
            assert!(fork::WEXITSTATUS(fork::waitpid(child).unwrap()) == 0, "a child has claimed");
        }
    }
}

/// No call of a runtime is made in a forked process. A fork is simulated.
#[tokio::test]
async fn a_forked_process_cannot_use_the_runtime() {
    let store = FaultyStore::default();
    let runtime = runtime_of_another_process(Arc::new(store.clone()), no_purge());
    let seen = OwnerToken::random().unwrap();
    let (administrator, actor) = (runtime.administrator(), Actor::default());
    let refused = [
        begin_error(&runtime, &Policy::DEFAULT).await,
        runtime.begin_in_transaction(id("k"), request("b"), &Policy::DEFAULT).await.unwrap_err(),
        runtime.find(id("k"), request("b")).await.unwrap_err(),
        runtime.look_up(&id("k")).await.unwrap_err(),
        administrator.resolve(&id("k"), &seen, &Resolution::Release, &actor).await.unwrap_err(),
        administrator.count().await.unwrap_err(),
    ];
    for error in refused {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(!error.is_transient() && cause.contains("forked"), "{error}: {cause}");
    }
    assert_eq!([Op::Claim, Op::LookUp].map(|op| store.begun(op)), [0; 2]);
    assert_eq!(gauges(&runtime), Gauges::default());
}

/// An open transaction may belong to a duplicate that is going to be rejected, so the record
/// decides.
#[tokio::test]
async fn a_record_takes_precedence_over_an_open_transaction() {
    let runtime = runtime(&FaultyStore::default());
    let register = |key, body| open_transaction(&runtime, &id(key), request(body));
    proceed(&runtime, "done", "b", &Policy::DEFAULT).await.complete(&response("done")).await;
    let _open = ["done", "new"].map(|key| register(key, "another payload").unwrap());
    let find = async |key, body| runtime.find(id(key), request(body)).await.unwrap();
    assert_eq!(find("done", "b").await, Some(replay_of("done")));
    assert!(is_mismatch(&find("done", "other").await.unwrap()));
    assert!(is_mismatch(&find("new", "b").await.unwrap()));
    assert_eq!(
        find("new", "another payload").await,
        Some(Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None }))
    );
    assert_eq!(find("unused", "b").await, None);
}

#[tokio::test]
async fn a_claim_that_fails_once_is_sent_again() {
    for fault in [Fault::Before, Fault::After] {
        let store = FaultyStore::default();
        store.set_fault(Op::Claim, 1, fault);
        assert_eq!(
            proceed(&runtime(&store), "k", "b", &Policy::DEFAULT).await.number(),
            1,
            "{fault:?}"
        );
        assert_eq!((store.begun(Op::Claim), store.begun(Op::Release)), (2, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn a_claim_is_not_sent_again_after_a_permanent_error() {
    let store = FaultyStore::default();
    store.set_fault(Op::Claim, 1, Fault::Permanent);
    assert!(!begin_error(&runtime(&store), &Policy::DEFAULT).await.is_transient());
    assert_eq!(store.begun(Op::Claim), 1);
}

#[tokio::test]
async fn a_claim_whose_acknowledgment_was_lost_is_given_back() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Claim, 2, Fault::After);
    store.set_fault(Op::Release, 2, Fault::Before);
    assert_eq!(begin_error(&runtime, &Policy::DEFAULT).await.operation(), "acknowledge the call");
    assert!(runtime.look_up(&id("k")).await.unwrap().is_some(), "the claim took effect");
    in_time(runtime.drain()).await;
    assert_eq!(store.begun(Op::Release), 3);
    assert!(runtime.look_up(&id("k")).await.unwrap().is_none());
}

/// The second transmission of a claim may find the first one while it is being committed. No
/// handler runs, and no client reads that another request is in flight.
#[tokio::test]
async fn a_claim_that_finds_its_own_first_transmission_in_flight_is_given_back() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Claim, 1, Fault::After);
    store.hide_grants(1);
    begin_error(&runtime, &Policy::DEFAULT).await;
    in_time(runtime.drain()).await;
    assert_eq!((store.begun(Op::Claim), store.begun(Op::Release)), (2, 1));
    assert!(runtime.look_up(&id("k")).await.unwrap().is_none());
    assert_eq!(proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn a_takeover_whose_acknowledgment_was_lost_is_given_back_as_a_takeover() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    drop(proceed(&runtime, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    store.set_fault(Op::Claim, 2, Fault::After);
    begin_error(&runtime, &Policy::DEFAULT).await;
    in_time(runtime.drain()).await;
    assert_eq!(
        proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(),
        3,
        "the attempts before the takeover were forgotten"
    );
}

#[tokio::test]
async fn giving_back_a_claim_without_effect_does_not_affect_the_owner() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Claim, 2, Fault::Before);
    begin_error(&runtime, &Policy::DEFAULT).await;
    in_time(runtime.drain()).await;
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn the_number_of_claims_to_give_back_is_limited() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Claim, usize::MAX, Fault::Permanent);
    store.set_fault(Op::LookUp, usize::MAX, Fault::HangBefore);
    for _ in 0..400 {
        begin_error(&runtime, &Policy::DEFAULT).await;
    }
    assert_eq!(gauges(&runtime).deferred_ends, 256);
    store.heal();
    until("all claims are given back", || {
        store.resume();
        gauges(&runtime).deferred_ends == 0
    })
    .await;
}
