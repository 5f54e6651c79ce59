//! Completions of first claims that compare the value of the claim, as the store in Redis sends
//! them.

use std::sync::Arc;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
};
use idempotent_redis::internals::RememberedClaims;
use tokio::time::Instant;

use super::{Reply, SimulatedStore, Statement};

/// What the shipped store remembers of the claims of one process, if it compares values.
#[derive(Clone)]
pub(super) struct FirstClaims(Option<Arc<RememberedClaims>>);

impl FirstClaims {
    pub(super) fn new(compares: bool) -> Self {
        Self(compares.then(Arc::default))
    }

    pub(super) fn claimed(
        &self,
        id: &RecordId,
        claim: &Claim,
        outcome: &ClaimOutcome,
        sent: Instant,
    ) {
        let is_first = *outcome == ClaimOutcome::Granted { attempt: 1 };
        if let Some(claims) = &self.0
            && is_first
            && claim.abandoned == Abandoned::Retry
        {
            let lease = Lease { id: *id, owner: claim.owner };
            claims.remember(lease, claim, [sent, Instant::now()]);
        }
    }
}

impl SimulatedStore {
    /// Completes a first claim; `None` if the ordinary step decides.
    pub(super) async fn complete_first(
        &self,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Option<Fence>, StoreError> {
        let Some(claims) = &self.first_claims.0 else { return Ok(None) };
        let Some((value, left)) = claims.take(lease, Instant::now()) else { return Ok(None) };
        let complete = Statement::CompleteFirst(*lease, recording.clone(), value.into(), left);
        match self.call(complete).await? {
            Reply::Changed => Ok(None),
            reply => reply.fence().map(Some),
        }
    }
}
