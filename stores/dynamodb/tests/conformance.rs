//! The conformance suite, and the comparison with the state machine.

use std::{sync::Arc, time::Duration};

use idempotent_core::conformance::{TestedStore, check, follow, history};
use test_support::{
    histories::assert_not_vacuous,
    servers::dynamodb::Emulator,
    subjects::dynamodb::{ExpiringStore, ShiftedDynamoDb},
};
use tokio::task::JoinSet;

/// A store in a table of its own, which each case creates.
fn subject() -> ShiftedDynamoDb {
    ShiftedDynamoDb::new(&Emulator::shared().unmigrated())
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    check(|| async { subject() }).await;
}

/// A store that is tested in real time, with ticks that are long compared with the bounds of the
/// service's time.
struct InRealTime(ExpiringStore);

#[async_trait::async_trait]
impl TestedStore for InRealTime {
    fn store(&self) -> &dyn idempotent_core::Store {
        &self.0
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(6)
    }
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_real_time() {
    check(|| async { InRealTime(ExpiringStore(Emulator::shared().unmigrated())) }).await;
}

/// Fails at the first step at which the store and the state machine differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine() {
    let mut following = JoinSet::new();
    for first in [0, 25, 50, 75] {
        following.spawn(async move {
            let mut outcomes = Vec::new();
            for seed in first..first + 25 {
                println!("seed {seed}");
                // In a new table, because each purge reads all of it.
                outcomes.extend(follow(Arc::new(subject()), &history(seed, 100)).await);
            }
            outcomes
        });
    }
    assert_not_vacuous(&following.join_all().await.concat(), 5);
}
