//! The conformance suite, and random histories, on every store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use idempotent_core::{
    Abandoned,
    conformance::{self, Action, CASES, TestedStore, follow, history},
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    store::memory::MemoryStore,
    transition::EventOutcome,
};
use idempotent_sqlite::SqliteStore;
use proptest::{collection::vec, prelude::*};

use crate::support::{File, Memory, Sqlite};
use test_support::longest_durations;

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_conforms() {
    conformance::check(|| async { Memory::new() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sqlite_store_conforms() {
    conformance::check(Sqlite::new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sqlite_store_conforms_in_batches() {
    conformance::check(Sqlite::batched).await;
}

/// Where a test cannot set the clock back, the cases about that pass without checking anything.
#[tokio::test]
async fn the_clock_of_each_subject_can_be_set_back() {
    assert!(Memory::new().set_back(Duration::ZERO).await);
    let sqlite = Sqlite::new().await;
    sqlite.store().migrate().await.unwrap();
    assert!(sqlite.set_back(Duration::ZERO).await);
}

#[test]
fn no_two_cases_have_the_same_name() {
    let mut names: Vec<_> = CASES.iter().map(conformance::Case::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CASES.len());
}

/// How often each kind of outcome occurred.
fn tally(outcomes: &[EventOutcome]) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for outcome in outcomes {
        let kind = match outcome {
            EventOutcome::Claim(ClaimOutcome::Granted { attempt: 1 }) => "granted",
            EventOutcome::Claim(ClaimOutcome::Granted { .. }) => "taken over",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_))) => "replayed",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) => "in flight",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })) => "held",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. })) => "mismatch",
            EventOutcome::Fence(Fence::Passed) => "passed",
            EventOutcome::Fence(Fence::Fenced) => "fenced",
            EventOutcome::Resolve(ResolveOutcome::Resolved) => "resolved",
            EventOutcome::Resolve(ResolveOutcome::Conflict) => "conflict",
            EventOutcome::Purge(true) => "purged",
            EventOutcome::Purge(false) => "not purged",
        };
        *tally.entry(kind).or_default() += 1;
    }
    tally
}

fn assert_not_vacuous(outcomes: &[EventOutcome], at_least: usize) {
    let tally = tally(outcomes);
    assert_eq!(tally.len(), 12, "a kind of outcome never occurred: {tally:?}");
    assert!(tally.values().all(|count| *count >= at_least), "{tally:?}");
}

#[tokio::test]
async fn the_memory_store_follows_the_state_machine_through_long_histories() {
    let mut outcomes = Vec::new();
    for seed in 0..50 {
        outcomes.extend(follow(Arc::new(Memory::new()), &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sqlite_store_follows_the_state_machine_through_long_histories() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        outcomes.extend(follow(Arc::new(Sqlite::new().await), &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sqlite_store_follows_the_state_machine_in_batches() {
    let mut outcomes = Vec::new();
    for seed in 0..4 {
        outcomes.extend(follow(Arc::new(Sqlite::batched().await), &history(seed, 400)).await);
    }
    assert_not_vacuous(&outcomes, 2);
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
        run(follow(Arc::new(Memory::new()), &steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_sqlite_store_follows_the_state_machine(steps in steps(60)) {
        run(async { follow(Arc::new(Sqlite::new().await), &steps).await });
    }
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    longest_durations::assert_accepted(std::sync::Arc::new(MemoryStore::new())).await;
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    longest_durations::assert_accepted(store).await;
    longest_durations::assert_accepted(SqliteStore::from_pool(file.pool().await).await.unwrap())
        .await;
}
