//! The contract of a store, and the supplied stores.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    record_id::RecordId,
    short_text::ShortText,
};

mod administration;
mod batch_sizes;
mod error_class;
#[cfg(feature = "memory")]
pub mod memory;
mod nearest;
mod runtime_thread;
mod transactions;
pub mod url;

pub use crate::error::NoRuntime;
pub use administration::Administration;
pub use batch_sizes::BatchSizes;
pub use error_class::{Cause, ConnectionState, Effect, ErrorClass};
pub use runtime_thread::RuntimeThread;
pub(crate) use transactions::commit_if_passed;
pub use transactions::{Transaction, TransactionClaim, Transactions};

/// The contract of a store: it keeps records, and makes each step of the state machine atomic.
///
/// The steps are those of [`transition`](crate::transition), which shows the state diagram. A store
/// knows neither HTTP nor the contents of a recording. Applications pass a store to the runtime and
/// rarely call it themselves, except for [`migrate`](Self::migrate).
///
/// # Guarantees
/// An implementation must give these guarantees:
///
/// 1. **One owner.** Of any number of concurrent claims of a key, from any number of processes, at
///    most one is granted until it is completed or released, or its lease expires.
/// 2. **The fence.** [`complete`](Self::complete), [`release`](Self::release),
///    [`renew`](Self::renew) and [`abandon`](Self::abandon) change nothing unless the record has
///    the caller's owner token. The token is compared in the same atomic step as the change.
/// 3. **One clock.** Every lease and ttl is measured by a single clock that all users of the store
///    share, never by the caller's clock. After that clock was set back, a key whose owner has died
///    stays in flight for at most the length of its lease, counted from the next claim of the key;
///    recordings may last longer.
/// 4. **Durability.** A change survives the death of the calling process once the call has
///    returned. If the store promises it, the change also survives the death of the machine.
/// 5. **Repeatable claims.** A claim whose owner token already owns the key is granted again, for a
///    whole lease, because the first acknowledgment may have been lost. While an earlier sending of
///    the same claim is still being committed, the outcome may instead be
///    [`Rejection::InFlight`](crate::protocol::Rejection::InFlight) with a `lease_left` of zero.
/// 6. **No removal of live records.** [`purge`](Self::purge) and any limit on the size of the store
///    never remove claims within their lease, recordings within their ttl, or held records. A full
///    store refuses new claims.
///
/// An implementation need not order operations on different keys, and need not notice that a lease
/// has expired before the next claim of the key.
///
/// # Errors
/// A [`StoreError`] means that the outcome is unknown: the step may have been taken. Every known
/// outcome is a return value. This applies to all methods.
///
/// # Cancel safety
/// A call whose future is dropped may or may not take effect, and must leave neither a lock nor an
/// open transaction behind. This applies to all methods. The runtime never drops a call because a
/// client has disconnected.
///
/// # Testing your own store
/// Enable the feature `conformance` and run the suite. Each case gets its own store, or one of
/// several that share their records:
///
#[cfg_attr(all(feature = "conformance", feature = "memory"), doc = "```rust,no_run")]
#[cfg_attr(not(all(feature = "conformance", feature = "memory")), doc = "```rust,ignore")]
/// # use idempotent_core::store::memory::MemoryStore as MyStore;
/// use idempotent_core::conformance;
///
/// #[tokio::main]
/// async fn main() {
///     conformance::check(|| async { MyStore::new() }).await;
/// }
/// ```
///
/// The call is the same in a `#[tokio::test]`. The documentation of the module `conformance` shows
/// how the cases can let time pass without sleeping.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates or upgrades the store's schema. It is safe to call this at every start, and from
    /// several processes at the same time. The default does nothing, for a store without a schema.
    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Verifies that the store works: the server's settings, the version of the schema, and the
    /// caller's privileges for every statement that a claim and its end need. It changes nothing.
    ///
    /// The runtime calls this once before its first claim, so that a missing privilege is found
    /// before any handler has run. The default verifies nothing, for a store that depends on
    /// neither settings nor privileges.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names the missing setting or privilege, or with a
    /// transient error if the server cannot be reached.
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Claims a key. [`transition::claim`](crate::transition::claim) defines the outcomes.
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError>;

    /// Renews several leases in one call, each by its own length. The result has one entry for each
    /// lease, in the same order. [`transition::renew`](crate::transition::renew) defines the
    /// outcomes.
    ///
    /// A record that cannot be reached in time, because another session has locked it, must not
    /// delay the renewal of the others: its entry is [`RenewOutcome::Unknown`].
    ///
    /// # Errors
    /// After an error it is unknown for every lease whether it was renewed.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError>;

    /// Adds a note of the handler to a key in flight: a reference, the progress, the result of a
    /// step, the input, or the point of no return. A note that is sent twice adds its step twice.
    /// [`transition::note`](crate::transition::note) defines the outcomes.
    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError>;

    /// Completes the operation with an encoded recording. If the caller has completed it before,
    /// the call passes again, and the first recording stays.
    /// [`transition::complete`](crate::transition::complete) defines the outcomes.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Releases a key in flight, as if it had never been claimed: the record is removed.
    /// [`transition::release`](crate::transition::release) defines the outcomes.
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError>;

    /// Ends an attempt in flight without an outcome: the key is held, or another attempt may take
    /// it over at once. [`transition::abandon`](crate::transition::abandon) defines the outcomes.
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Reads a record without changing it. Returns `None` if the record is absent or expired.
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError>;

    /// Resolves a held key as an operator decides, if the attempt that the operator saw still owns
    /// it. [`transition::resolve`](crate::transition::resolve) defines the outcomes. A store with a
    /// log of operators' decisions adds the entry [of the record](AuditEntry::of_record) in the
    /// same atomic step; see [`administration`](Self::administration).
    ///
    /// After the store's clock was set back, a key whose owner has died may still count as in
    /// flight. Then the outcome is a conflict, and the key counts as held one lease after that
    /// call.
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError>;

    /// Removes up to `limit` expired records, and returns how many it removed. The runtime repeats
    /// the call as long as `limit` records are removed.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError>;

    /// Returns one page of the operations with this name that were abandoned after they had noted
    /// their input: in flight with an expired lease, not held, and within their ttl. A background
    /// task may resume them.
    ///
    /// A page begins after the id `after`, is in the order of the ids, and has at most `limit` of
    /// them. A page may have fewer ids, or none, although it is not the last one: the next one
    /// begins after [`ResumablePage::next`]. A caller that asks for page after page thus gets every
    /// such operation, however many others there are.
    ///
    /// # Errors
    /// The default fails with an [unsupported](StoreError::is_unsupported) error, for a store that
    /// cannot search its records: their operations are finished by their clients' retries only.
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let _ = (operation, after, limit);
        Err(StoreError::unsupported("store", "find resumable"))
    }

    /// Returns the transactions in which an application can write together with a record, or `None`
    /// if the store does not support any, which is the default.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// Returns the lists of records and the log of operators' decisions, or `None` if the store has
    /// neither, which is the default.
    fn administration(&self) -> Option<&dyn Administration> {
        None
    }

    /// Returns how many batches of each size were executed so far by this store and its clones in
    /// this process, or `None` if the store executes each step alone, which is the default.
    fn batches(&self) -> Option<BatchSizes> {
        None
    }
}

/// A shared store is a store itself.
#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn migrate(&self) -> Result<(), StoreError> {
        (**self).migrate().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        (**self).check().await
    }
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        (**self).claim(id, claim).await
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        (**self).renew(leases).await
    }
    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        (**self).note(lease, note).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        (**self).complete(lease, recording).await
    }
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        (**self).release(lease).await
    }
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        (**self).abandon(lease, policy).await
    }
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        (**self).look_up(id).await
    }
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        (**self).resolve(id, seen, resolution, audit).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        (**self).purge(limit).await
    }
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        (**self).resumable(operation, after, limit).await
    }
    fn transactions(&self) -> Option<&dyn Transactions> {
        (**self).transactions()
    }
    fn administration(&self) -> Option<&dyn Administration> {
        (**self).administration()
    }
    fn batches(&self) -> Option<BatchSizes> {
        (**self).batches()
    }
}
