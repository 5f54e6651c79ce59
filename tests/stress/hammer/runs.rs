//! Every store under the hammer.

use super::{Count, Hammer};
use crate::fixtures::Fixture;

/// Hammers a store, and asserts that each of these events occurred at least this often.
async fn strike(hammer: Hammer, fixture: Fixture, hits: &[(Count, usize)]) {
    let tally = hammer.strike(&fixture).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{tally:?}");
    assert_eq!(tally.of(Count::Completions), hammer.keys);
    for (what, at_least) in hits {
        assert!(tally.of(*what) >= *at_least, "{what:?} fewer than {at_least} times: {tally:?}");
    }
    // A claim may lose against others repeatedly, but that is rare.
    assert!(tally.of(Count::Unknown) * 20 <= tally.of(Count::Completions), "{tally:?}");
}

const HITS: &[(Count, usize)] = &[
    (Count::Takeovers, 100),
    (Count::FencedCompletions, 30),
    (Count::Deaths, 30),
    (Count::Pauses, 30),
    (Count::Refused, 60),
    (Count::Renewals, 40),
    (Count::Resent, 5),
    (Count::Replays, 5),
    (Count::InFlight, 50),
    (Count::Mismatches, 5),
];

/// Three of four claims are part of the transaction; the others expire and are taken over.
const WITHIN: Hammer = Hammer { within: 75, ..Hammer::WHOLE };
const HITS_WITHIN: &[(Count, usize)] = &[
    (Count::InTransaction, 300),
    (Count::DeathsWithin, 40),
    (Count::AbandonedWithin, 20),
    (Count::Takeovers, 60),
    (Count::Pauses, 40),
    (Count::Replays, 5),
    (Count::InFlight, 20),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_memory_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Fixture::memory(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_hammer_breaks_a_store_that_checks_then_acts_in_each_of_twenty_runs() {
    let mut unbroken = 0;
    for _ in 0..20 {
        unbroken += usize::from(Hammer::WHOLE.strike(&Fixture::check_then_act()).await.is_ok());
    }
    assert_eq!(unbroken, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Fixture::sqlite().await.without_effects(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Fixture::postgres().await.without_effects(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_redis_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Fixture::redis().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_with_each_completion() {
    strike(Hammer::WHOLE, Fixture::sqlite().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_per_claim_in_its_transaction() {
    strike(WITHIN, Fixture::sqlite().await, HITS_WITHIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_with_each_completion() {
    strike(Hammer::WHOLE, Fixture::postgres().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_per_claim_in_its_transaction() {
    strike(WITHIN, Fixture::postgres().await, HITS_WITHIN).await;
}
