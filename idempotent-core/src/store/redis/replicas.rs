//! Claims that wait for replicas.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many claims of a process wait for replicas at once; each blocks a connection.
const LANES: usize = 64;

/// How many replicas must have a claim, and how soon.
#[derive(Clone)]
pub(super) struct Replicas {
    pub(super) wanted: u32,
    pub(super) within: Duration,
    lanes: Arc<Lanes>,
}

struct Lanes {
    turns: Semaphore,
    free: Mutex<BTreeSet<usize>>,
}

impl Replicas {
    pub(super) fn new(wanted: u32, within: Duration) -> Self {
        let lanes = Lanes { turns: Semaphore::new(LANES), free: Mutex::new((0..LANES).collect()) };
        Self { wanted, within, lanes: Arc::new(lanes) }
    }

    /// Waits for a lane that nobody else uses.
    pub(super) async fn lane(&self) -> OwnLane<'_> {
        // The semaphore is never closed, so there is always a turn to wait for.
        let turn = self.lanes.turns.acquire().await.ok();
        let lane = self.lanes.free.lock().unwrap_or_else(PoisonError::into_inner).pop_first().unwrap_or(LANES);
        OwnLane { number: lane, lanes: &self.lanes, _turn: turn }
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
