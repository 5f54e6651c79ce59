//! The runtime: from a claim to its recording.
//!
//! The runtime is the only caller of a [`Store`]. It claims keys, waits for other attempts, renews
//! the leases of running attempts, stores their ends, and purges expired records.

use std::{sync::Arc, time::Duration};

use self::{claims::draw_owner, parts::Parts, process::Process};
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::{Lease, OwnerToken},
    policy::Policy,
    protocol::{Claim, ClaimOutcome, Resolution, ResolveOutcome, Snapshot},
    record_id::RecordId,
    store::{Store, Transaction, Transactions},
};

mod attempt;
mod background;
mod claims;
mod deferred;
mod end_action;
mod in_transaction;
#[cfg(feature = "internals")]
pub(crate) mod internals;
mod open_transactions;
mod options;
mod parts;
mod process;
mod renewer;
mod store_calls;
mod timing;
mod verdict;
mod waiters;

pub use attempt::{Admission, Attempt, AttemptOutcome};
pub use options::RuntimeOptions;
pub use verdict::Verdict;

/// Claims keys, and carries attempts to their recordings.
///
/// Clones share one state. A process needs one runtime for each store, created after any fork.
///
/// The first claim starts a thread that renews leases, purges, and retries what the store failed to
/// store, so that neither a busy nor a stopped tokio runtime of the application delays them. The
/// thread calls the store from a tokio runtime of its own. A store with a pool of sockets, each of
/// which belongs to the tokio runtime that opened it, keeps separate sockets for that thread. The
/// thread ends with the last clone of the runtime, the last attempt, and the last end that is left
/// to be stored.
#[derive(Clone)]
pub struct Runtime {
    parts: Arc<Parts>,
}

impl Runtime {
    /// Creates a runtime with this store.
    pub fn new(store: impl Store, options: RuntimeOptions) -> Self {
        Self::shared(Arc::new(store), options)
    }

    /// Creates a runtime with a store that is shared already.
    #[must_use]
    pub fn shared(store: Arc<dyn Store>, options: RuntimeOptions) -> Self {
        Self { parts: Arc::new(Parts::new(store, options, Process::current())) }
    }

    /// Claims a key, and waits up to `policy.wait` while another attempt is in flight.
    ///
    /// A completion of this key that the store does not have yet is sent to the store first, and
    /// its recording is the verdict. While the store still fails, that recording is replayed from
    /// memory, since the first client has the same response already. An abandonment that the store
    /// does not have yet holds the key in the same way if the policy is
    /// [`Abandoned::Hold`](crate::Abandoned::Hold). A record that the store has lost meanwhile is
    /// claimed again with the same owner token, and completed.
    ///
    /// # Errors
    /// Fails if the store fails twice, slowly, or permanently. It is then unknown whether the claim
    /// took effect; if it did, it is given back in the background, or at the latest expires with
    /// its lease. Under [`Abandoned::Hold`](crate::Abandoned::Hold) a claim that could not be given
    /// back in that time is held, though nothing ran.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, a claim that may have taken effect. If
    /// the store acts on the claim even later, the key stays in flight for the lease.
    pub async fn begin(
        &self,
        id: RecordId,
        digest: RequestDigest,
        policy: &Policy,
    ) -> Result<Admission, StoreError> {
        let parts = &self.parts;
        parts.ready().await?;
        let fingerprint = parts.options.fingerprint_keys.sign(digest);
        let claim = Claim::new(fingerprint, draw_owner()?)
            .with_policy(policy)
            .with_principal(digest.principal());
        let response = parts.claims.claim(&id, &claim, digest, policy.wait).await?;
        let ClaimOutcome::Granted { attempt } = response.outcome else {
            return Ok(Admission::Rejected(Verdict::of_claim(&id, response.outcome)));
        };
        let lease = Lease { id, owner: response.owner };
        let leases = &parts.renewer.leases;
        if attempt > 1 {
            leases.remove_superseded(&lease);
        }
        leases.insert(lease, policy.lease, response.sent);
        let claim = claim.with_owner(response.owner);
        let attempt = Attempt::new(parts.clone(), lease, claim, digest, attempt, response.sent);
        Ok(Admission::Proceed(attempt))
    }

    /// Claims a key in a new transaction, in which the handler then writes: claim, effects and
    /// completion are committed together, or none of them is.
    ///
    /// There is no lease. While another attempt is in flight, this waits up to `policy.wait` for
    /// its end, and at least 50 ms for an attempt of another process.
    ///
    /// # Errors
    /// Fails if the store has no transactions, or fails. Nothing is claimed then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing claimed.
    pub async fn begin_in_transaction(
        &self,
        id: RecordId,
        digest: RequestDigest,
        policy: &Policy,
    ) -> Result<Admission, StoreError> {
        self.parts.ready().await?;
        in_transaction::begin(&self.parts, id, digest, policy).await
    }

    /// Begins a transaction that is not related to any key.
    ///
    /// # Errors
    /// Fails if the store has no transactions, or fails.
    pub async fn transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        self.parts.store.begin_transaction().await
    }

    /// Returns the store's transactions, if it has any.
    #[must_use]
    pub fn transactions(&self) -> Option<&dyn Transactions> {
        self.parts.store.store().transactions()
    }

    /// Returns the verdict on a request without claiming its key; `None` if the request could run.
    ///
    /// # Errors
    /// Fails if the store fails.
    ///
    /// # Cancel safety
    /// Safe: nothing is written, except an end of an attempt that the store does not have yet.
    pub async fn find(
        &self,
        id: RecordId,
        digest: RequestDigest,
    ) -> Result<Option<Verdict>, StoreError> {
        let parts = &self.parts;
        if let Some(verdict) = parts.claims.find(&id, digest).await? {
            return Ok(Some(verdict));
        }
        // A key that is claimed in an open transaction has no record yet.
        Ok(parts.open.fingerprint(&id).map(|fingerprint| {
            if parts.options.fingerprint_keys.matches(fingerprint, digest) {
                Verdict::InFlight { lease_left: Duration::ZERO }
            } else {
                Verdict::Mismatch
            }
        }))
    }

    /// Returns the namespace of the options, or else of the store's URL.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let parts = &self.parts;
        parts.options.namespace.as_deref().or_else(|| parts.store.store().namespace())
    }

    /// Verifies that the store works, before any request needs it: see [`Store::check`]. Otherwise
    /// the first claim does.
    ///
    /// # Errors
    /// Fails if the store is misconfigured or cannot be reached. The error's source names the
    /// setting or the privilege.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.parts.check().await
    }

    /// Reads a record without changing it; `None` if the key is absent.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.parts.store.call(|store| store.look_up(id)).await
    }

    /// Resolves a held key, if the attempt that the operator saw still owns it.
    ///
    /// # Errors
    /// Fails if the store fails. The same call may be repeated.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let outcome = self.parts.store.call(|store| store.resolve(id, seen, resolution)).await?;
        self.parts.waiters.wake(id);
        Ok(outcome)
    }

    /// Returns when no end of an attempt is left to be stored in the background. Part of an orderly
    /// shutdown.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn drained(&self) {
        self.parts.deferrals.drained().await;
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &*self.parts.options).finish_non_exhaustive()
    }
}
