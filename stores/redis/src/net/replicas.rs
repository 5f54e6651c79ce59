//! Calls that wait for replicas, because the next master must know their result.
//!
//! A claim that a promoted replica does not know would run again; so would a lost recording, hold,
//! or result of a step. Releases and renewals do not wait: without them the key is free later, or
//! the next renewal takes effect.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{lock::lock, node::ConnectionRole, route::ConnectionRoute, router::Router};
use crate::error::CallFailure;

/// How many calls of a store wait for replicas at the same time; each blocks a connection.
const MAX_REPLICATION_WAITS: usize = 64;

/// How many replicas must have a write and within what time, and the connections on which calls
/// wait for them.
pub(crate) struct Replicas {
    wanted: u32,
    within: Duration,
    permits: Semaphore,
    free: Mutex<BTreeSet<usize>>,
}

impl Replicas {
    pub(crate) fn new(wanted: u32, within: Duration) -> Self {
        Self {
            wanted,
            within,
            permits: Semaphore::new(MAX_REPLICATION_WAITS),
            free: Mutex::new((0..MAX_REPLICATION_WAITS).collect()),
        }
    }

    /// Reserves a connection; waits until one is free.
    pub(crate) async fn reserve(&self) -> ReservedConnection<'_> {
        // The semaphore is never closed, so this does not fail.
        let permit = self.permits.acquire().await.ok();
        let number = lock(&self.free).pop_first().unwrap_or(MAX_REPLICATION_WAITS);
        ReservedConnection { number, pool: self, _permit: permit }
    }

    /// Waits until enough replicas have what was written on this connection. `WAIT` covers only
    /// writes of its own connection, so every step that passes writes, even if it is sent again.
    pub(crate) async fn confirm(
        &self,
        router: &Router,
        route: &ConnectionRoute,
    ) -> Result<(), CallFailure> {
        let found = router.wait(route, self.wanted, self.within).await?;
        if found < u64::from(self.wanted) {
            return Err(CallFailure::TooFewReplicas { wanted: self.wanted, found });
        }
        Ok(())
    }
}

/// A connection that is reserved until this is dropped.
pub(crate) struct ReservedConnection<'a> {
    number: usize,
    pool: &'a Replicas,
    _permit: Option<SemaphorePermit<'a>>,
}

impl ReservedConnection<'_> {
    pub(crate) fn role(&self) -> ConnectionRole {
        ConnectionRole::Replication(self.number)
    }
}

impl Drop for ReservedConnection<'_> {
    fn drop(&mut self) {
        lock(&self.pool.free).insert(self.number);
    }
}
