//! Claims that are part of the transaction of their handler.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use super::{
    attempt::{Admission, Attempt, Claimed, Grant},
    open_claims::OpenClaim,
    parts::RuntimeParts,
    subject::Subject,
    timing::with_retry,
    verdict::Verdict,
};
use crate::{
    error::StoreError,
    fingerprint::{Fingerprint, RequestDigest},
    policy::{OnAbandon, Policy},
    protocol::{Claim, Rejection},
    record_id::RecordId,
    store::{TransactionClaim, Transactions},
    transition::rejection_without_change,
};

/// Claims a key in a new transaction; see
/// [`Runtime::begin_in_transaction`](super::Runtime::begin_in_transaction).
pub(super) async fn begin(
    parts: &Arc<RuntimeParts>,
    subject: Subject,
    digest: RequestDigest,
    policy: &Policy,
) -> Result<Admission, StoreError> {
    let id = subject.id;
    let transactions = parts.store.transactions()?;
    let claim = parts.new_claim(subject, digest, policy)?;
    // Another handler of the same operation may claim by lease.
    if !parts.deferrals.is_empty()
        && let Some(rejection) = Box::pin(parts.deferrals.claim(&id, digest)).await
    {
        return Ok(Admission::Rejected(Verdict::of_rejection(&id, rejection)));
    }
    let mut request = Request { parts, transactions, id, digest, claim, rule: policy.abandoned };
    let started = Instant::now();
    let waiter = if policy.wait.is_zero() { None } else { parts.waiters.register(&id) };
    loop {
        // Between the lookup and the pause the other attempt may end; listening from here on
        // prevents that its end is missed.
        let ended = waiter.as_ref().map(|waiter| waiter.ended());
        let left = policy.wait.saturating_sub(started.elapsed());
        match parts.open.register(&id, request.claim.fingerprint) {
            Ok(open) => return request.claim(open, left).await,
            Err(other) => {
                if let Some(verdict) = request.verdict_beside(other).await? {
                    return Ok(Admission::Rejected(verdict));
                }
            }
        }
        match ended {
            Some(ended) if !left.is_zero() => drop(timeout(left, ended).await),
            _ => {
                return Ok(Admission::Rejected(Verdict::IN_FLIGHT));
            }
        }
    }
}

/// A request that claims its key in a transaction.
struct Request<'a> {
    parts: &'a Arc<RuntimeParts>,
    transactions: &'a dyn Transactions,
    id: RecordId,
    digest: RequestDigest,
    claim: Claim,
    rule: OnAbandon,
}

impl Request<'_> {
    fn matches(&self, recorded: Fingerprint) -> bool {
        self.parts.options.fingerprint_keys.matches(recorded, self.digest)
    }

    /// The verdict while another request of this process has the key registered; `None` if that
    /// request is in flight.
    async fn verdict_beside(&mut self, other: Fingerprint) -> Result<Option<Verdict>, StoreError> {
        let (store, id) = (&self.parts.store, &self.id);
        // The other request may be a duplicate that gets a replay; then the key has a record.
        if let Some(found) = with_retry(|| store.call("look up", |store| store.look_up(id))).await?
        {
            if self.matches(found.record.fingerprint) {
                self.claim.fingerprint = found.record.fingerprint;
            }
            let (record, claim) = (Some(&found.record), &self.claim);
            if let Some(rejection) = rejection_without_change(record, claim, found.at) {
                return Ok(Some(Verdict::of_rejection(&self.id, rejection)));
            }
        }
        Ok(if self.matches(other) {
            None
        } else {
            Some(Verdict::Rejected(Rejection::Mismatch { recorded: other }))
        })
    }

    /// Claims the key, and waits up to `wait` for a transaction of another process.
    async fn claim(mut self, open: OpenClaim, wait: Duration) -> Result<Admission, StoreError> {
        let began = self.parts.store.stopwatch();
        let mut claimed = self.send(wait).await?;
        if let TransactionClaim::Rejected(Rejection::Mismatch { recorded }) = claimed
            && self.matches(recorded)
        {
            // The record was signed with an older secret.
            self.claim.fingerprint = recorded;
            claimed = self.send(wait).await?;
        }
        let (parts, id, digest) = (self.parts, self.id, self.digest);
        let operation = &self.claim.operation;
        let decided =
            parts.store.measured(began, |observer, took| observer.claimed(operation, took));
        if let TransactionClaim::Rejected(rejection) = &claimed {
            parts.store.observe_rejection(&id, operation, rejection);
        }
        Ok(match claimed {
            TransactionClaim::Granted { attempt, transaction } => {
                let since = parts.store.environment().now();
                let grant = Grant { number: attempt, since, decided };
                let claimed = Claimed::new(parts.clone(), id, self.claim, digest, grant, self.rule);
                Admission::Proceed(Attempt::in_transaction(claimed, open, transaction))
            }
            TransactionClaim::Rejected(Rejection::Mismatch { recorded })
                if self.matches(recorded) =>
            {
                // The record changed between the two claims.
                Admission::Rejected(parts.claims.current(&id, digest).await)
            }
            TransactionClaim::Rejected(rejection) => {
                Admission::Rejected(Verdict::of_rejection(&id, rejection))
            }
        })
    }

    /// Sends the claim, and retries it once: nothing is left of a claim that fails.
    async fn send(&self, wait: Duration) -> Result<TransactionClaim, StoreError> {
        let limit = self.parts.store.timeout().saturating_add(wait);
        let send = || {
            let claim = self.transactions.claim(&self.id, &self.claim, wait);
            self.parts.store.limit_to("claim", limit, claim)
        };
        with_retry(send).await
    }
}
