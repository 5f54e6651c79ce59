//! The contract of a store that shares transactions with the application.

use std::{
    any::{Any, TypeId},
    fmt,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record_id::RecordId,
};

/// Transactions that commit the completion of a record together with the application's writes.
///
/// There are two ways. A claim that [`Store::claim`](crate::Store::claim) has committed is
/// completed in a transaction that [begins](Self::begin) after it. Or the claim itself is [part of
/// the transaction](Self::claim): it is not visible until it is committed, and leaves no trace if
/// it is not.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Returns the type of the `sqlx::Database` of the connections.
    fn database(&self) -> TypeId;

    /// Begins a transaction.
    ///
    /// # Errors
    /// Fails if the store fails. Nothing has happened then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no transaction open.
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError>;

    /// Begins a transaction and claims a key in it.
    ///
    /// If another transaction has claimed the key, this call waits for it for about `wait`; then
    /// the key is in flight. A store with one writer cannot read which key a transaction has
    /// claimed, so it reports the key in flight if any transaction stays open for `wait`.
    ///
    /// # Errors
    /// Fails if the store fails, or its writer is busy for too long. Nothing has happened then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no transaction open.
    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError>;
}

/// The outcome of a claim in a transaction. Exhaustive: a caller must handle both cases.
#[derive(Debug)]
pub enum TransactionClaim {
    /// The caller owns the key once this transaction is committed.
    Granted {
        /// 1 for the first attempt, as in [`ClaimOutcome::Granted`].
        attempt: u32,
        /// The transaction for the handler.
        transaction: Box<dyn Transaction>,
    },
    /// No transaction is open. Any outcome except [`ClaimOutcome::Granted`].
    Rejected(ClaimOutcome),
}

/// An open transaction. Dropping it rolls it back.
///
/// # Cancel safety
/// Dropping the future of a call leaves no transaction open: the connection is closed unless it is
/// known to be clean.
///
/// # Errors
/// After an error, only [`roll_back`](Self::roll_back) may be called.
#[async_trait]
pub trait Transaction: Send + Sync {
    /// Returns the connection, of the type `sqlx::Database::Connection`.
    fn connection(&self) -> &(dyn Any + Send + Sync);

    /// Returns the connection mutably.
    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync);

    /// Undoes all writes since [`Transactions::begin`] or [`Transactions::claim`]. The claim of the
    /// latter stays.
    async fn undo(&mut self) -> Result<(), StoreError>;

    /// Completes the record as [`Store::complete`](crate::Store::complete) does, once the
    /// transaction is committed. This is the last statement: a transaction that is fenced must be
    /// rolled back.
    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Abandons the claim as [`Store::abandon`](crate::Store::abandon) does, once the transaction
    /// is committed.
    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Commits the transaction.
    ///
    /// # Errors
    /// After an error the transaction may be committed nevertheless, since the acknowledgment may
    /// be lost. Read the record to learn the outcome.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;

    /// Rolls the transaction back, or closes the connection, which has the same effect. Returns
    /// whether the transaction has ended.
    ///
    /// A handler that was dropped in the middle of a statement leaves that statement running, and
    /// this waits only briefly for its end. A transaction that has not ended is rolled back later,
    /// unless the statement was the handler's own `COMMIT`.
    async fn roll_back(self: Box<Self>) -> bool;

    /// [Completes](Self::complete) and [commits](Self::commit), in one round trip if the store can.
    /// A transaction that is fenced is rolled back.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit): the transaction may be committed nevertheless.
    async fn complete_and_commit(
        mut self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let fence = self.complete(lease, recording).await;
        commit_if_passed(self, fence).await
    }
}

/// Commits the transaction if its end has passed the fence, and rolls it back otherwise.
pub(crate) async fn commit_if_passed<T: Transaction + ?Sized>(
    transaction: Box<T>,
    fence: Result<Fence, StoreError>,
) -> Result<Fence, StoreError> {
    match fence {
        Ok(Fence::Passed) => transaction.commit().await.map(|()| Fence::Passed),
        Ok(Fence::Fenced) | Err(_) => {
            transaction.roll_back().await;
            fence
        }
    }
}

impl fmt::Debug for dyn Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transaction")
    }
}
