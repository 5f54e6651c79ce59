//! Calls that wait for replicas, because the next master must know their result.
//!
//! A claim that a promoted replica does not know would run again; so would a lost recording, hold,
//! or result of a step. Releases and renewals do not wait: without them the key is free later, or
//! the next renewal takes effect.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    encoding::abandoned_code,
    lua::Arg,
    net::{
        node::{ConnectionRole, ConnectionRoute},
        router::SendAgain,
    },
    store::{NAME, RedisStore},
};
use idempotent_core::{
    Abandoned, Lease, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Note},
};

/// How many replicas must have a write, and within what time.
#[derive(Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) wanted: u32,
    pub(crate) within: Duration,
}

impl RedisStore {
    /// Claims a key, and undoes the claim unless enough replicas have it.
    pub(crate) async fn claim_replicated(
        &self,
        replicas: Replicas,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let (reserved, key) = (self.router.replication_connections.reserve().await, self.key(id));
        let claimed =
            self.claim_on(ConnectionRole::Replication(reserved.number), &key, claim).await;
        let claimed = claimed.map_err(|failure| failure.into_error("claim"))?;
        let ClaimOutcome::Granted { attempt } = claimed.outcome else { return Ok(claimed.outcome) };
        match self.replicate("claim", replicas, &claimed.route).await {
            Ok(()) => Ok(claimed.outcome),
            Err(error) => {
                self.undo_claim(&Lease { id: *id, owner: claim.owner }, attempt, claimed.was_owned)
                    .await;
                Err(error)
            }
        }
    }

    /// Undoes a claim that was just granted. The caller treats the outcome as unknown and releases
    /// the key too, so a failure here is harmless; eventually the lease expires.
    async fn undo_claim(&self, lease: &Lease, attempt: u32, was_owned: bool) {
        let undone = match attempt {
            // The claim may have been acknowledged before, and its handler may be running.
            _ if was_owned => return,
            1 => {
                self.step("claim", SendAgain::Never, &self.router.scripts.release, lease, &[]).await
            }
            // Earlier attempts may have had effects, so the record and its number of attempts must
            // stay.
            _ => {
                let retry = [Arg::Number(abandoned_code(Abandoned::Retry).into())];
                self.step("claim", SendAgain::Never, &self.router.scripts.abandon, lease, &retry)
                    .await
            }
        };
        if let Err(error) = undone {
            let cause = std::error::Error::source(&error);
            tracing::debug!(
                id = %lease.id.short(),
                cause,
                "undoing a claim that too few replicas acknowledged failed; its lease will expire"
            );
        }
    }

    /// Completes a claim, and fails unless enough replicas have the recording. The recording stays
    /// on the master, and the owner can complete again.
    pub(crate) async fn complete_replicated(
        &self,
        replicas: Replicas,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let reserved = self.router.replication_connections.reserve().await;
        let role = ConnectionRole::Replication(reserved.number);
        let called = self.complete_on(role, lease, recording).await;
        let (passed, route) = called.map_err(|failure| failure.into_error("complete"))?;
        if !passed {
            return Ok(Fence::Fenced);
        }
        self.replicate("complete", replicas, &route).await.map(|()| Fence::Passed)
    }

    /// Holds a key, and fails unless enough replicas have the hold.
    pub(crate) async fn hold_replicated(
        &self,
        replicas: Replicas,
        lease: &Lease,
    ) -> Result<Fence, StoreError> {
        let reserved = self.router.replication_connections.reserve().await;
        let (role, hold) = (
            ConnectionRole::Replication(reserved.number),
            [Arg::Number(abandoned_code(Abandoned::Hold).into())],
        );
        let called = self
            .call_fenced((role, SendAgain::Never), &self.router.scripts.abandon, lease, &hold)
            .await;
        let (passed, mut route) = called.map_err(|failure| failure.into_error("abandon"))?;
        if !passed {
            // An earlier call may have held the key but lacked replicas.
            let called = self
                .call_fenced((role, SendAgain::Once), &self.router.scripts.hold_again, lease, &[])
                .await;
            let (held, held_route) = called.map_err(|failure| failure.into_error("abandon"))?;
            if !held {
                return Ok(Fence::Fenced);
            }
            route = held_route;
        }
        self.replicate("abandon", replicas, &route).await.map(|()| Fence::Passed)
    }

    /// Adds a note, and fails unless enough replicas have it. The note stays on the master.
    pub(crate) async fn note_replicated(
        &self,
        replicas: Replicas,
        lease: &Lease,
        note: &Note,
    ) -> Result<Fence, StoreError> {
        let reserved = self.router.replication_connections.reserve().await;
        let role = ConnectionRole::Replication(reserved.number);
        let noted = self.note_on(role, lease, note).await;
        let (passed, routes) = noted.map_err(|failure| failure.into_error("note"))?;
        if !passed {
            return Ok(Fence::Fenced);
        }
        for route in &routes {
            self.replicate("note", replicas, route).await?;
        }
        Ok(Fence::Passed)
    }

    /// Waits until enough replicas have what was written on this connection. `WAIT` covers only
    /// writes of its own connection, so every step that passes writes, even if it is sent again.
    async fn replicate(
        &self,
        operation: &'static str,
        replicas: Replicas,
        route: &ConnectionRoute,
    ) -> Result<(), StoreError> {
        let Replicas { wanted, within } = replicas;
        match self.router.wait(route, wanted, within).await {
            Ok(found) if found >= u64::from(wanted) => Ok(()),
            Ok(found) => {
                Err(StoreError::transient(NAME, operation, TooFewReplicas { wanted, found }))
            }
            Err(failure) => Err(failure.into_error(operation)),
        }
    }
}

/// Fewer replicas than required have a write.
#[derive(Debug, thiserror::Error)]
#[error("{found} of {wanted} replicas acknowledged the write in time")]
struct TooFewReplicas {
    wanted: u32,
    found: u64,
}
