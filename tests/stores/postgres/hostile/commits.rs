//! Handlers that commit their transaction themselves.

use std::{mem, time::Duration};

use idempotent_core::{
    Abandoned, Policy, RecordState,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};

use super::{ClaimMode, EFFECT, Fixture, server, sql};
use test_support::cuts::{digest, id, recording};

/// Runs a handler that writes and commits its effect, together with the claim if that is part of
/// the transaction.
async fn commit_in_handler(fixture: &Fixture, policy: &Policy) -> Attempt {
    let begun = match fixture.mode {
        ClaimMode::Lease => fixture.runtime.begin(id(), digest(), policy).await,
        ClaimMode::Transaction => {
            fixture.runtime.begin_in_transaction(id(), digest(), policy).await
        }
    };
    let Admission::Proceed(attempt) = begun.unwrap() else {
        panic!("the claim of a new key was rejected")
    };
    fixture.work(attempt, &[EFFECT, "COMMIT"]).await
}

async fn end(mut attempt: Attempt, action: &str) -> AttemptOutcome {
    match action {
        "complete" => attempt.complete(&recording()).await,
        "complete undone" => attempt.complete_rolled_back(&recording()).await,
        "release" => attempt.release().await,
        "abandon" => attempt.abandon(Abandoned::Retry).await,
        "keep" => {
            let _kept = attempt.take_transaction();
            attempt.complete(&recording()).await
        }
        _ => panic!("unknown action: {action}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_its_handler_has_committed_is_held_however_the_attempt_ends() {
    let server = server().await;
    let fixture = Fixture::new(&server, ClaimMode::Transaction).await;
    for lease_expires in [false, true] {
        let lease = if lease_expires { Duration::from_millis(50) } else { Policy::DEFAULT.lease };
        let policy = Policy::DEFAULT.with_lease(lease);
        for action in ["complete", "complete undone", "release", "abandon", "keep"] {
            let attempt = commit_in_handler(&fixture, &policy).await;
            let id = *attempt.id();
            assert_eq!(
                fixture.effects_and_state(&id).await,
                (1, Some(RecordState::InFlight)),
                "effect and claim were not committed"
            );
            while lease_expires && !fixture.lease_expired(&id).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let ending = end(attempt, action).await;
            let context = format!("{action}, lease expires: {lease_expires}, {ending:?}");
            assert!(matches!(ending, AttemptOutcome::NotCommitted { .. }), "{context}");
            assert_eq!(
                fixture.effects_and_state(&id).await,
                (1, Some(RecordState::Held)),
                "{context}"
            );
            let retry = fixture.begin(id).await;
            assert!(
                matches!(retry, Admission::Rejected(Verdict::Held { .. })),
                "{context}: the retry got {retry:?}"
            );
        }
    }
}

/// A documented limit of `claim = "lease"`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_lease_effects_that_a_handler_commits_itself_are_not_rolled_back() {
    let server = server().await;
    let fixture = Fixture::new(&server, ClaimMode::Lease).await;
    for (action, completed) in [("complete undone", true), ("release", false)] {
        let attempt = commit_in_handler(&fixture, &Policy::DEFAULT).await;
        let id = *attempt.id();
        assert_eq!(end(attempt, action).await, AttemptOutcome::Stored, "{action}");
        let (effects, state) = fixture.effects_and_state(&id).await;
        assert_eq!((effects, state.is_some()), (1, completed), "{action}: {state:?}");
    }
}

/// The process dies between the `COMMIT` and the end of the attempt, also of one that has taken the
/// key over or has started it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_its_handler_has_committed_is_held_if_its_process_dies() {
    let server = server().await;
    let fixture = Fixture::new(&server, ClaimMode::Transaction).await;
    let expire = "UPDATE idempotency_records SET lease_until = 0";
    for before in ["", expire, "UPDATE idempotency_records SET lease_until = 0, expires_at = 1"] {
        let id = id();
        if !before.is_empty() {
            // An attempt of a handler with `claim = "lease"`, whose process has died, too.
            let Admission::Proceed(lost) =
                fixture.runtime.begin(id, digest(), &Policy::DEFAULT).await.unwrap()
            else {
                panic!("the claim of a new key was rejected")
            };
            mem::forget(lost);
            sql(&server.url("postgres"), before).await;
        }
        let Admission::Proceed(attempt) = fixture.begin(id).await else {
            panic!("{before}: the claim was rejected")
        };
        assert_eq!(attempt.number(), if before == expire { 2 } else { 1 });
        let attempt = fixture.work(attempt, &[EFFECT, "COMMIT"]).await;
        assert_eq!(fixture.effects_and_state(&id).await, (1, Some(RecordState::InFlight)));
        // No destructor runs in a process that is killed.
        mem::forget(attempt);
        sql(&server.url("postgres"), expire).await;
        let restarted = Fixture::new(&server, ClaimMode::Transaction).await;
        let retry = restarted.begin(id).await;
        assert!(
            matches!(retry, Admission::Rejected(Verdict::Held { .. })),
            "{before}: the retry got {retry:?}"
        );
        assert_eq!(restarted.effects_and_state(&id).await, (1, Some(RecordState::Held)));
    }
}
