//! The hammer on every store.

use super::{Count, Hammer};
use crate::fixtures::Fixture;

/// Hammers a store, and asserts that each of these events occurred at least this often.
async fn run_hammer(hammer: Hammer, fixture: Fixture, expected: &[(Count, usize)]) {
    let tally = hammer.run(&fixture).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{tally:?}");
    assert_eq!(tally.of(Count::Completions), hammer.keys);
    for (what, at_least) in expected {
        assert!(tally.of(*what) >= *at_least, "{what:?} fewer than {at_least} times: {tally:?}");
    }
    // A claim may fail because of contention, but that is rare.
    assert!(tally.of(Count::Unknown) * 20 <= tally.of(Count::Completions), "{tally:?}");
}

const EXPECTED: &[(Count, usize)] = &[
    (Count::Takeovers, 100),
    (Count::FencedCompletions, 30),
    (Count::Deaths, 30),
    (Count::Pauses, 30),
    (Count::FencedCalls, 60),
    (Count::Renewals, 40),
    (Count::Resent, 5),
    (Count::Replays, 5),
    (Count::InFlight, 50),
    (Count::Mismatches, 5),
];

/// Three of four claims are part of the transaction. The others can expire and be taken over.
const IN_TRANSACTION: Hammer = Hammer { transaction_percent: 75, ..Hammer::FULL };
const EXPECTED_IN_TRANSACTION: &[(Count, usize)] = &[
    (Count::GrantedInTransaction, 300),
    (Count::DeathsInTransaction, 40),
    (Count::AbandonedInTransaction, 5),
    (Count::Takeovers, 30),
    (Count::Pauses, 40),
    (Count::Replays, 5),
    (Count::InFlight, 20),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_memory_store_completes_each_key_once() {
    run_hammer(Hammer::FULL, Fixture::memory(), EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_hammer_finds_the_race_of_a_check_then_act_store_in_each_of_20_runs() {
    let mut undetected = 0;
    for _ in 0..20 {
        undetected += usize::from(Hammer::FULL.run(&Fixture::check_then_act()).await.is_ok());
    }
    assert_eq!(undetected, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_completes_each_key_once() {
    run_hammer(Hammer::FULL, Fixture::sqlite().await.without_effects(), EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_completes_each_key_once() {
    run_hammer(Hammer::FULL, Fixture::postgres().await.without_effects(), EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_redis_store_completes_each_key_once() {
    run_hammer(Hammer::FULL, Fixture::redis().await, EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_with_each_completion() {
    run_hammer(Hammer::FULL, Fixture::sqlite().await, EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_per_claim_in_its_transaction() {
    run_hammer(IN_TRANSACTION, Fixture::sqlite().await, EXPECTED_IN_TRANSACTION).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_with_each_completion() {
    run_hammer(Hammer::FULL, Fixture::postgres().await, EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_per_claim_in_its_transaction() {
    run_hammer(IN_TRANSACTION, Fixture::postgres().await, EXPECTED_IN_TRANSACTION).await;
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn under_the_hammer_the_store_completes_each_key_once() {
        run_hammer(Hammer::FULL, Fixture::mysql().await.without_effects(), EXPECTED).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn under_the_hammer_the_store_commits_one_effect_with_each_completion() {
        run_hammer(Hammer::FULL, Fixture::mysql().await, EXPECTED).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn under_the_hammer_the_store_commits_one_effect_per_claim_in_its_transaction() {
        run_hammer(IN_TRANSACTION, Fixture::mysql().await, EXPECTED_IN_TRANSACTION).await;
    }
}
