//! Claims whose outcome is unknown.

use std::sync::Arc;

use crate::{
    policy::Policy,
    runtime::{
        Verdict,
        process::Process,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
};

async fn fails(runtime: &crate::Runtime, policy: &Policy) -> crate::StoreError {
    runtime.begin(id("k"), request("b"), policy).await.expect_err("the store fails")
}

/// The thread that renews leases is not there after a fork. The id of the process stands for the fork, which no safe code can make.
#[tokio::test]
async fn a_claim_in_another_process_than_the_runtimes_is_refused() {
    let store = Faulty::new();
    let mut runtime = runtime(&store);
    Arc::get_mut(&mut runtime.shared).unwrap().background.process = Process::of(std::process::id() + 1);
    let seen = crate::lease::OwnerToken::random().unwrap();
    let refused = [
        fails(&runtime, &Policy::DEFAULT).await,
        runtime.begin_within(id("k"), request("b"), &Policy::DEFAULT).await.unwrap_err(),
        runtime.find(id("k"), request("b")).await.unwrap_err(),
        runtime.look_up(&id("k")).await.unwrap_err(),
        runtime.resolve(&id("k"), &seen, &crate::protocol::Resolution::Release).await.unwrap_err(),
    ];
    for error in refused {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(!error.is_transient() && cause.contains("forked"), "{error}: {cause}");
    }
    assert_eq!([Op::Claim, Op::LookUp].map(|op| store.calls(op)), [0; 2]);
}

/// Whoever is entered may only ask for the key, as each duplicate does: what is recorded comes first.
#[tokio::test]
async fn what_is_found_of_a_key_is_its_record_whoever_else_asks() {
    let runtime = runtime(&Faulty::new());
    let enter = |key, body| runtime.shared.enter(&id(key), runtime.shared.options.fingerprint_keys.sign(request(body)));
    run(&runtime, "done", "b", &Policy::DEFAULT).await.complete(&answer("done")).await;
    let _asking = ["done", "new"].map(|key| enter(key, "another payload").ok().unwrap());
    let find = async |key, body| runtime.find(id(key), request(body)).await.unwrap();
    assert_eq!(find("done", "b").await, Some(Verdict::Completed(answer("done"))));
    assert_eq!(find("done", "other").await, Some(Verdict::Mismatch));
    assert_eq!(find("new", "b").await, Some(Verdict::Mismatch));
    assert_eq!(find("new", "another payload").await, Some(Verdict::InFlight { lease_left: ms(0) }));
    assert_eq!(find("unused", "b").await, None);
}

#[tokio::test]
async fn a_claim_that_fails_at_first_is_sent_again() {
    for fault in [Fault::Before, Fault::After] {
        let store = Faulty::new();
        store.fail(Op::Claim, fault, 1);
        assert_eq!(run(&runtime(&store), "k", "b", &Policy::DEFAULT).await.number(), 1, "{fault:?}");
        assert_eq!((store.calls(Op::Claim), store.calls(Op::Release)), (2, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn a_claim_is_not_sent_again_after_an_error_that_stays() {
    let store = Faulty::new();
    store.fail(Op::Claim, Fault::Permanent, 1);
    assert!(!fails(&runtime(&store), &Policy::DEFAULT).await.is_transient());
    assert_eq!(store.calls(Op::Claim), 1);
}

#[tokio::test]
async fn a_claim_whose_acknowledgement_was_lost_is_given_back() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Claim, Fault::After, 2);
    store.fail(Op::Release, Fault::Before, 2);
    assert_eq!(fails(&runtime, &Policy::DEFAULT).await.operation(), "say so");
    assert!(runtime.look_up(&id("k")).await.unwrap().is_some(), "it took effect");
    soon(runtime.settled()).await;
    assert_eq!(store.calls(Op::Release), 3);
    assert!(runtime.look_up(&id("k")).await.unwrap().is_none());
}

/// The second sending may meet the first one while that is being committed. It is then reported in flight, and no handler runs for it.
#[tokio::test]
async fn a_claim_that_meets_its_own_first_sending_is_given_back() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Claim, Fault::After, 1);
    store.hide_grants(1);
    let verdict = told(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(verdict, Verdict::InFlight { .. }), "{verdict:?}");
    soon(runtime.settled()).await;
    assert_eq!((store.calls(Op::Claim), store.calls(Op::Release)), (2, 1));
    assert!(runtime.look_up(&id("k")).await.unwrap().is_none());
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1);
}

#[tokio::test]
async fn a_takeover_whose_acknowledgement_was_lost_is_given_back_as_a_takeover() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    drop(run(&runtime, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    store.fail(Op::Claim, Fault::After, 2);
    fails(&runtime, &Policy::DEFAULT).await;
    soon(runtime.settled()).await;
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 3, "the first attempt is not forgotten");
}

#[tokio::test]
async fn a_claim_that_never_took_effect_takes_nothing_from_the_owner() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::Claim, Fault::Before, 2);
    fails(&runtime, &Policy::DEFAULT).await;
    soon(runtime.settled()).await;
    assert_eq!(attempt.complete(&answer("a")).await, crate::runtime::AttemptOutcome::Stored);
}

#[tokio::test]
async fn claims_to_be_given_back_do_not_pile_up() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Claim, Fault::Permanent, usize::MAX);
    store.fail(Op::LookUp, Fault::HangBefore, usize::MAX);
    for _ in 0..400 {
        fails(&runtime, &Policy::DEFAULT).await;
    }
    assert_eq!(runtime.shared.deferrals.load().ends, 256);
    store.heal();
    until("all of them are settled", || {
        store.let_go();
        runtime.shared.deferrals.load().ends == 0
    })
    .await;
}
