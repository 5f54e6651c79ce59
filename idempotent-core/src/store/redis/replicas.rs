//! Steps that wait for replicas: those that the next master must know.
//!
//! A claim must be known there, or its operation would run twice; so must a recording, and that a
//! key is held. What only gives a key back, or renews a lease, needs no replica: without it, the key
//! is free later, or the next renewal makes up for it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    NAME, RedisStore,
    connections::Again,
    error::TooFewReplicas,
    node::{Lane, Sent},
    packed::abandoned_code,
    scripts::{self, Arg},
};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record_id::RecordId,
};

/// How many steps of a store wait for replicas at once; each blocks a connection.
const LANES: usize = 64;

/// How many replicas must have what a step wrote, and how soon.
#[derive(Clone, Copy)]
pub(super) struct Replicas {
    pub(super) wanted: u32,
    pub(super) within: Duration,
}

/// The connections on which steps wait for replicas.
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

impl RedisStore {
    /// Asks for a key, and gives it back unless enough replicas have the claim.
    pub(super) async fn claim_replicated(
        &self,
        replicas: Replicas,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let (lane, key) = (self.connections.lanes.lane().await, self.key(id));
        let claimed = self.claim_on(Lane::Waiting(lane.number), &key, claim).await;
        let claimed = claimed.map_err(|failure| failure.into_error("claim"))?;
        let ClaimOutcome::Granted { attempt } = claimed.outcome else { return Ok(claimed.outcome) };
        match self.replicate("claim", replicas, &claimed.sent).await {
            Ok(()) => Ok(claimed.outcome),
            Err(error) => {
                self.undo(&Lease { id: *id, owner: claim.owner }, attempt, claimed.again).await;
                Err(error)
            }
        }
    }

    /// Gives a claim back that was granted just now. The caller takes its outcome for unknown and
    /// gives it back again, so a failure here changes nothing; at last the lease expires.
    async fn undo(&self, lease: &Lease, attempt: u32, again: bool) {
        let given_back = match attempt {
            // It may have been acknowledged before, and its handler may run.
            _ if again => return,
            1 => self.owned("claim", Again::No, &scripts::RELEASE, lease, &[]).await,
            // The attempts before it may have done something. The record stays: its fingerprint,
            // and that there were attempts.
            _ => {
                let retry = [Arg::Number(abandoned_code(Abandoned::Retry).into())];
                self.owned("claim", Again::No, &scripts::ABANDON, lease, &retry).await
            }
        };
        if let Err(error) = given_back {
            let cause = std::error::Error::source(&error);
            tracing::debug!(id = %lease.id, cause, "a claim that is short of replicas could not be given back");
        }
    }

    /// Completes a claim, and fails unless enough replicas have the recording. It stays on the
    /// master, where the completion passes again for its owner.
    pub(super) async fn complete_replicated(
        &self,
        replicas: Replicas,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let lane = self.connections.lanes.lane().await;
        let how = (Lane::Waiting(lane.number), Again::Yes);
        let taken = self.take(how, &scripts::COMPLETE, lease, &[Arg::Bytes(recording)]).await;
        let (passed, sent) = taken.map_err(|failure| failure.into_error("complete"))?;
        if !passed {
            return Ok(Fence::Fenced);
        }
        self.replicate("complete", replicas, &sent).await.map(|()| Fence::Passed)
    }

    /// Holds a key, and fails unless enough replicas have it as held.
    pub(super) async fn hold_replicated(&self, replicas: Replicas, lease: &Lease) -> Result<Fence, StoreError> {
        let own = self.connections.lanes.lane().await;
        let (lane, hold) = (Lane::Waiting(own.number), [Arg::Number(abandoned_code(Abandoned::Hold).into())]);
        let taken = self.take((lane, Again::No), &scripts::ABANDON, lease, &hold).await;
        let (passed, mut sent) = taken.map_err(|failure| failure.into_error("abandon"))?;
        if !passed {
            // It may be held already, by a call before this one that was short of replicas.
            let taken = self.take((lane, Again::Yes), &scripts::HOLD_AGAIN, lease, &[]).await;
            let (held, again) = taken.map_err(|failure| failure.into_error("abandon"))?;
            if !held {
                return Ok(Fence::Fenced);
            }
            sent = again;
        }
        self.replicate("abandon", replicas, &sent).await.map(|()| Fence::Passed)
    }

    /// Waits until enough replicas have what a step has written on its connection. Every step that
    /// passes writes, also one that is sent again: what another connection wrote is not waited for.
    async fn replicate(&self, operation: &'static str, replicas: Replicas, sent: &Sent) -> Result<(), StoreError> {
        let Replicas { wanted, within } = replicas;
        match self.connections.wait(sent, wanted, within).await {
            Ok(found) if found >= u64::from(wanted) => Ok(()),
            Ok(found) => Err(StoreError::transient(NAME, operation, TooFewReplicas { wanted, found })),
            Err(failure) => Err(failure.into_error(operation)),
        }
    }
}
