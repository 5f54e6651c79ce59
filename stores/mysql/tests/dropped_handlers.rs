//! Handlers that are dropped in the middle of a statement, and deadlocks between handlers.

use std::time::Duration;

use idempotent_core::{
    Abandoned, Policy, RecordId, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use sqlx::{Connection as _, Executor as _, MySqlConnection};
use test_support::{
    cuts::{digest, id, recording, runtime},
    servers::mariadb::{number, sql},
};
use tokio::time::{sleep, timeout};

use crate::helpers::store;

const SCHEMA: &str = "CREATE TABLE effects (n int PRIMARY KEY, v int NOT NULL) ENGINE = InnoDB;
    INSERT INTO effects VALUES (1, 0), (2, 0)";

/// Executes a statement in the transaction of an attempt, and drops it after a while.
async fn drop_during(attempt: &mut Attempt, statement: &'static str) {
    let mut transaction = attempt.take_transaction().unwrap();
    let connection: &mut MySqlConnection = transaction.connection_mut().downcast_mut().unwrap();
    timeout(Duration::from_millis(200), connection.execute(statement)).await.unwrap_err();
    attempt.return_transaction(transaction);
}

async fn begun(runtime: &idempotent_core::Runtime, id: RecordId, in_transaction: bool) -> Attempt {
    let policy = Policy::DEFAULT.with_lease(Duration::from_secs(1));
    let begun = match in_transaction {
        true => runtime.begin_in_transaction(id, digest(), &policy).await,
        false => runtime.begin(id, digest(), &policy).await,
    };
    let Admission::Proceed(mut attempt) = begun.unwrap() else { panic!("the key is new") };
    if !in_transaction {
        attempt.begin_transaction().await.unwrap();
    }
    attempt
}

/// Until the key is free again; returns the number of the attempt.
async fn next_attempt(runtime: &idempotent_core::Runtime, id: RecordId) -> u32 {
    loop {
        match runtime.begin(id, digest(), &Policy::DEFAULT).await.unwrap() {
            Admission::Proceed(attempt) => {
                let number = attempt.number();
                attempt.release().await;
                return number;
            }
            Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. })) => {
                sleep(Duration::from_millis(10)).await
            }
            Admission::Rejected(verdict) => panic!("{verdict:?}"),
        }
    }
}

/// The statement would go on for ten minutes, with the locks of its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_of_a_dropped_handler_ends_soon_and_its_transaction_with_it() {
    let (store, url) = store().await;
    sql(&url, SCHEMA).await;
    for in_transaction in [true, false] {
        let (runtime, id) = (runtime(store.clone()), id());
        let mut attempt = begun(&runtime, id, in_transaction).await;
        drop_during(&mut attempt, "UPDATE effects SET v = v + SLEEP(600) + 1 WHERE n = 1").await;
        attempt.abandon(Abandoned::Retry).await;
        runtime.drain().await;
        let next = timeout(Duration::from_secs(20), next_attempt(&runtime, id)).await.unwrap();
        assert_eq!(next, if in_transaction { 1 } else { 2 });
        // The row is not locked.
        timeout(Duration::from_secs(20), sql(&url, "UPDATE effects SET v = v WHERE n = 1"))
            .await
            .unwrap();
        assert_eq!(number(&url, "SELECT v FROM effects WHERE n = 1").await, 0);
    }
}

/// A statement that waits for a lock takes no effect once its handler is dropped, and the
/// connection is not used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_statement_of_a_dropped_handler_has_no_effect_later() {
    let (store, url) = store().await;
    sql(&url, SCHEMA).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut hold_lock = other.begin().await.unwrap();
    hold_lock.execute("UPDATE effects SET v = 7 WHERE n = 1").await.unwrap();
    let (runtime, id) = (runtime(store.clone()), id());
    let mut attempt = begun(&runtime, id, true).await;
    drop_during(&mut attempt, "UPDATE effects SET v = v + 1 WHERE n = 1").await;
    attempt.abandon(Abandoned::Retry).await;
    runtime.drain().await;
    hold_lock.commit().await.unwrap();
    timeout(Duration::from_secs(20), next_attempt(&runtime, id)).await.unwrap();
    assert_eq!(number(&url, "SELECT v FROM effects WHERE n = 1").await, 7);
    // Every connection for handlers still works.
    for _ in 0..12 {
        let attempt = begun(&runtime, self::id(), true).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    }
}

/// The server rolls the whole transaction back, with the claim if that is part of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_leaves_neither_the_record_nor_an_effect_of_its_loser() {
    let (store, url) = store().await;
    sql(&url, SCHEMA).await;
    for in_transaction in [true, false] {
        let runtime = runtime(store.clone());
        let ids = [id(), id()];
        let mut attempts = Vec::new();
        for (id, first) in [(ids[0], 1), (ids[1], 2)] {
            let mut attempt = begun(&runtime, id, in_transaction).await;
            update(&mut attempt, first).await.unwrap();
            attempts.push(attempt);
        }
        let [one, other] = &mut attempts[..] else { panic!() };
        let both = tokio::join!(update(one, 2), update(other, 1));
        let lost = [both.0.is_err(), both.1.is_err()];
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 1, "one of them is the victim");
        for (attempt, (id, lost)) in attempts.into_iter().zip(ids.into_iter().zip(lost)) {
            let ended = attempt.complete(&recording()).await;
            assert_eq!(ended == AttemptOutcome::Stored, !lost, "{ended:?}");
            runtime.drain().await;
            let found = store.look_up(&id).await.unwrap();
            let is_completed = found.is_some_and(|found| found.record.status.is_some());
            assert_eq!(is_completed, !lost);
        }
        assert_eq!(number(&url, "SELECT CAST(SUM(v) AS SIGNED) FROM effects").await, 2);
        sql(&url, "UPDATE effects SET v = 0").await;
    }
}

async fn update(attempt: &mut Attempt, row: i64) -> Result<(), sqlx::Error> {
    let mut transaction = attempt.take_transaction().unwrap();
    let connection: &mut MySqlConnection = transaction.connection_mut().downcast_mut().unwrap();
    let update = sqlx::query("UPDATE effects SET v = v + 1 WHERE n = ?").bind(row);
    let updated = update.execute(connection).await;
    attempt.return_transaction(transaction);
    updated.map(drop)
}
