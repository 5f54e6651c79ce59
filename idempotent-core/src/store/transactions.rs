//! The contract of a store in whose database the application writes too.

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

/// Transactions in which a record is completed together with what the application writes: either all of it is committed or none.
///
/// There are two ways. A claim that was committed before, by [`Store::claim`](crate::Store::claim), is completed in a transaction
/// that was [begun](Self::begin) after it. Or the claim itself is [part of the transaction](Self::claim), which nobody else sees
/// until it is committed, and which leaves no trace if it is not.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// The `sqlx::Database` that the connections are of.
    fn database(&self) -> TypeId;

    /// Begins a transaction.
    ///
    /// # Errors
    /// When none could be begun; nothing has happened.
    ///
    /// # Cancel safety
    /// Nothing stays open.
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError>;

    /// Begins a transaction and claims a key in it. Where another one is at work on the key, this one waits for it about as long as
    /// `patience`; then the key is in flight. A store with one writer cannot read which key a
    /// transaction is about: where one has been open for as long as `patience`, the key is reported
    /// as in flight.
    ///
    /// # Errors
    /// When the store fails, or its writer is busy for too long. Nothing has happened.
    ///
    /// # Cancel safety
    /// Nothing stays open.
    async fn claim(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<TransactionClaim, StoreError>;
}

/// What a claim within a transaction came to.
#[derive(Debug)]
pub enum TransactionClaim {
    /// The key is the caller's, if this transaction is committed.
    Granted {
        /// 1 for the first attempt, as in [`ClaimOutcome::Granted`].
        attempt: u32,
        /// Where the work is done.
        transaction: Box<dyn Transaction>,
    },
    /// Nothing was begun: any outcome but [`ClaimOutcome::Granted`].
    Rejected(ClaimOutcome),
}

/// An open transaction. One that is dropped is rolled back.
///
/// # Cancel safety
/// A call that is dropped leaves nothing open behind: the connection is closed, unless it is known to be clean.
///
/// # Errors
/// After an error only [`roll_back`](Self::roll_back) makes sense.
#[async_trait]
pub trait Transaction: Send + Sync {
    /// The connection, of the type `sqlx::Database::Connection`.
    fn connection(&self) -> &(dyn Any + Send + Sync);

    /// The same, to write through.
    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync);

    /// Undoes what was written since [`Transactions::begin`] or [`Transactions::claim`]; the claim of the latter stays.
    async fn undo(&mut self) -> Result<(), StoreError>;

    /// Keeps the answer, as [`Store::complete`](crate::Store::complete) does, if the rest is committed. It is the last statement: what a
    /// transaction that is fenced has written must be rolled back.
    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Ends the claim without an outcome, as [`Store::abandon`](crate::Store::abandon) does, if the rest is committed.
    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Commits.
    ///
    /// # Errors
    /// The transaction may have been committed all the same: its acknowledgement may be what was lost. Read the record to know.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;

    /// Rolls back, or closes the connection, which does the same. A handler that was dropped in the middle of a statement has left that
    /// statement running; this does not wait for its end for longer than a moment.
    ///
    /// Returns whether the transaction has ended. If it has not, it is rolled back later, unless that statement was a `COMMIT` of the
    /// handler's.
    async fn roll_back(self: Box<Self>) -> bool;

    /// [Completes](Self::complete) and [commits](Self::commit), in one round trip where the store can. What is fenced is rolled back.
    ///
    /// # Errors
    /// As those of [`commit`](Self::commit): the transaction may have been committed all the same.
    async fn complete_and_commit(mut self: Box<Self>, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let passed = self.complete(lease, recording).await;
        commit_what(self, passed).await
    }
}

/// Commits what has passed its fence, and rolls back everything else.
pub(crate) async fn commit_what<T: Transaction + ?Sized>(
    transaction: Box<T>,
    passed: Result<Fence, StoreError>,
) -> Result<Fence, StoreError> {
    match passed {
        Ok(Fence::Passed) => transaction.commit().await.map(|()| Fence::Passed),
        Ok(Fence::Fenced) | Err(_) => {
            transaction.roll_back().await;
            passed
        }
    }
}

impl fmt::Debug for dyn Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transaction")
    }
}
