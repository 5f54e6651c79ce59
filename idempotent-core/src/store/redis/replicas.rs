//! Claims that wait for replicas.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many claims of a store wait for replicas at once; each blocks a connection.
const LANES: usize = 64;

/// How many replicas must have a claim, and how soon.
#[derive(Clone, Copy)]
pub(super) struct Replicas {
    pub(super) wanted: u32,
    pub(super) within: Duration,
}

/// The connections on which claims wait for replicas.
pub(super) struct Lanes {
    turns: Semaphore,
    free: Mutex<BTreeSet<usize>>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self { turns: Semaphore::new(LANES), free: Mutex::new((0..LANES).collect()) }
    }

    /// Waits for a lane that nobody else uses.
    pub(super) async fn lane(&self) -> OwnLane<'_> {
        // The semaphore is never closed, so there is always a turn to wait for.
        let turn = self.turns.acquire().await.ok();
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_first().unwrap_or(LANES);
        OwnLane { number, lanes: self, _turn: turn }
    }
}

/// A lane, until it is dropped.
pub(super) struct OwnLane<'a> {
    pub(super) number: usize,
    lanes: &'a Lanes,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Drop for OwnLane<'_> {
    fn drop(&mut self) {
        self.lanes.free.lock().unwrap_or_else(PoisonError::into_inner).insert(self.number);
    }
}
