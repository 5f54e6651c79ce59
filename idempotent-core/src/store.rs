//! The contract of a store, and the stores.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot,
    },
    record_id::RecordId,
};

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

mod connect;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod namespace;
mod transactions;

pub use connect::{ConnectError, connect};
pub(crate) use transactions::commit_if_passed;
pub use transactions::{Transaction, TransactionClaim, Transactions};

/// Keeps records, and makes each step of the state machine atomic.
///
/// The steps are those of [`transition`](crate::transition), which draws the state diagram.
///
/// # Guarantees
/// An implementation must give these guarantees:
///
/// 1. **One owner.** Of any number of concurrent claims of a key, from any number of processes, at
///    most one is granted until it is completed or released, or its lease expires.
/// 2. **The fence.** [`complete`](Self::complete), [`release`](Self::release),
///    [`renew`](Self::renew) and [`abandon`](Self::abandon) change nothing unless the record has
///    the caller's owner token, compared in the same atomic step as the change.
/// 3. **One clock.** Every lease and ttl is measured by one clock that all users of the store
///    share, never by the caller's clock. If that clock is set back, no key stays in flight for
///    longer than its lease from the next claim on; recordings may last longer.
/// 4. **Durability.** A change survives the death of the calling process once the call has
///    returned,
///    and also that of the machine if the store promises it.
/// 5. **Repeatable claims.** A claim whose owner token already owns the key is granted again, for a
///    whole lease: the first acknowledgment may be lost. While an earlier sending of the same claim
///    is still being committed, the outcome may be [`ClaimOutcome::InFlight`] with a `lease_left`
///    of zero.
/// 6. **No removal of live records.** [`purge`](Self::purge) and any limit of the store's size
///    spare
///    claims within their lease, recordings within their ttl, and held records always. A full store
///    refuses new claims.
///
/// It need not order operations on different keys, and need not notice an expired lease before a
/// claim does.
///
/// # Errors
/// A [`StoreError`] means that the outcome is unknown: the step may have been taken. Every known
/// outcome is a return value.
///
/// # Cancel safety
/// A call whose future is dropped may or may not take effect, and must leave neither a lock nor an
/// open transaction behind. The runtime never drops a call because a client has disconnected.
///
/// # Testing your own store
/// Enable the feature `conformance` and run the suite. Every case runs on a store of its own, or on
/// one that they share:
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
/// The call is the same in a `#[tokio::test]`. The module `conformance` shows how to let time pass
/// without sleeping.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates or upgrades the store's schema. Safe to call at every start, and from several
    /// processes at the same time. A store without a schema does nothing.
    async fn migrate(&self) -> Result<(), StoreError>;

    /// Verifies that the store works: the server's settings, the version of the schema, and the
    /// caller's privileges for every statement that a claim and its end need. Changes nothing.
    ///
    /// The runtime calls it once, before its first claim, so that a missing privilege is found
    /// before any handler has run.
    ///
    /// # Errors
    /// A permanent error whose source names the missing setting or privilege, or a transient error
    /// if the server cannot be reached.
    async fn check(&self) -> Result<(), StoreError>;

    /// Returns the namespace in the store's URL (`?namespace=payments`), if there is one. It is
    /// part of each record id, so that applications that share a database do not share records.
    fn namespace(&self) -> Option<&str>;

    /// Claims a key. See [`transition::claim`](crate::transition::claim).
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError>;

    /// Renews several leases in one call, each by its own length. The result has one entry for each
    /// lease, in the same order.
    ///
    /// A record that cannot be reached in time, because another session has locked it, must not
    /// delay the others: its entry is [`RenewOutcome::Unknown`].
    ///
    /// # Errors
    /// An error leaves the ownership of every lease unknown.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError>;

    /// Completes the operation with an encoded recording. Passes again for the owner of the
    /// recording that is stored already, and keeps that one.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Releases the key, as if it had never been claimed.
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError>;

    /// Ends the attempt without an outcome: the key is held, or may be taken over at once.
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Reads a record without changing it; `None` if it is absent or expired.
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError>;

    /// Resolves a held key as an operator decides, if the attempt that the operator saw still owns
    /// it. After the clock was set back, a key whose owner is gone counts as held one lease after
    /// the first call.
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError>;

    /// Removes up to `limit` expired records, and returns how many it removed.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError>;

    /// Returns the transactions that an application's writes can share with a record; `None` if the
    /// store has none.
    fn transactions(&self) -> Option<&dyn Transactions>;
}

/// A shared store is a store.
#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn migrate(&self) -> Result<(), StoreError> {
        (**self).migrate().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        (**self).check().await
    }
    fn namespace(&self) -> Option<&str> {
        (**self).namespace()
    }
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        (**self).claim(id, claim).await
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        (**self).renew(leases).await
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
    ) -> Result<ResolveOutcome, StoreError> {
        (**self).resolve(id, seen, resolution).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        (**self).purge(limit).await
    }
    fn transactions(&self) -> Option<&dyn Transactions> {
        (**self).transactions()
    }
}
