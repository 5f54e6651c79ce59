//! Handlers that end their transaction themselves, and what they have written then.

use std::{mem, time::Duration};

use idempotent_core::{
    Abandoned, Lease, OwnerToken, Policy, RecordId, RecordState,
    protocol::Note,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::timeout;

use super::{ClaimMode, EFFECT, Fixture, server, sql};
use test_support::{
    cuts::{digest, id, recording, runtime},
    servers::postgres::Postgres,
};

async fn end(mut attempt: Attempt, action: &str) -> AttemptOutcome {
    match action {
        "complete" => attempt.complete(&recording()).await,
        "complete undone" => attempt.complete_rolled_back(&recording()).await,
        "release" => attempt.release().await,
        "abandon" => attempt.abandon(Abandoned::Retry).await,
        "note" => {
            let lease = Lease { id: *attempt.id(), owner: OwnerToken::random().unwrap() };
            let mut transaction = attempt.take_transaction().unwrap();
            let error = transaction
                .note(&lease, &Note::reference("r".try_into().unwrap()))
                .await
                .unwrap_err();
            assert!(error.is_escaped(), "{error:?}");
            // The handler ignores the error, and responds.
            attempt.return_transaction(transaction);
            attempt.complete(&recording()).await
        }
        _ => panic!("unknown action: {action}"),
    }
}

/// A server and a fixture for each claim mode on each kind of session: the store's own, and those
/// of a pool of the application.
async fn fixtures() -> (Postgres, Vec<(Fixture, &'static str)>) {
    let server = server().await;
    let url = server.url("postgres");
    let mut fixtures = Vec::new();
    for mode in [ClaimMode::Lease, ClaimMode::Transaction] {
        let pool = PgPool::connect(&url).await.unwrap();
        let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
        let runtime = runtime(store.clone());
        fixtures.push((Fixture::new(&server, mode).await, "own"));
        fixtures.push((Fixture { runtime, store, pool, mode, check_sessions: false }, "shared"));
    }
    (server, fixtures)
}

async fn proceed(fixture: &Fixture) -> Attempt {
    match fixture.begin(id()).await {
        Admission::Proceed(attempt) => attempt,
        outcome @ Admission::Rejected(_) => panic!("the claim of a new key got {outcome:?}"),
    }
}

/// Asserts that a key is held, and how many effects there are.
async fn assert_held(fixture: &Fixture, id: RecordId, effects: i64, context: &str) {
    let (found, state) = fixture.effects_and_state(&id).await;
    assert_eq!(found, effects, "{context}");
    assert!(matches!(state, Some(RecordState::Held)), "{context}: {state:?}");
    let retry = fixture.begin(id).await;
    assert!(
        matches!(retry, Admission::Rejected(Verdict::Rejected(Rejection::Held { .. }))),
        "{context}: {retry:?}"
    );
}

/// Ends the transaction, and commits the effect outside of it, in any session.
const ESCAPES: &[&[&str]] = &[
    &["ROLLBACK AND CHAIN", EFFECT, "COMMIT"],
    &["ROLLBACK; BEGIN READ WRITE", EFFECT, "COMMIT"],
    &[EFFECT, "CLOSE ALL; COMMIT"],
];
/// The same where the session may write outside of transactions.
const ESCAPES_IF_SHARED: &[&[&str]] = &[&["ROLLBACK", EFFECT], &["COMMIT", EFFECT]];

fn escapes(sessions: &str) -> Vec<&'static [&'static str]> {
    let more = if sessions == "shared" { ESCAPES_IF_SHARED } else { &[] };
    [ESCAPES, more].concat()
}

/// The handler responds with any status, its attempt is given up, or it makes a note, after it has
/// ended its transaction and committed an effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_held_if_a_handler_commits_an_effect_outside_of_its_transaction() {
    let (_server, fixtures) = fixtures().await;
    for (fixture, sessions) in fixtures {
        for action in ["complete", "complete undone", "release", "abandon", "note"] {
            for script in escapes(sessions) {
                let attempt = proceed(&fixture).await;
                let id = *attempt.id();
                let attempt = fixture.work(attempt, script).await;
                let ending = end(attempt, action).await;
                let context = format!("{:?}, {sessions}, {script:?}, {action}", fixture.mode);
                assert_eq!(ending, AttemptOutcome::Held, "{context}");
                assert_held(&fixture, id, 1, &context).await;
            }
        }
    }
}

/// The handler is dropped in the middle of a later statement, which outlasts the time that the
/// store waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_held_if_a_handler_is_dropped_after_it_has_ended_its_transaction() {
    let (_server, fixtures) = fixtures().await;
    let in_transaction: &[&str] = &[EFFECT];
    for (fixture, sessions) in fixtures {
        for script in [in_transaction].into_iter().chain(escapes(sessions)) {
            let attempt = proceed(&fixture).await;
            let id = *attempt.id();
            let mut attempt = fixture.work(attempt, script).await;
            let mut transaction = attempt.take_transaction().unwrap();
            let connection: &mut PgConnection =
                transaction.connection_mut().downcast_mut().unwrap();
            let statement = sqlx::raw_sql("SELECT pg_sleep(600)").execute(connection);
            timeout(Duration::from_millis(50), statement).await.unwrap_err();
            attempt.return_transaction(transaction);
            let ending = end(attempt, "abandon").await;
            let context = format!("{:?}, {sessions}, {script:?}: {ending:?}", fixture.mode);
            if script != in_transaction {
                assert_held(&fixture, id, 1, &context).await;
                continue;
            }
            fixture.runtime.drain().await;
            let retry = fixture.begin(id).await;
            assert!(matches!(retry, Admission::Proceed(_)), "{context}: {retry:?}");
        }
    }
}

/// The store cannot hold the key at once, because the table is locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_fails_is_retried_and_no_request_runs_in_between() {
    let (server, fixtures) = fixtures().await;
    for (fixture, sessions) in fixtures {
        let attempt = proceed(&fixture).await;
        let id = *attempt.id();
        let attempt = fixture.work(attempt, ESCAPES[0]).await;
        let lock = "BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE";
        let mut other = PgConnection::connect(&server.url("postgres")).await.unwrap();
        sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
        let ending = end(attempt, "release").await;
        let context = format!("{:?}, {sessions}", fixture.mode);
        assert_eq!(ending, AttemptOutcome::Held, "{context}");
        let meanwhile = fixture.begin(id).await;
        assert!(
            matches!(meanwhile, Admission::Rejected(Verdict::Rejected(Rejection::Held { .. }))),
            "{context}: {meanwhile:?}"
        );
        other.close().await.unwrap();
        fixture.runtime.drain().await;
        assert_held(&fixture, id, 1, &context).await;
    }
}

/// In the store's own sessions the server refuses the `COMMIT`, and all that follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_cannot_commit_the_transaction_of_its_claim() {
    let (_server, fixtures) = fixtures().await;
    for (fixture, _) in fixtures.iter().filter(|(_, sessions)| *sessions == "own") {
        for action in ["complete", "complete undone", "release", "abandon", "note"] {
            let attempt = proceed(fixture).await;
            let id = *attempt.id();
            let attempt = fixture.work(attempt, &[EFFECT, "COMMIT", EFFECT]).await;
            let ending = end(attempt, action).await;
            let context = format!("{:?}, {action}", fixture.mode);
            assert_eq!(ending, AttemptOutcome::Held, "{context}");
            assert_held(fixture, id, 0, &context).await;
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
