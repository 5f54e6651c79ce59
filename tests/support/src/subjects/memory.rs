//! A memory store whose time the tests can move.

use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Store,
    clock::{ManualClock, Timestamp},
    conformance::TestedStore,
    store::memory::MemoryStore,
};

use super::TICK;

/// A memory store with a manual clock.
pub struct ShiftedMemory {
    store: MemoryStore,
    clock: ManualClock,
}

impl ShiftedMemory {
    pub fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000_000_000));
        Self { store: MemoryStore::with_clock(clock.clone()), clock }
    }
}

impl Default for ShiftedMemory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl TestedStore for ShiftedMemory {
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
        TICK
    }
}
