//! The store is compared with the state machine, step by step.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use idempotent_core::{
    conformance::{TestedStore, follow, history},
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::EventOutcome,
};
use idempotent_postgres::{PostgresStore, internals::postgres_with_table};
use sqlx::PgPool;

use super::{ShiftedStore, database, unique, with};

pub(super) async fn assert_follows(store: PostgresStore, url: &str, seeds: std::ops::Range<u64>) {
    let mut tally = BTreeMap::new();
    let pool = PgPool::connect(url).await.unwrap();
    for seed in seeds {
        let table = format!("t{}", unique());
        let store = postgres_with_table(&store, &table).unwrap();
        let subject = Arc::new(ShiftedStore { store, pool: pool.clone(), table });
        subject.store().migrate().await.unwrap();
        assert!(subject.set_back(Duration::ZERO).await);
        for outcome in follow(subject, &history(seed, 400)).await {
            *tally.entry(name(&outcome)).or_insert(0) += 1;
        }
    }
    println!("{tally:?}");
    assert!(tally.len() == 11 && tally.values().all(|count| *count >= 5), "{tally:?}");
}

fn name(outcome: &EventOutcome) -> &'static str {
    match outcome {
        EventOutcome::Claim(ClaimOutcome::Granted { attempt: 1 }) => "granted",
        EventOutcome::Claim(ClaimOutcome::Granted { .. }) => "taken over",
        EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_))) => "completed",
        EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) => "in flight",
        EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })) => "held",
        EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. })) => "mismatch",
        EventOutcome::Fence(Fence::Passed) => "passed",
        EventOutcome::Fence(Fence::Fenced) => "fenced",
        EventOutcome::Resolve(ResolveOutcome::Resolved) => "resolved",
        EventOutcome::Resolve(ResolveOutcome::Conflict) => "conflict",
        EventOutcome::Purge(_) => "purge",
    }
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
    assert_follows(store, &url, 100..106).await;
}
