//! How the store is asked for a key, and what became of one that was lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    error::StoreError,
    fingerprint::{Fingerprint, RequestDigest},
    lease::OwnerToken,
    protocol::{Claim, ClaimOutcome, Snapshot},
    record::RecordState,
    record_id::RecordId,
    runtime::{
        Shared, Verdict,
        patience::{now, twice},
    },
};

/// What a claim came to.
pub(super) struct Asked {
    pub(super) outcome: ClaimOutcome,
    /// The token under which it was asked.
    pub(super) owner: OwnerToken,
    /// When it was sent: if it was granted, its lease lasts at least from then.
    pub(super) sent: Instant,
}

/// A claim whose outcome is not known yet.
///
/// Between the store's commit and its acknowledgement, lost or dropped, the key is ours without our knowing; giving it back by its
/// owner token spares the next request the wait for the lease.
struct Unsure<'a> {
    shared: &'a Arc<Shared>,
    id: &'a RecordId,
    claim: Option<&'a Claim>,
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            self.shared.give_back(*self.id, *claim);
        }
    }
}

/// A token for a claim.
pub(super) fn draw() -> Result<OwnerToken, StoreError> {
    OwnerToken::random().map_err(|error| StoreError::transient("runtime", "draw an owner token", error))
}

impl Shared {
    /// One claim, and a second one where the record was signed with an older key. What this process has yet to bring to the store
    /// comes before both.
    pub(super) async fn claim(
        self: &Arc<Self>,
        id: &RecordId,
        claim: &Claim,
        digest: RequestDigest,
    ) -> Result<Asked, StoreError> {
        let sent = now();
        if !self.deferrals.is_empty()
            && let Some(outcome) = Box::pin(self.claim_deferred(id, digest)).await
        {
            return Ok(Asked { outcome, owner: claim.owner, sent });
        }
        let mut outcome = self.claim_once(id, claim).await?;
        if let ClaimOutcome::Mismatch { recorded } = outcome {
            outcome = Box::pin(self.claim_as_signed(id, claim, digest, recorded)).await?;
        }
        Ok(Asked { outcome, owner: claim.owner, sent })
    }

    /// A second claim where the record is of the same request and was signed with an older key.
    async fn claim_as_signed(
        self: &Arc<Self>,
        id: &RecordId,
        claim: &Claim,
        digest: RequestDigest,
        recorded: Fingerprint,
    ) -> Result<ClaimOutcome, StoreError> {
        match self.options.fingerprint_keys.sign_like(recorded, digest) {
            // The next claim is signed with the present key again, so that no record is made that outlives the old one.
            Some(fingerprint) if fingerprint == recorded => {
                match self.claim_once(id, &Claim { fingerprint, ..*claim }).await {
                    // That the key was taken by this request is known, and a failure does not make it unknown.
                    Err(error) if error.is_transient() => {
                        tracing::warn!(%id, %error, "claiming a key that was signed with an older secret failed");
                        Ok(ClaimOutcome::InFlight { lease_left: Duration::ZERO })
                    }
                    claimed => claimed,
                }
            }
            Some(_) | None => Ok(ClaimOutcome::Mismatch { recorded }),
        }
    }

    async fn claim_once(self: &Arc<Self>, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let mut unsure = Unsure { shared: self, id, claim: Some(claim) };
        let sends = AtomicUsize::new(0);
        let send = || {
            sends.fetch_add(1, Ordering::Relaxed);
            self.answer(self.store.claim(id, claim))
        };
        let outcome = twice(send).await.inspect_err(|error| {
            if error.is_share_exceeded() {
                unsure.claim = None;
            }
        })?;
        // A first send without an acknowledgement may still be what the second one has found in flight.
        if sends.into_inner() == 1 || !matches!(outcome, ClaimOutcome::InFlight { .. }) {
            unsure.claim = None;
        }
        Ok(outcome)
    }

    /// What a fenced-off attempt's client is told: never the attempt's own answer.
    pub(super) async fn successor(&self, id: &RecordId, digest: RequestDigest) -> Verdict {
        let found = match self.answer(self.store.look_up(id)).await {
            Ok(Some(found)) => found,
            Ok(None) => return Verdict::InFlight { lease_left: Duration::ZERO },
            Err(error) => return Verdict::of_unread(&error),
        };
        self.verdict(id, digest, &found)
    }

    /// The verdict on a request whose key has this record.
    fn verdict(&self, id: &RecordId, digest: RequestDigest, found: &Snapshot) -> Verdict {
        match &found.record.state {
            _ if !self.is_same(found.record.fingerprint, digest) => Verdict::Mismatch,
            _ if found.record.is_held(found.at) => Verdict::Held { newly: false },
            RecordState::Completed(recording) => Verdict::of(id, recording),
            RecordState::InFlight | RecordState::Held => {
                Verdict::InFlight { lease_left: found.record.lease_left(found.at) }
            }
        }
    }

    /// The same, or `None` where a claim would be granted: the record has expired, or its lease has and it may run again.
    pub(super) fn judge(&self, id: &RecordId, digest: RequestDigest, found: &Snapshot) -> Option<Verdict> {
        if found.record.expired(found.at) {
            return None;
        }
        let verdict = self.verdict(id, digest, found);
        let free = matches!(verdict, Verdict::InFlight { .. }) && found.record.lapsed(found.at);
        (!free).then_some(verdict)
    }

    /// Whether a record is of this request, whichever of our keys it was signed with.
    pub(super) fn is_same(&self, recorded: Fingerprint, digest: RequestDigest) -> bool {
        let keys = &self.options.fingerprint_keys;
        recorded == keys.sign(digest) || keys.sign_like(recorded, digest) == Some(recorded)
    }
}
