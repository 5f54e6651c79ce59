//! The contract of a store that shares its transactions with the application.

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
    protocol::{Claim, Fence, Note, Rejection},
    record_id::RecordId,
};

/// The transactions of a store, each of which commits the completion of a record together with the
/// application's writes.
///
/// There are two ways to use them. Either [`Store::claim`](crate::Store::claim) commits the claim
/// first, and the attempt is completed in a transaction that [begins](Self::begin) later. Or the
/// claim itself is [part of the transaction](Self::claim): it is not visible until the transaction
/// is committed, and leaves no trace if the transaction is rolled back.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Returns the `TypeId` of the `sqlx::Database` that the connections belong to.
    fn database(&self) -> TypeId;

    /// Returns whether an open transaction prevents every other write to the store, as in a
    /// database with a single writer. An operation that begins inside a handler with an open
    /// transaction then fails at once; otherwise it would wait until both time out. The default is
    /// `false`.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Fails if the store fails. Then no transaction has begun.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no transaction open.
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError>;

    /// Begins a transaction and claims a key in it.
    ///
    /// If another open transaction has claimed the key, this call waits for it for about `wait`;
    /// after that the outcome is [`Rejection::InFlight`](crate::protocol::Rejection::InFlight). A
    /// store with a single writer cannot know which key another transaction has claimed. It reports
    /// the key as in flight if any single transaction stays open for `wait`.
    ///
    /// A handler may commit its transaction itself, and its process may die before the runtime
    /// holds the key. A store that cannot prevent such a commit writes the record with
    /// [`Abandoned::Hold`], whatever the claim says, so that the handler does not run again.
    /// Abandon such a claim by rolling its transaction back.
    ///
    /// # Errors
    /// Fails if the store fails, or if its writer is busy for too long. Then nothing is claimed and
    /// no transaction has begun.
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

/// The outcome of [`Transactions::claim`].
///
/// Exhaustive: a caller must handle both cases.
#[derive(Debug)]
pub enum TransactionClaim {
    /// The caller owns the key once this transaction is committed.
    Granted {
        /// The number of the attempt, as of every [grant](crate::protocol::ClaimOutcome::Granted).
        attempt: u32,
        /// The transaction for the handler.
        transaction: Box<dyn Transaction>,
    },
    /// The claim was not granted, and no transaction is open.
    Rejected(Rejection),
}

/// An open transaction of a store. Dropping it rolls it back.
///
/// # Cancel safety
/// Dropping the future of a call leaves no transaction open: the connection is closed unless it is
/// known to be clean.
///
/// # Errors
/// After an error, only [`roll_back`](Self::roll_back) may be called.
#[async_trait]
pub trait Transaction: Send + Sync {
    /// Returns the connection. Its type is the `Connection` of the
    /// [database](Transactions::database).
    fn connection(&self) -> &(dyn Any + Send + Sync);

    /// Returns the connection mutably, for the application's statements.
    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync);

    /// Returns whether the handler has ended the transaction with SQL, so that what it has written
    /// since may be committed although the transaction is not. The runtime then holds the key. A
    /// store that prevents such writes keeps the default, `false`. A store that cannot also reports
    /// this by an [escaped](StoreError::escaped) error of a call that ends the attempt.
    ///
    /// It may undo all writes: it is called before they are rolled back.
    async fn has_escaped(&mut self) -> bool {
        false
    }

    /// Undoes all writes since [`Transactions::begin`] or [`Transactions::claim`]. A claim that was
    /// made by `Transactions::claim` is kept. The transaction stays open.
    async fn undo(&mut self) -> Result<(), StoreError>;

    /// Adds a note as [`Store::note`](crate::Store::note) does. It takes effect once the
    /// transaction is committed. If the outcome is [`Fence::Fenced`], the transaction must be
    /// rolled back.
    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError>;

    /// Completes the record as [`Store::complete`](crate::Store::complete) does. It takes effect
    /// once the transaction is committed, and must be the last statement before the commit. If the
    /// outcome is [`Fence::Fenced`], the transaction must be rolled back.
    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError>;

    /// Abandons the attempt as [`Store::abandon`](crate::Store::abandon) does. It takes effect once
    /// the transaction is committed, and must be the last statement before the commit.
    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError>;

    /// Commits the transaction.
    ///
    /// # Errors
    /// After an error the transaction may nevertheless be committed, because the acknowledgment may
    /// have been lost. Read the record to find out.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;

    /// Rolls the transaction back, or closes the connection, which has the same effect. Returns
    /// whether the transaction has ended.
    ///
    /// If a handler was dropped in the middle of a statement, that statement may still be running,
    /// and this call waits only briefly for its end. A transaction that has not ended yet is rolled
    /// back later, unless the statement was a `COMMIT` that the handler itself has sent.
    async fn roll_back(self: Box<Self>) -> bool;

    /// [Completes](Self::complete) the record and [commits](Self::commit), in one round trip if the
    /// store can. If the completion is fenced, the transaction is rolled back.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit): after an error the transaction may nevertheless be
    /// committed.
    async fn complete_and_commit(
        mut self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let fence = self.complete(lease, recording).await;
        commit_if_passed(self, fence).await
    }
}

/// Commits the transaction if its last statement has passed the fence, and rolls it back otherwise.
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
