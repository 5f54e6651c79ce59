//! Every store under the hammer.

use super::{Count, Hammer};
use crate::store::stress::grounds::Ground;

/// Strikes a store, and asserts that it was hit: each of these at least so often.
async fn strike(hammer: Hammer, ground: Ground, hits: &[(Count, usize)]) {
    let tally = hammer.strike(&ground).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{tally:?}");
    assert_eq!(tally.of(Count::Completions), hammer.keys);
    for (what, at_least) in hits {
        assert!(tally.of(*what) >= *at_least, "{what:?} fewer than {at_least} times: {tally:?}");
    }
    // A claim may lose against others time and again, but that is rare.
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

/// Three of four claims are part of the transaction; those that are not are what lapses and is taken over.
const WITHIN: Hammer = Hammer { within: 75, ..Hammer::WHOLE };
const HITS_WITHIN: &[(Count, usize)] = &[
    (Count::Within, 300),
    (Count::DeathsWithin, 40),
    (Count::AbandonedWithin, 20),
    (Count::Takeovers, 60),
    (Count::Pauses, 40),
    (Count::Replays, 5),
    (Count::InFlight, 20),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_memory_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Ground::memory(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_hammer_breaks_a_store_that_checks_and_then_acts_each_of_twenty_times() {
    let mut unbroken = 0;
    for _ in 0..20 {
        unbroken += usize::from(Hammer::WHOLE.strike(&Ground::careless()).await.is_ok());
    }
    assert_eq!(unbroken, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Ground::sqlite().await.without_effects(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Ground::postgres().await.without_effects(), HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_redis_store_completes_each_key_once() {
    strike(Hammer::WHOLE, Ground::redis().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_with_each_completion() {
    strike(Hammer::WHOLE, Ground::sqlite().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_commits_one_effect_with_each_claim_within_its_transaction() {
    strike(WITHIN, Ground::sqlite().await, HITS_WITHIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_with_each_completion() {
    strike(Hammer::WHOLE, Ground::postgres().await, HITS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_commits_one_effect_with_each_claim_within_its_transaction() {
    strike(WITHIN, Ground::postgres().await, HITS_WITHIN).await;
}
