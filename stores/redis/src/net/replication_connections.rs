//! The connections on which calls wait for replicas.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many calls of a store wait for replicas at the same time; each blocks a connection.
const MAX_REPLICATION_WAITS: usize = 64;

/// The connections on which calls wait for replicas.
pub(crate) struct ReplicationConnections {
    permits: Semaphore,
    free: Mutex<BTreeSet<usize>>,
}

impl ReplicationConnections {
    pub(crate) fn new() -> Self {
        Self {
            permits: Semaphore::new(MAX_REPLICATION_WAITS),
            free: Mutex::new((0..MAX_REPLICATION_WAITS).collect()),
        }
    }

    /// Reserves a connection; waits until one is free.
    pub(crate) async fn reserve(&self) -> ReservedConnection<'_> {
        // The semaphore is never closed, so this does not fail.
        let permit = self.permits.acquire().await.ok();
        let number = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_first()
            .unwrap_or(MAX_REPLICATION_WAITS);
        ReservedConnection { number, pool: self, _permit: permit }
    }
}

/// The number of a connection that is reserved until this is dropped.
pub(crate) struct ReservedConnection<'a> {
    pub(crate) number: usize,
    pool: &'a ReplicationConnections,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for ReservedConnection<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).insert(self.number);
    }
}
