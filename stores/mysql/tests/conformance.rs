//! The conformance suite, and the comparison with the state machine.

use std::sync::Arc;

use idempotent_core::conformance::{self, TestedStore, follow, history};
use idempotent_mysql::{MySqlStore, internals::batched_mysql};
use sqlx::MySqlPool;
use test_support::{
    histories::assert_not_vacuous, longest_durations, servers::mariadb::database,
    subjects::mysql::ShiftedMySql,
};

/// Runs the conformance suite on clones of a store, each with a separate table.
async fn check(store: MySqlStore, url: &str) {
    let pool = MySqlPool::connect(url).await.unwrap();
    conformance::check(|| async { ShiftedMySql::with_new_table(&store, &pool) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    let url = database().await;
    check(MySqlStore::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches() {
    let url = database().await;
    check(batched_mysql(MySqlStore::connect(&url).await.unwrap()), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_with_the_options_of_a_pool() {
    let url = database().await;
    let pool = MySqlPool::connect(&url).await.unwrap();
    check(MySqlStore::from_pool(pool).await.unwrap(), &url).await;
}

/// A subject whose records cannot be watched wrongly.
async fn watched(subject: ShiftedMySql) -> Arc<ShiftedMySql> {
    subject.store().migrate().await.unwrap();
    subject.refuse_wrong_watches().await;
    Arc::new(subject)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_through_long_histories() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        let subject = watched(ShiftedMySql::new().await).await;
        outcomes.extend(follow(subject, &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_in_batches() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        let subject = watched(ShiftedMySql::batched().await).await;
        outcomes.extend(follow(subject, &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    let store = MySqlStore::connect(&database().await).await.unwrap();
    store.migrate().await.unwrap();
    longest_durations::assert_accepted(store).await;
}
