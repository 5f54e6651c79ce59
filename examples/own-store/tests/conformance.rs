//! The public conformance suite, on two stores that share their folder as two processes would.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use idempotent_core::{
    Store,
    clock::{ManualClock, Timestamp},
    conformance::{self, TestedStore},
};
use own_store::FileStore;

struct Shared {
    stores: [FileStore; 2],
    calls: AtomicUsize,
    clock: ManualClock,
    _folder: tempfile::TempDir,
}

impl Shared {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let store = |()| FileStore::with_clock(folder.path(), clock.clone()).unwrap();
        let stores = [(); 2].map(store);
        Self { stores, calls: AtomicUsize::new(0), clock, _folder: folder }
    }
}

#[async_trait::async_trait]
impl TestedStore for Shared {
    fn store(&self) -> &dyn Store {
        &self.stores[self.calls.fetch_add(1, Ordering::Relaxed) % 2]
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.clock.set_back(by);
        true
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(10)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_store_conforms() {
    conformance::check(|| async { Shared::new() }).await;
}
