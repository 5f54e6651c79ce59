//! Claims that are part of the transaction they are for.

use std::{
    collections::{HashMap, hash_map::Entry},
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{
    Admission, Attempt, Runtime, Shared, Verdict,
    claiming::draw,
    patience::{in_time, now, twice},
};
use crate::{
    error::StoreError,
    fingerprint::{Fingerprint, RequestDigest},
    lease::Lease,
    policy::Policy,
    protocol::{Claim, ClaimOutcome, Snapshot},
    record_id::RecordId,
    store::{Transaction, TransactionClaim, Transactions},
    transition::{self, Change},
};

/// What runs in this process within a transaction. Nobody can read it in the store before it is committed.
#[derive(Default)]
pub(super) struct Within {
    running: Mutex<HashMap<RecordId, Fingerprint>>,
}

impl Within {
    /// The fingerprint of what runs under this id.
    pub(super) fn running(&self, id: &RecordId) -> Option<Fingerprint> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }
}

/// One of them, until it is dropped.
pub(super) struct Running {
    shared: Arc<Shared>,
    id: RecordId,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.within.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.shared.waiting.wake(&self.id);
    }
}

impl Runtime {
    /// Asks for a key within a new transaction, in which the attempt then works: claim, effects and completion are committed together,
    /// or nothing is. There is no lease. While another attempt is at work, this waits up to `policy.wait` for its end; for one of
    /// another process never less than 50 ms.
    ///
    /// # Errors
    /// When the store has no transactions, or fails. Nothing is claimed then.
    ///
    /// # Cancel safety
    /// Nothing stays claimed.
    pub async fn begin_within(
        &self,
        id: RecordId,
        digest: RequestDigest,
        policy: &Policy,
    ) -> Result<Admission, StoreError> {
        let shared = &self.shared;
        shared.ready().await?;
        let transactions = shared.transactions()?;
        // Another handler of the same operation may claim by lease.
        if !shared.deferrals.is_empty()
            && let Some(outcome) = Box::pin(shared.claim_deferred(&id, digest)).await
        {
            return Ok(Admission::Rejected(Verdict::of_claim(&id, outcome)));
        }
        let fingerprint = shared.options.fingerprint_keys.sign(digest);
        let Policy { lease, ttl, abandoned, .. } = *policy;
        let mut claim = Claim { fingerprint, owner: draw()?, lease, ttl, abandoned, principal: digest.principal() };
        let started = Instant::now();
        let place = if policy.wait.is_zero() { None } else { shared.waiting.enter(&id) };
        loop {
            // Between the look and the pause the other attempt may end; it is heard from here on.
            let ended = place.as_ref().map(|place| place.ended());
            let left = policy.wait.saturating_sub(started.elapsed());
            match shared.enter(&id, claim.fingerprint) {
                Ok(running) => return shared.claim_within(transactions, running, claim, digest, left).await,
                Err(other) => {
                    // It may be another replay that only asks; then the record is there.
                    if let Some(found) = twice(|| shared.answer(shared.store.look_up(&id))).await? {
                        if shared.is_same(found.record.fingerprint, digest) {
                            claim.fingerprint = found.record.fingerprint;
                        }
                        if let Some(outcome) = judge(&found, &claim) {
                            return Ok(Admission::Rejected(Verdict::of_claim(&id, outcome)));
                        }
                    }
                    if !shared.is_same(other, digest) {
                        return Ok(Admission::Rejected(Verdict::Mismatch));
                    }
                }
            }
            match ended {
                Some(ended) if !left.is_zero() => drop(timeout(left, ended).await),
                _ => return Ok(Admission::Rejected(Verdict::InFlight { lease_left: Duration::ZERO })),
            }
        }
    }

    /// Begins a transaction that has nothing to do with any key.
    ///
    /// # Errors
    /// When the store has no transactions, or fails.
    pub async fn transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        self.shared.transaction().await
    }

    /// The store's transactions.
    #[must_use]
    pub fn transactions(&self) -> Option<&dyn Transactions> {
        self.shared.store.transactions()
    }
}

/// What a record that is there comes to, unless it can be claimed.
fn judge(found: &Snapshot, claim: &Claim) -> Option<ClaimOutcome> {
    match transition::claim(Some(&found.record), claim, found.at) {
        (Change::Keep, outcome) => Some(outcome),
        (Change::Put(_) | Change::Remove, _) => None,
    }
}

impl Shared {
    pub(super) fn transactions(&self) -> Result<&dyn Transactions, StoreError> {
        self.store.transactions().ok_or_else(|| StoreError::permanent("runtime", "begin a transaction", NoTransactions))
    }

    pub(super) async fn transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let transactions = self.transactions()?;
        twice(|| self.answer(transactions.begin())).await
    }

    /// Enters what is about to run; if it runs already, what it is of.
    pub(super) fn enter(self: &Arc<Self>, id: &RecordId, fingerprint: Fingerprint) -> Result<Running, Fingerprint> {
        match self.within.running.lock().unwrap_or_else(PoisonError::into_inner).entry(*id) {
            Entry::Occupied(running) => Err(*running.get()),
            Entry::Vacant(free) => {
                free.insert(fingerprint);
                Ok(Running { shared: self.clone(), id: *id })
            }
        }
    }

    async fn claim_within(
        self: &Arc<Self>,
        transactions: &dyn Transactions,
        running: Running,
        mut claim: Claim,
        digest: RequestDigest,
        patience: Duration,
    ) -> Result<Admission, StoreError> {
        let id = running.id;
        // Nothing is left of a claim that fails, so it may be made again.
        let limit = self.options.store_timeout.saturating_add(patience);
        let mut claimed = twice(|| in_time(limit, transactions.claim(&id, &claim, patience))).await?;
        if let TransactionClaim::Rejected(ClaimOutcome::Mismatch { recorded }) = claimed
            && self.is_same(recorded, digest)
        {
            // It was signed with an older secret.
            claim.fingerprint = recorded;
            claimed = twice(|| in_time(limit, transactions.claim(&id, &claim, patience))).await?;
        }
        Ok(match claimed {
            TransactionClaim::Granted { attempt, transaction } => {
                let lease = Lease { id, owner: claim.owner };
                let attempt = Attempt::new(self.clone(), lease, claim, digest, attempt, now());
                Admission::Proceed(attempt.within(running, transaction))
            }
            TransactionClaim::Rejected(ClaimOutcome::Mismatch { recorded }) if self.is_same(recorded, digest) => {
                // It has changed in between.
                Admission::Rejected(self.successor(&id, digest).await)
            }
            TransactionClaim::Rejected(outcome) => Admission::Rejected(Verdict::of_claim(&id, outcome)),
        })
    }
}

/// The store cannot commit an application's writes together with a record.
#[derive(Debug)]
struct NoTransactions;

impl fmt::Display for NoTransactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has no transactions; those of SQLite and Postgres have")
    }
}

impl Error for NoTransactions {}
