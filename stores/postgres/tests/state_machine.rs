//! The store is compared with the state machine, step by step.

use std::{sync::Arc, time::Duration};

use idempotent_core::conformance::{TestedStore, follow, history};
use idempotent_postgres::PostgresStore;
use sqlx::PgPool;
use test_support::{histories::assert_not_vacuous, subjects::postgres::ShiftedPostgres};

use crate::helpers::{database, with};

pub(super) async fn assert_follows(store: PostgresStore, url: &str, seeds: std::ops::Range<u64>) {
    let mut outcomes = Vec::new();
    let pool = PgPool::connect(url).await.unwrap();
    for seed in seeds {
        let subject = Arc::new(ShiftedPostgres::with_new_table(&store, &pool, None));
        subject.store().migrate().await.unwrap();
        subject.refuse_wrong_watches().await;
        assert!(subject.set_back(Duration::ZERO).await);
        outcomes.extend(follow(subject, &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_through_long_histories() {
    let url = database().await;
    assert_follows(PostgresStore::connect(&url).await.unwrap(), &url, 0..12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_with_simple_queries() {
    let url = database().await;
    let store = PostgresStore::connect(&with(&url, "statement-cache-capacity=0")).await.unwrap();
    assert_follows(store, &url, 100..112).await;
}
