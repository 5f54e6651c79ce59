//! Claims by lease, and the verdicts on keys that have a record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    deferred::Deferrals,
    options::RuntimeOptions,
    store_calls::StoreCalls,
    timing::{jittered, with_retry},
    verdict::Verdict,
    waiters::Waiters,
};
use crate::{
    error::StoreError,
    fingerprint::{Fingerprint, RequestDigest},
    lease::OwnerToken,
    protocol::{Claim, ClaimOutcome, Rejection, Snapshot},
    record::{Record, RecordState},
    record_id::RecordId,
};

/// The first pause between two claims of a key that another process owns; it doubles up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Claims keys of the store.
pub(super) struct Claims {
    store: StoreCalls,
    options: Arc<RuntimeOptions>,
    waiters: Arc<Waiters>,
    deferrals: Arc<Deferrals>,
}

/// The response to a claim.
pub(super) struct ClaimResponse {
    pub(super) outcome: ClaimOutcome,
    /// The owner token of the claim.
    pub(super) owner: OwnerToken,
    /// When the claim was sent: a granted lease lasts at least from then.
    pub(super) sent: Instant,
    /// When it was decided, if there is an observer.
    pub(super) decided: Option<Instant>,
}

impl ClaimResponse {
    fn is_in_flight(&self) -> bool {
        matches!(self.outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }))
    }
}

/// A claim was sent again, and a lock was found that its first sending may have.
#[derive(Debug, thiserror::Error)]
#[error("the outcome of an earlier sending of the claim is unknown")]
struct MayBeItself;

/// A claim whose outcome is unknown, and which is given back when dropped.
///
/// Between the store's commit and its acknowledgment, which may be lost or dropped, this process
/// owns the key without knowing; giving the claim back by its owner token spares the next request
/// the wait for the lease.
struct PendingClaim<'a> {
    deferrals: &'a Arc<Deferrals>,
    id: &'a RecordId,
    claim: Option<&'a Claim>,
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim {
            self.deferrals.give_back(*self.id, claim.clone());
        }
    }
}

impl Claims {
    pub(super) fn new(
        store: StoreCalls,
        options: Arc<RuntimeOptions>,
        waiters: Arc<Waiters>,
        deferrals: Arc<Deferrals>,
    ) -> Self {
        Self { store, options, waiters, deferrals }
    }

    /// Claims a key, and waits up to `wait` while another attempt is in flight.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` stores its arguments twice")]
    pub(super) fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        digest: &RequestDigest,
        wait: Duration,
    ) -> impl Future<Output = Result<ClaimResponse, StoreError>> {
        async move {
            let mut response = self.claim_now(id, claim, digest).await?;
            let (sent, operation) = (Some(response.sent), &claim.operation);
            let decided =
                self.store.measured(sent, |observer, took| observer.claimed(operation, took));
            response.decided = decided;
            if response.is_in_flight() && !wait.is_zero() {
                // Boxed: keeps the caller's future small on the fast path.
                response = Box::pin(self.wait(id, claim, digest, wait, response)).await;
                response.decided =
                    self.store.measured(decided, |observer, took| observer.waited(operation, took));
            }
            Ok(response)
        }
    }

    /// Claims a key once, and a second time if its record was signed with an older key. An end of
    /// this key that is deferred is stored first.
    async fn claim_now(
        &self,
        id: &RecordId,
        claim: &Claim,
        digest: &RequestDigest,
    ) -> Result<ClaimResponse, StoreError> {
        let sent = self.store.environment().now();
        if !self.deferrals.is_empty()
            && let Some(rejection) = Box::pin(self.deferrals.claim(id, *digest)).await
        {
            let outcome = ClaimOutcome::Rejected(rejection);
            return Ok(ClaimResponse { outcome, owner: claim.owner, sent, decided: None });
        }
        let mut outcome = self.send(id, claim).await?;
        if let ClaimOutcome::Rejected(Rejection::Mismatch { recorded }) = outcome {
            outcome = Box::pin(self.claim_rotated(id, claim, digest, recorded)).await?;
        }
        Ok(ClaimResponse { outcome, owner: claim.owner, sent, decided: None })
    }

    /// Claims a key a second time if its record is of the same request, signed with an older key.
    async fn claim_rotated(
        &self,
        id: &RecordId,
        claim: &Claim,
        digest: &RequestDigest,
        recorded: Fingerprint,
    ) -> Result<ClaimOutcome, StoreError> {
        match self.options.fingerprint_keys.sign_like(recorded, *digest) {
            // Only this second claim is signed with the older key, because a record that it created
            // could outlive that key.
            Some(fingerprint) if fingerprint == recorded => {
                match self.send(id, &claim.with_fingerprint(fingerprint)).await {
                    // The first claim showed that the key is in use; the failure does not change
                    // that.
                    Err(error) if error.is_transient() => {
                        tracing::warn!(
                            id = %id.short(), %error,
                            "claiming a key that was signed with an older secret failed; reporting \
                             it in flight"
                        );
                        Ok(ClaimOutcome::IN_FLIGHT)
                    }
                    // Between the two claims another process may claim the key anew and sign with
                    // the newer secret, for the same request.
                    Ok(ClaimOutcome::Rejected(Rejection::Mismatch { recorded }))
                        if self.options.fingerprint_keys.matches(recorded, *digest) =>
                    {
                        Ok(ClaimOutcome::IN_FLIGHT)
                    }
                    outcome => outcome,
                }
            }
            Some(_) | None => Ok(ClaimOutcome::Rejected(Rejection::Mismatch { recorded })),
        }
    }

    pub(super) async fn send(
        &self,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let mut pending = PendingClaim { deferrals: &self.deferrals, id, claim: Some(claim) };
        let sends = AtomicUsize::new(0);
        let send = || {
            sends.fetch_add(1, Ordering::Relaxed);
            self.store.call("claim", |store| store.claim(id, claim))
        };
        let outcome = with_retry(send).await.inspect_err(|error| {
            if error.is_share_exceeded() {
                pending.claim = None;
            }
        })?;
        // If the claim was sent twice, the attempt in flight may be its own first sending: always
        // if the store cannot see a record, and only its lock.
        if sends.into_inner() > 1
            && let ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. }) = outcome
        {
            if lease_left.is_zero() {
                return Err(StoreError::transient("runtime", "claim", MayBeItself));
            }
            return Ok(outcome);
        }
        pending.claim = None;
        if let ClaimOutcome::Rejected(rejection) = &outcome {
            self.store.observe_rejection(id, &claim.operation, rejection);
        }
        Ok(outcome)
    }

    /// Claims again, for up to `wait`, whenever the key may be free.
    ///
    /// Between two claims another attempt may end and a third begin; claiming anew each time makes
    /// that one more round (case `a_released_key_is_granted_to_one_waiter`).
    async fn wait(
        &self,
        id: &RecordId,
        claim: &Claim,
        digest: &RequestDigest,
        wait: Duration,
        mut response: ClaimResponse,
    ) -> ClaimResponse {
        // Measured by the caller's tokio runtime, whose time may be paused; so are the pauses
        // below.
        let started = tokio::time::Instant::now();
        let Some(waiter) = self.waiters.register(id) else { return response };
        let mut pause = FIRST_PAUSE;
        loop {
            // Between the claim and the pause the attempt may end; listening from here on prevents
            // that its end is missed (case
            // `an_end_during_a_claim_is_not_missed`).
            let ended = waiter.ended();
            match self.claim_with_new_owner(id, claim, digest).await {
                Ok(latest) => response = latest,
                // The key was in flight before; the failure does not change that.
                Err(error) => {
                    tracing::warn!(
                        id = %id.short(), %error,
                        "claiming a key that is in flight failed; retrying"
                    );
                }
            }
            let left = wait.saturating_sub(started.elapsed());
            if !response.is_in_flight() || left.is_zero() {
                return response;
            }
            let _ = tokio::time::timeout(left.min(jittered(pause)), ended).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Claims with a new owner token, since an earlier claim that failed may still be given back
    /// under its own token.
    async fn claim_with_new_owner(
        &self,
        id: &RecordId,
        claim: &Claim,
        digest: &RequestDigest,
    ) -> Result<ClaimResponse, StoreError> {
        let owner = self.store.draw_owner()?;
        self.claim_now(id, &claim.with_owner(owner), digest).await
    }

    /// The verdict on a request that does not run, because its key has a record that changed
    /// between two claims.
    pub(super) async fn current(&self, id: &RecordId, digest: RequestDigest) -> Verdict {
        match self.store.call("look up", |store| store.look_up(id)).await {
            Ok(Some(found)) => self.verdict(id, digest, &found),
            Ok(None) => Verdict::IN_FLIGHT,
            Err(error) => Verdict::of_failed_read(&error),
        }
    }

    /// The verdict for the client of a fenced attempt: never the attempt's own response, and never
    /// a mismatch, which would report that its handler did not run.
    ///
    /// `claimed` is the fingerprint of the attempt's claim. `digest` recognizes the same request
    /// also if the successor has signed it with another key.
    pub(super) async fn successor(
        &self,
        id: &RecordId,
        claimed: Fingerprint,
        digest: RequestDigest,
    ) -> Verdict {
        let Snapshot { record, at } =
            match self.store.call("look up", |store| store.look_up(id)).await {
                Ok(Some(found)) => found,
                Ok(None) => return Verdict::Lost { reused: false },
                Err(error) => return Verdict::of_failed_read(&error),
            };
        let is_same = record.fingerprint == claimed || self.matches(&record, digest);
        if is_same {
            verdict_of(id, &Snapshot { record, at })
        } else {
            Verdict::Lost { reused: !record.is_expired(at) }
        }
    }

    /// The verdict on a request without claiming its key; `None` if the key has no record, or if a
    /// claim would be granted.
    pub(super) async fn find(
        &self,
        id: &RecordId,
        digest: RequestDigest,
    ) -> Result<Option<Verdict>, StoreError> {
        if !self.deferrals.is_empty()
            && let Some(rejection) = Box::pin(self.deferrals.claim(id, digest)).await
        {
            return Ok(Some(Verdict::of_rejection(id, rejection)));
        }
        let found = with_retry(|| self.store.call("look up", |store| store.look_up(id))).await?;
        Ok(found.and_then(|found| self.verdict_unless_free(id, digest, &found)))
    }

    /// The verdict on a request whose key has this record, or `None` if a claim would be granted:
    /// the record has expired, or its lease has and the operation may run again.
    fn verdict_unless_free(
        &self,
        id: &RecordId,
        digest: RequestDigest,
        found: &Snapshot,
    ) -> Option<Verdict> {
        if found.record.is_expired(found.at) {
            return None;
        }
        let verdict = self.verdict(id, digest, found);
        let in_flight = matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. }));
        let free = in_flight && found.record.lease_expired(found.at);
        (!free).then_some(verdict)
    }

    fn verdict(&self, id: &RecordId, digest: RequestDigest, found: &Snapshot) -> Verdict {
        if self.matches(&found.record, digest) {
            verdict_of(id, found)
        } else {
            Verdict::Rejected(Rejection::Mismatch { recorded: found.record.fingerprint })
        }
    }

    fn matches(&self, record: &Record, digest: RequestDigest) -> bool {
        self.options.fingerprint_keys.matches(record.fingerprint, digest)
    }
}

/// The verdict on the request that the record is of.
fn verdict_of(id: &RecordId, Snapshot { record, at }: &Snapshot) -> Verdict {
    let reference = record.notes.reference.clone();
    match &record.state {
        _ if record.is_held(*at) => Verdict::Rejected(Rejection::Held { newly: false, reference }),
        RecordState::Completed(recording) => Verdict::of_recording(id, recording),
        RecordState::InFlight | RecordState::Held => {
            Verdict::Rejected(Rejection::InFlight { lease_left: record.lease_left(*at), reference })
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
