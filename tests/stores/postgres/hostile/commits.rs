//! Handlers that commit their transaction themselves.

use std::mem;

use idempotent_core::{
    Abandoned, Policy, RecordState,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
    store::postgres::PostgresStore,
};
use sqlx::PgPool;

use super::{ClaimMode, EFFECT, Fixture, server, sql};
use test_support::cuts::{digest, id, recording, runtime};

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
async fn a_handler_cannot_commit_the_transaction_of_its_claim() {
    let server = server().await;
    let fixture = Fixture::new(&server, ClaimMode::Transaction).await;
    for action in ["complete", "complete undone", "release", "abandon", "keep"] {
        let attempt = commit_in_handler(&fixture, &Policy::DEFAULT).await;
        let id = *attempt.id();
        assert_eq!(fixture.effects_and_state(&id).await, (0, None), "the server has committed");
        let ending = end(attempt, action).await;
        assert!(!matches!(ending, AttemptOutcome::Deferred), "{action}: {ending:?}");
        assert_eq!(fixture.effects_and_state(&id).await, (0, None), "{action}: {ending:?}");
        let Admission::Proceed(retry) = fixture.begin(id).await else {
            panic!("{action}: the retry does not run")
        };
        let retry = fixture.work(retry, &[EFFECT]).await;
        assert_eq!(retry.complete(&recording()).await, AttemptOutcome::Stored, "{action}");
        let (effects, _) = fixture.effects_and_state(&id).await;
        assert_eq!(effects, 1, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_lease_nothing_stays_of_a_commit_that_the_server_refuses() {
    let server = server().await;
    let fixture = Fixture::new(&server, ClaimMode::Lease).await;
    for (action, completed) in [("complete undone", true), ("release", false)] {
        let attempt = commit_in_handler(&fixture, &Policy::DEFAULT).await;
        let id = *attempt.id();
        assert_eq!(end(attempt, action).await, AttemptOutcome::Stored, "{action}");
        let (effects, state) = fixture.effects_and_state(&id).await;
        assert_eq!((effects, state.is_some()), (0, completed), "{action}: {state:?}");
    }
}

/// The handler responds with 400 or above, or its attempt is given up, after it has ended its
/// transaction in a session of the application and written its effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_held_if_a_handler_writes_after_its_transaction_in_a_shared_session() {
    let server = server().await;
    for mode in [ClaimMode::Lease, ClaimMode::Transaction] {
        let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
        let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
        let fixture =
            Fixture { runtime: runtime(store.clone()), store, pool, mode, check_sessions: false };
        for action in ["complete", "complete undone", "release", "abandon"] {
            for statement in ["ROLLBACK", "COMMIT"] {
                let Admission::Proceed(attempt) = fixture.begin(id()).await else {
                    panic!("the claim of a new key was rejected")
                };
                let id = *attempt.id();
                let attempt = fixture.work(attempt, &[statement, EFFECT]).await;
                let ending = end(attempt, action).await;
                let context = format!("{mode:?}, {statement}, {action}: {ending:?}");
                assert_eq!(ending, AttemptOutcome::Held, "{context}");
                let (effects, state) = fixture.effects_and_state(&id).await;
                assert_eq!(effects, 1, "{context}");
                assert!(matches!(state, Some(RecordState::Held)), "{context}: {state:?}");
                let retry = fixture.begin(id).await;
                assert!(
                    matches!(retry, Admission::Rejected(Verdict::Held { .. })),
                    "{context}: {retry:?}"
                );
            }
        }
    }
}

/// The process dies after the handler's `COMMIT`, also during an attempt that has taken the key
/// over or has started it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_commits_and_dies_leaves_no_effect() {
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
        let number = if before == expire { 2 } else { 1 };
        assert_eq!(attempt.number(), number);
        let attempt = fixture.work(attempt, &[EFFECT, "COMMIT"]).await;
        let (effects, state) = fixture.effects_and_state(&id).await;
        assert_eq!((effects, state.is_some()), (0, before == expire), "{before}: {state:?}");
        // No destructor runs in a process that is killed.
        mem::forget(attempt);
        let restarted = Fixture::new(&server, ClaimMode::Transaction).await;
        let Admission::Proceed(retry) = restarted.begin(id).await else {
            panic!("{before}: the retry does not run")
        };
        assert_eq!(retry.number(), number);
        let retry = restarted.work(retry, &[EFFECT]).await;
        assert_eq!(retry.complete(&recording()).await, AttemptOutcome::Stored, "{before}");
        let (effects, state) = restarted.effects_and_state(&id).await;
        assert!(matches!((effects, state), (1, Some(RecordState::Completed(_)))), "{before}");
    }
}
