//! What a handler leaves on its connection: responses of the server that were not read, and changed
//! sessions. Also transactions without a record.

use std::time::Duration;

use idempotent_core::{
    Policy, RecordId, RecordState, Runtime, Store,
    runtime::{Admission, Attempt, AttemptOutcome},
    store::Transaction,
};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};

use crate::helpers::{database, number, sql};
use test_support::cuts::{digest, id, recording, runtime};

const SCHEMA: &str = "CREATE TABLE effects (note text PRIMARY KEY)";

struct Fixture {
    url: String,
    runtime: Runtime,
    store: PostgresStore,
}

impl Fixture {
    async fn new() -> Self {
        let url = database().await;
        sql(&url, SCHEMA).await;
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Self { runtime: runtime(store.clone()), store, url }
    }

    async fn is_completed(&self, id: &RecordId) -> bool {
        let found = self.store.look_up(id).await.unwrap();
        found.is_some_and(|found| matches!(found.record.state, RecordState::Completed(_)))
    }

    async fn effects(&self) -> i64 {
        number(&self.url, "SELECT count(*) FROM effects").await
    }
}

fn connection(transaction: &mut dyn Transaction) -> &mut PgConnection {
    transaction.connection_mut().downcast_mut::<PgConnection>().unwrap()
}

async fn begin(runtime: &Runtime, in_transaction: bool, policy: &Policy) -> Attempt {
    let id = id();
    let begun = if in_transaction {
        runtime.begin_in_transaction(id, digest(), policy).await.unwrap()
    } else {
        runtime.begin(id, digest(), policy).await.unwrap()
    };
    let Admission::Proceed(mut attempt) = begun else {
        panic!("the claim of a new key was rejected: {begun:?}")
    };
    if !in_transaction {
        attempt.begin_transaction().await.unwrap();
    }
    attempt
}

/// Runs a handler that tries to export data, which the server refuses, and that continues. Returns
/// what is wrong afterwards.
async fn check_after_failed_copy(nested: bool, in_transaction: bool) -> Result<(), String> {
    let fixture = Fixture::new().await;
    let mut attempt = begin(&fixture.runtime, in_transaction, &Policy::DEFAULT).await;
    let key = *attempt.id();
    let mut transaction = attempt.take_transaction().unwrap();
    let c = connection(&mut *transaction);
    sqlx::raw_sql("INSERT INTO effects VALUES ('one')").execute(&mut *c).await.unwrap();
    if nested {
        let mut inner = c.begin().await.unwrap();
        assert!(inner.copy_out_raw("COPY nowhere TO STDOUT").await.is_err());
        inner.rollback().await.unwrap();
    } else {
        assert!(c.copy_out_raw("COPY nowhere TO STDOUT").await.is_err());
    }
    attempt.return_transaction(transaction);
    let ending = attempt.complete(&recording()).await;
    let mut wrong = Vec::new();
    if ending == AttemptOutcome::Stored && !fixture.is_completed(&key).await {
        wrong.push("the record is not stored".to_owned());
    }
    // The server may still be executing a commit whose outcome the store does not know.
    for left in (0..200).rev() {
        let (completed, effects) = (fixture.is_completed(&key).await, fixture.effects().await);
        if completed == (effects == 1) {
            break;
        }
        if left == 0 {
            wrong.push(format!("{ending:?}, completed: {completed}, {effects} effects"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Later requests.
    for n in 0..4 {
        let begun = tokio::time::timeout(
            Duration::from_secs(20),
            fixture.runtime.begin_in_transaction(id(), digest(), &Policy::DEFAULT),
        )
        .await;
        match begun {
            Ok(Ok(Admission::Proceed(mut attempt))) => {
                let key = *attempt.id();
                let mut transaction = attempt.take_transaction().unwrap();
                let insert = format!("INSERT INTO effects VALUES ('next {n}')");
                let done = sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
                    .execute(connection(&mut *transaction))
                    .await;
                attempt.return_transaction(transaction);
                let ending = attempt.complete(&recording()).await;
                let completed = fixture.is_completed(&key).await;
                if ending != AttemptOutcome::Stored || !completed || done.is_err() {
                    wrong.push(format!("next {n}: {done:?}, {ending:?}, completed: {completed}"));
                }
            }
            other => wrong.push(format!("next {n}: {other:?}")),
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("nested {nested}, in transaction {in_transaction}: {}", wrong.join(" | ")))
    }
}

/// Fails if the store takes the server's response to a statement of the handler for the response to
/// the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_the_server_refuses_keeps_effects_and_record_together() {
    let mut wrong = Vec::new();
    for nested in [false, true] {
        for in_transaction in [false, true] {
            wrong.extend(check_after_failed_copy(nested, in_transaction).await.err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fails if a handler without a key returns success for effects that were rolled back, or that it
/// committed itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_without_a_record_is_committed_as_a_whole_or_not_at_all() {
    let mut wrong = Vec::new();
    for (script, shared) in [
        (&["INSERT INTO effects VALUES ('one')", "SELECT 1 / 0"][..], false),
        (&["INSERT INTO effects VALUES ('one')", "ROLLBACK"], false),
        (&["INSERT INTO effects VALUES ('one')", "COMMIT", "BEGIN"], false),
        (&["INSERT INTO effects VALUES ('one')", "ROLLBACK", "BEGIN"], false),
        (&["INSERT INTO effects VALUES ('one')", "SELECT 1 / 0"], true),
        (&["INSERT INTO effects VALUES ('one')", "ROLLBACK"], true),
    ] {
        let fixture = Fixture::new().await;
        let runtime = match shared {
            true => runtime(
                PostgresStore::from_pool(PgPool::connect(&fixture.url).await.unwrap())
                    .await
                    .unwrap(),
            ),
            false => fixture.runtime.clone(),
        };
        let mut transaction = runtime.transaction().await.unwrap();
        for text in script {
            let _ = sqlx::raw_sql(*text).execute(connection(&mut *transaction)).await;
        }
        let committed = transaction.commit().await;
        let effects = fixture.effects().await;
        if committed.is_ok() {
            wrong.push(format!("{script:?}, shared {shared}: {committed:?}, {effects} effects"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_table_of_a_handler_without_a_key_does_not_reach_the_next_one() {
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        let mut transaction = fixture.runtime.transaction().await.unwrap();
        let create = "CREATE TEMP TABLE staging (note text)";
        sqlx::raw_sql(create).execute(connection(&mut *transaction)).await.unwrap();
        transaction.commit().await.unwrap();
    }
}

/// The handler returns an error after the refusal, and the connection returns to the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_the_server_refuses_does_not_affect_the_next_request() {
    let fixture = Fixture::new().await;
    let mut transaction = fixture.runtime.transaction().await.unwrap();
    assert!(connection(&mut *transaction).copy_out_raw("COPY nowhere TO STDOUT").await.is_err());
    transaction.roll_back().await;
    for _ in 0..3 {
        let attempt = begin(&fixture.runtime, true, &Policy::DEFAULT).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_the_server_refuses_does_not_affect_the_applications_later_requests() {
    let fixture = Fixture::new().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&fixture.url).await.unwrap();
    let runtime = runtime(PostgresStore::from_pool(pool).await.unwrap());
    // Prepares the statements on the connection.
    let Admission::Proceed(attempt) =
        runtime.begin(id(), digest(), &Policy::DEFAULT).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    let mut transaction = runtime.transaction().await.unwrap();
    assert!(connection(&mut *transaction).copy_out_raw("COPY nowhere TO STDOUT").await.is_err());
    transaction.roll_back().await;
    for _ in 0..3 {
        let begun = runtime.begin(id(), digest(), &Policy::DEFAULT).await;
        let Ok(Admission::Proceed(attempt)) = begun else { panic!("{begun:?}") };
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    }
}
