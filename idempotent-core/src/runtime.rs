//! The runtime, which carries an operation from its claim to its recording.
//!
//! A [`Runtime`] claims keys, waits for other attempts, renews the leases of running attempts,
//! stores their ends, and purges expired records. An integration with a web framework uses it as
//! follows:
//!
//! 1. [`Runtime::begin`] claims the key of a request. For [`Admission::Rejected`], respond
//!    according to the [`Verdict`].
//! 2. For [`Admission::Proceed`], run the handler.
//! 3. End the [`Attempt`] by [`complete`](Attempt::complete), [`release`](Attempt::release) or
//!    [`abandon`](Attempt::abandon), and respond according to the [`AttemptOutcome`].

use std::sync::Arc;

use self::{
    attempt::{Claimed, Grant},
    environment::Environment,
    parts::RuntimeParts,
    process::Process,
};
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::Policy,
    protocol::{Claim, ClaimOutcome, Rejection, ResumablePage, Snapshot},
    record::Record,
    record_id::RecordId,
    short_text::ShortText,
    store::{Store, Transaction, Transactions},
};

mod administrator;
mod attempt;
mod background;
mod claim_in_transaction;
mod claims;
mod deferred;
mod end_action;
mod environment;
mod erasure;
#[cfg(feature = "internals")]
pub(crate) mod internals;
mod observer;
mod open_claims;
mod operation;
mod options;
mod owner_tokens;
mod parts;
mod process;
mod recordable;
mod renewer;
#[cfg(feature = "encrypt")]
mod resealing;
#[cfg(feature = "encrypt")]
mod sealing;
mod step_encoding;
mod store_calls;
mod subject;
mod timing;
mod transaction_slot;
mod verdict;
mod waiters;

pub use administrator::{Administrator, FoundRecord};
pub use attempt::{Admission, Attempt, AttemptOutcome};
pub use erasure::ErasedPage;
pub use observer::{FencedStep, HeldOperation, Observer, RenewalOutcome};
pub use operation::{
    HandlerTransaction, NoteError, ReconciledStep, Reconciliation, Run, Step, decode_input,
    is_input_of,
};
pub use options::RuntimeOptions;
pub use recordable::Recordable;
#[cfg(feature = "encrypt")]
pub use resealing::ResealedPage;
pub use subject::Subject;
pub use transaction_slot::{
    ReturnedTransaction, TransactionError, TransactionHandle, TransactionSlot,
};
pub use verdict::Verdict;

/// Claims keys, and carries each attempt to its end.
///
/// Clones share one state. A process needs one runtime for each store. Create it after any `fork`:
/// in a forked process, calls fail with a permanent error.
///
/// The first claim starts a thread that renews leases, purges expired records, and retries calls
/// that the store failed. It calls the store from its own Tokio runtime, so that neither a busy nor
/// a stopped Tokio runtime of the application delays it. A store whose sockets belong to the Tokio
/// runtime that opened them keeps separate sockets for that thread.
///
/// The thread ends once the last clone of this `Runtime` and the last attempt are dropped, and no
/// end of an attempt is left to be stored.
#[derive(Clone)]
pub struct Runtime {
    parts: Arc<RuntimeParts>,
}

impl Runtime {
    /// Creates a runtime with this store.
    pub fn new(store: impl Store, options: RuntimeOptions) -> Self {
        Self::shared(Arc::new(store), options)
    }

    /// Creates a runtime with a store that is already in an [`Arc`].
    #[must_use]
    pub fn shared(store: Arc<dyn Store>, options: RuntimeOptions) -> Self {
        Self {
            parts: Arc::new(RuntimeParts::new(
                store,
                options,
                Process::current(),
                Environment::System,
            )),
        }
    }

    /// Claims a key, and waits up to `policy.wait` while another attempt is in flight. `subject`
    /// is the id of the record, and what the record shows about its operation. `digest` is the
    /// digest of the request, which is signed to become its fingerprint.
    ///
    /// If an earlier attempt of this process has ended, and the store does not have its end yet,
    /// the end is sent to the store first:
    ///
    /// * After a completion, the verdict is its recording. While the store still fails, that
    ///   recording is replayed from memory, because the first client has the same response already.
    /// * After an abandonment under [`Abandoned::Hold`](crate::Abandoned::Hold), the key is held in
    ///   the same way.
    /// * If the store has lost the record in the meantime, the record is claimed again with the
    ///   same owner token, and then completed or held.
    ///
    /// # Errors
    /// Fails if the store fails. A transient failure within the first second is retried once.
    ///
    /// After an error it is unknown whether the claim took effect. If it did, it is released in the
    /// background, or expires with its lease at the latest. Under
    /// [`Abandoned::Hold`](crate::Abandoned::Hold), a claim that could not be released before its
    /// lease expired is held, although no handler ran.
    ///
    /// # Cancel safety
    /// If the future is dropped, a claim that may have taken effect is released in the background.
    /// If the claim reaches the store only after that, the key stays in flight for the length of
    /// the lease.
    pub fn begin(
        &self,
        subject: impl Into<Subject>,
        digest: RequestDigest,
        policy: &Policy,
    ) -> impl Future<Output = Result<Admission, StoreError>> {
        let (parts, subject) = (&self.parts, subject.into());
        let (id, claim) = (subject.id, parts.new_claim(subject, digest, policy));
        // A block, because an `async fn` stores its arguments twice.
        async move {
            parts.ready().await?;
            parts.verify_may_begin()?;
            let claim = match claim {
                Ok(ref claim) => claim,
                Err(error) => return Err(error),
            };
            let response = parts.claims.claim(&id, claim, &digest, policy.wait).await?;
            let number = match response.outcome {
                ClaimOutcome::Granted { attempt } => attempt,
                ClaimOutcome::Rejected(rejection) => {
                    return Ok(Admission::Rejected(Verdict::of_rejection(&id, rejection)));
                }
            };
            let claim = claim.with_owner(response.owner);
            let grant = Grant { number, since: response.sent, decided: response.decided };
            Ok(Admission::Proceed(self.granted(id, claim, digest, grant, policy)))
        }
    }

    /// Claims a key in a new transaction, in which the handler then writes. The claim, the effects
    /// and the completion are committed together, or none of them is.
    ///
    /// The claim has no lease. While another attempt is in flight, this call waits for its end for
    /// up to `policy.wait`. A store with a single writer may wait longer.
    ///
    /// # Errors
    /// Fails if the store has no transactions, or if it fails. Then nothing is claimed.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, nothing is claimed.
    pub async fn begin_in_transaction(
        &self,
        subject: impl Into<Subject>,
        digest: RequestDigest,
        policy: &Policy,
    ) -> Result<Admission, StoreError> {
        let subject = subject.into();
        self.parts.ready().await?;
        self.parts.verify_may_begin()?;
        claim_in_transaction::begin(&self.parts, subject, digest, policy).await
    }

    /// Claims an operation that was abandoned, by its record. Returns `None` if the claim is not
    /// granted, or if an attempt of this process has ended and the store does not have its end yet.
    pub(crate) async fn take_over(
        &self,
        id: RecordId,
        record: Record,
        policy: &Policy,
    ) -> Result<Option<Attempt>, StoreError> {
        let parts = &self.parts;
        parts.ready().await?;
        if parts.deferrals.has(&id) {
            return Ok(None);
        }
        let claim = Claim::new(record.fingerprint, parts.store.draw_owner()?)
            .with_policy(policy)
            .with_principal(record.principal)
            .with_operation(record.operation);
        let sent = parts.store.environment().now();
        let ClaimOutcome::Granted { attempt } = parts.claims.send(&id, &claim).await? else {
            return Ok(None);
        };
        let digest = RequestDigest::unknown();
        let decided = parts.store.stopwatch();
        let grant = Grant { number: attempt, since: sent, decided };
        Ok(Some(self.granted(id, claim, digest, grant, policy)))
    }

    /// The attempt of a granted claim, whose lease is renewed from now on.
    fn granted(
        &self,
        id: RecordId,
        claim: Claim,
        digest: RequestDigest,
        grant: Grant,
        policy: &Policy,
    ) -> Attempt {
        let (leases, lease) = (&self.parts.renewer.leases, Lease { id, owner: claim.owner });
        if grant.number > 1 {
            leases.remove_superseded(&lease);
        }
        leases.insert(lease, policy.lease, grant.since);
        let (parts, rule) = (self.parts.clone(), policy.abandoned);
        Attempt::by_lease(Claimed::new(parts, id, claim, digest, grant, rule))
    }

    /// Begins a transaction of the store that belongs to no attempt. Use it for a request without a
    /// key, or pass it to [`Attempt::return_transaction`].
    ///
    /// # Errors
    /// Fails if the store has no transactions, or if it fails.
    pub async fn transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        self.parts.verify_may_begin()?;
        self.parts.store.begin_transaction().await
    }

    /// Returns the store's transactions, if it has any.
    #[must_use]
    pub fn transactions(&self) -> Option<&dyn Transactions> {
        self.parts.store.store().transactions()
    }

    /// Fails if the store has no transactions.
    pub(crate) fn verify_transactions(&self) -> Result<(), StoreError> {
        self.parts.store.transactions().map(drop)
    }

    /// Returns the verdict on a request without claiming its key, or `None` if a claim would be
    /// granted now. Use it to serve replays while no new operation may start.
    ///
    /// # Errors
    /// Fails if the store fails.
    ///
    /// # Cancel safety
    /// Safe: nothing is written, except the end of an earlier attempt that the store does not have
    /// yet.
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
        Ok(parts.open.fingerprint(&id).map(|recorded| {
            if parts.options.fingerprint_keys.matches(recorded, digest) {
                Verdict::IN_FLIGHT
            } else {
                Verdict::Rejected(Rejection::Mismatch { recorded })
            }
        }))
    }

    /// Returns the namespace of the [options](RuntimeOptions::namespace).
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.parts.options.namespace.as_deref()
    }

    /// Verifies that the store works; see [`Store::check`]. Each call asks the store, so this can
    /// be a health check. If no call has succeeded before the first claim, the first claim makes
    /// one.
    ///
    /// # Errors
    /// Fails if the store is misconfigured or cannot be reached. The error's source names the
    /// setting or the privilege.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.parts.check().await
    }

    /// Reads a record without changing it. Returns `None` if the key is absent.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.parts.store.call("look up", |store| store.look_up(id)).await
    }

    /// Returns one page of the operations with this name that can be [resumed](Self::resume): they
    /// were abandoned after they had stored their input, and are neither held nor past their ttl.
    ///
    /// The page begins after the id `after`, and has up to `limit` ids. A page with fewer ids is
    /// not necessarily the last one; see [`ResumablePage::next`].
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn resumable(
        &self,
        operation: &str,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let operation = ShortText::truncated(operation);
        self.parts
            .store
            .call("find resumable", |store| store.resumable(&operation, after, limit))
            .await
    }

    /// Returns the calls for operators: lists of records, and decisions about them.
    #[must_use]
    pub fn administrator(&self) -> Administrator {
        Administrator::new(self.parts.clone())
    }

    /// Waits until no end of an attempt is left to be stored in the background. Call it during an
    /// orderly shutdown, once all attempts have ended.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn drain(&self) {
        self.parts.deferrals.drain().await;
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &*self.parts.options).finish_non_exhaustive()
    }
}
