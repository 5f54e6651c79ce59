//! The conformance suite, and the comparison with the state machine.

use std::{sync::Arc, time::Duration};

use idempotent_core::conformance::{self, TestedStore, follow, history};
use idempotent_sqlite::SqliteStore;
use test_support::{
    histories::assert_not_vacuous,
    longest_durations,
    subjects::sqlite::{File, ShiftedSqlite},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_conforms() {
    conformance::check(ShiftedSqlite::new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_conforms_in_batches() {
    conformance::check(ShiftedSqlite::batched).await;
}

/// Where a test cannot set the clock back, the cases about that pass without checking anything.
#[tokio::test]
async fn the_clock_can_be_set_back() {
    let sqlite = ShiftedSqlite::new().await;
    sqlite.store().migrate().await.unwrap();
    assert!(sqlite.set_back(Duration::ZERO).await);
}

/// A subject whose records cannot be watched wrongly.
async fn watched(subject: ShiftedSqlite) -> Arc<ShiftedSqlite> {
    subject.store().migrate().await.unwrap();
    subject.refuse_wrong_watches().await;
    Arc::new(subject)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_follows_the_state_machine_through_long_histories() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        outcomes
            .extend(follow(watched(ShiftedSqlite::new().await).await, &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_follows_the_state_machine_in_batches() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        let subject = watched(ShiftedSqlite::batched().await).await;
        outcomes.extend(follow(subject, &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    longest_durations::assert_accepted(store).await;
    longest_durations::assert_accepted(SqliteStore::from_pool(file.pool().await).await.unwrap())
        .await;
}
