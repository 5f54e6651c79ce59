//! The conformance suite itself, the memory store in it, and random histories that are shortened
//! when they fail.

use std::{sync::Arc, time::Duration};

use idempotent_core::{
    Abandoned,
    conformance::{self, Action, CASES, TestedStore, follow, history},
    store::memory::MemoryStore,
};
use proptest::{collection::vec, prelude::*};

use test_support::{
    histories::assert_not_vacuous,
    longest_durations,
    subjects::{memory::ShiftedMemory, sqlite::ShiftedSqlite},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_conforms() {
    conformance::check(|| async { ShiftedMemory::new() }).await;
}

/// Where a test cannot set the clock back, the cases about that pass without checking anything.
#[tokio::test]
async fn the_clock_of_the_memory_store_can_be_set_back() {
    assert!(ShiftedMemory::new().set_back(Duration::ZERO).await);
}

#[test]
fn no_two_cases_have_the_same_name() {
    let mut names: Vec<_> = CASES.iter().map(conformance::Case::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CASES.len());
}

#[tokio::test]
async fn the_memory_store_follows_the_state_machine_through_long_histories() {
    let mut outcomes = Vec::new();
    for seed in 0..80 {
        outcomes.extend(follow(Arc::new(ShiftedMemory::new()), &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 50);
}

fn steps(at_most: usize) -> impl Strategy<Value = Vec<Action>> {
    let policy = || prop_oneof![3 => Just(Abandoned::Retry), 1 => Just(Abandoned::Hold)];
    let (key, owner) = (|| 0..2u8, || 0..4u8);
    let step = prop_oneof![
        5 => (key(), owner(), 0..2u8, 0..4u8, 0..8u8, policy()).prop_map(
            |(key, owner, fingerprint, lease, ttl, abandoned)| {
                Action::Claim { key, owner, fingerprint, lease, ttl, abandoned }
            }
        ),
        1 => (owner(), 0..4u8).prop_map(|(owner, lease)| Action::Renew { owner, lease }),
        2 => (key(), owner(), any::<u8>())
            .prop_map(|(key, owner, recording)| Action::Complete { key, owner, recording }),
        1 => (key(), owner()).prop_map(|(key, owner)| Action::Release { key, owner }),
        1 => (key(), owner(), policy())
            .prop_map(|(key, owner, policy)| Action::Abandon { key, owner, policy }),
        1 => (key(), owner(), any::<Option<u8>>())
            .prop_map(|(key, owner, recording)| Action::Resolve { key, owner, recording }),
        1 => Just(Action::Purge),
        4 => Just(Action::Advance),
        1 => (1..4u8).prop_map(|ticks| Action::SetBack { ticks }),
    ];
    vec(step, 1..at_most)
}

fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

proptest! {
    #[test]
    fn the_memory_store_follows_the_state_machine(steps in steps(60)) {
        run(follow(Arc::new(ShiftedMemory::new()), &steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_sqlite_store_follows_the_state_machine(steps in steps(60)) {
        run(async { follow(Arc::new(ShiftedSqlite::new().await), &steps).await });
    }
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    longest_durations::assert_accepted(Arc::new(MemoryStore::new())).await;
}
