//! Every store under the hammer.

use super::{Count, Hammer};
use crate::store::stress::grounds::Ground;

/// Strikes a store, and asserts that it was hit.
async fn strike(ground: Ground) {
    let tally = Hammer::WHOLE.strike(&ground).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{tally:?}");
    assert_eq!(tally.of(Count::Completions), Hammer::WHOLE.keys);
    for (what, at_least) in [
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
    ] {
        assert!(tally.of(what) >= at_least, "{what:?} fewer than {at_least} times: {tally:?}");
    }
    // A claim may lose against others time and again, but that is rare.
    assert!(tally.of(Count::Unknown) * 20 <= tally.of(Count::Completions), "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_memory_store_completes_each_key_once() {
    strike(Ground::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_sqlite_store_completes_each_key_once() {
    strike(Ground::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_postgres_store_completes_each_key_once() {
    strike(Ground::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_the_hammer_the_redis_store_completes_each_key_once() {
    strike(Ground::redis().await).await;
}
