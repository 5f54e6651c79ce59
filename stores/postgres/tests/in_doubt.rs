//! Rollbacks that time out while the server still executes a statement of the handler.

use std::time::Duration;

use idempotent_core::{
    Abandoned, Policy, RecordState, Store,
    protocol::Rejection,
    runtime::{Admission, AttemptOutcome, Verdict},
};
use sqlx::PgConnection;
use tokio::time::{sleep, timeout};

use crate::helpers::{id, number, sql, store};
use test_support::cuts::{digest, runtime};

/// A deferred trigger makes each commit take longer than the time limit of a rollback.
const SLOW: &str = "CREATE TABLE effects (n int);
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(5); \
    RETURN NEW; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED \
    FOR EACH ROW EXECUTE FUNCTION slow()";

/// Drops a handler during this statement. Returns the outcome of its attempt; the first verdict on
/// its key that is not "in flight", or `None` if the next attempt runs; and the number of committed
/// effects.
async fn drop_handler_during(statement: &'static str) -> (AttemptOutcome, Option<Verdict>, i64) {
    let (store, url) = store().await;
    sql(&url, SLOW).await;
    let (runtime, id) = (runtime(store.clone()), id());
    let policy = Policy::DEFAULT.with_lease(Duration::from_secs(1));
    let Admission::Proceed(mut attempt) =
        runtime.begin_in_transaction(id, digest(), &policy).await.unwrap()
    else {
        panic!("the claim of a new key was rejected")
    };
    let mut transaction = attempt.take_transaction().unwrap();
    let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
    sqlx::raw_sql("INSERT INTO effects VALUES (1)").execute(&mut *connection).await.unwrap();
    timeout(Duration::from_millis(100), sqlx::raw_sql(statement).execute(connection))
        .await
        .unwrap_err();
    attempt.return_transaction(transaction);
    let ending = attempt.abandon(Abandoned::Retry).await;
    runtime.drain().await;
    let verdict = loop {
        match runtime.begin_in_transaction(id, digest(), &policy).await.unwrap() {
            Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. })) => {
                sleep(Duration::from_millis(10)).await
            }
            Admission::Rejected(verdict) => break Some(verdict),
            Admission::Proceed(attempt) => {
                assert_eq!(attempt.number(), 1, "a trace of the first attempt is left");
                attempt.release().await;
                break None;
            }
        }
    };
    let held = store
        .look_up(&id)
        .await
        .unwrap()
        .is_some_and(|found| found.record.state == RecordState::Held);
    assert_eq!(held, verdict.is_some());
    (ending, verdict, number(&url, "SELECT count(*) FROM effects").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_a_dropped_handler_that_outlasts_its_rollback_is_refused() {
    // The server does not check whether its client is still connected, like while it waits for a
    // standby.
    let commit = "SET LOCAL client_connection_check_interval = 0; COMMIT";
    assert_eq!(drop_handler_during(commit).await, (AttemptOutcome::Deferred, None, 0));
}

/// Here the server notices that its client has disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_statement_that_outlasts_the_rollback_is_rolled_back() {
    assert_eq!(
        drop_handler_during("SELECT pg_sleep(600)").await,
        (AttemptOutcome::Deferred, None, 0)
    );
}
