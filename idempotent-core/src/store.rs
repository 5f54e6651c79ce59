//! The contract of a store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
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
#[cfg(test)]
#[cfg(all(feature = "memory", feature = "sqlite", feature = "postgres", feature = "redis", feature = "conformance"))]
mod stress;
mod transactions;

pub use connect::{ConnectError, connect};
pub(crate) use transactions::commit_what;
pub use transactions::{Transaction, TransactionClaim, Transactions};

/// Where records live, and where each step of the state machine is atomic.
///
/// The steps are those of [`transition`](crate::transition), with its diagram. An implementation MUST give:
///
/// 1. **One winner.** Of any number of concurrent claims for a key, from any number of processes, at most one is granted
///    until it is completed, released or lapses.
/// 2. **The fence.** `complete`, `release`, `renew` and `abandon` change nothing unless the record carries the owner token
///    they show, compared in the same atomic step as the change.
/// 3. **Its own clock.** Every lease and ttl is measured by one clock that all users of the store share, never by the caller's. If that
///    clock is set back, no key stays in flight for longer than its lease from the next claim on; responses may last longer.
/// 4. **Durability.** What a call has acknowledged survives the death of the calling process, and for a store that says so, of the
///    machine.
/// 5. **Claims that can be sent again.** A claim whose owner token already holds the key is granted for a whole lease, not
///    refused: its acknowledgement may have been lost. While an earlier sending of the same claim is still being committed, the
///    outcome may be that the key is in flight, with no time left of its lease.
/// 6. **Nothing alive is removed.** `purge` and any bound on size spare claims within their lease, answers within their ttl, and
///    held records always. A store that is full refuses new claims.
///
/// It need not give order between keys, and need not notice a lapse before someone asks.
///
/// # Cancel safety
/// A call that is dropped may or may not have taken effect; it must not leave a lock or an open transaction behind. The runtime
/// never drops a call because a client went away.
///
/// # Errors
/// [`StoreError`] means that the outcome is unknown: the step may have happened. All that is known is told as an outcome.
///
/// # Your own store
/// Run the conformance suite on it (feature `conformance`):
/// ```text
/// #[tokio::test]
/// async fn my_store_conforms() {
///     idempotent_core::conformance::check(|| async { MyStore::connect().await }).await;
/// }
/// ```
/// The module `conformance` has the same lines compiled, and shows how to let time pass without sleeping.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates or upgrades what the store needs in its database. Safe to call at every start and from several processes at
    /// once; a store without a schema has nothing to do.
    async fn migrate(&self) -> Result<(), StoreError>;

    /// Verifies that the store can do its work: the server's settings, the version of the schema, and the caller's privileges
    /// for every statement that a claim and its end need. It changes nothing. The runtime calls it once, before its first claim,
    /// so that a missing privilege is found before any handler has run.
    ///
    /// # Errors
    /// A permanent error whose source names the setting or the privilege that is missing; a transient one where the server could
    /// not be reached.
    async fn check(&self) -> Result<(), StoreError>;

    /// The namespace that the store's URL names (`?namespace=payments`), if it names one. It is part of each record id, so that
    /// applications that share a database do not share records.
    fn namespace(&self) -> Option<&str>;

    /// Asks for a key. See [`transition::claim`](crate::transition::claim).
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError>;

    /// Renews many leases in one call, each for its own time. The result has one entry for each lease, in order. A `renew` that
    /// fails says nothing about who owns what. A record that cannot be reached now, because another session has it locked, must
    /// not delay the others: its entry is [`RenewOutcome::Unknown`].
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError>;

    /// Keeps the answer and ends the claim. It passes again for the owner whose answer is already there.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Gives the key back as if it had never been claimed.
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError>;

    /// Ends the claim without an outcome: held, or free to be taken over at once.
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Reads a record without changing it; `None` when it is absent or expired.
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError>;

    /// Ends a held record as an operator says, if it is still the one that the operator saw. After the clock was set back, a key whose
    /// owner is gone is held one lease after the first try.
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError>;

    /// Removes up to `limit` expired records and says how many.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError>;

    /// The transactions that an application's writes can share with a record; `None` where they cannot.
    fn transactions(&self) -> Option<&dyn Transactions>;
}

/// A store behind a pointer is a store.
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
