//! The conformance suite, as a unit test: `tests/stress/guards` runs no others.

use std::time::Duration;

use super::*;
use crate::{
    clock::ManualClock,
    conformance::{TestedStore, check},
};

struct Shifted {
    store: MemoryStore,
    clock: ManualClock,
}

#[async_trait]
impl TestedStore for Shifted {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.clock.set_back(by);
        true
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3_600)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_conforms() {
    check(|| async {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000_000_000));
        Shifted { store: MemoryStore::with_clock(clock.clone()), clock }
    })
    .await;
}
