//! The transaction of an operation, while its handler or its job uses it.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{attempt::Attempt, operation::Run};
use crate::{error::StoreError, store::Transaction};

/// The place of an operation's transaction while neither the [attempt](Attempt) nor the
/// [handle](TransactionHandle) has it. An integration creates it for each operation whose handler
/// writes in a transaction.
#[derive(Default)]
pub struct TransactionSlot(Mutex<SlotState>);

#[derive(Default)]
enum SlotState {
    /// The operation is not claimed yet.
    #[default]
    NotClaimed,
    /// The operation runs, and no transaction has begun.
    NotBegun,
    /// The operation runs, and its transaction is in the slot.
    InSlot(Box<dyn Transaction>),
    /// The operation runs, and the handle has its transaction.
    WithHandle,
    /// The operation has ended.
    Ended,
}

/// The transaction of an operation that has ended.
#[derive(Debug)]
pub enum ReturnedTransaction {
    /// The operation never used its handle, so no transaction was begun.
    Unused,
    /// The transaction.
    Returned(Box<dyn Transaction>),
    /// The handle still has the transaction, for example in a task. It is rolled back once the
    /// handle is used or dropped.
    Missing,
}

impl TransactionSlot {
    /// Opens the slot for an operation that begins now, with its transaction if one has begun.
    pub fn open(&self, transaction: Option<Box<dyn Transaction>>) {
        *self.state() = transaction.map_or(SlotState::NotBegun, SlotState::InSlot);
    }

    /// Opens the slot for the handler of an attempt, whose transaction has begun if its claim is
    /// part of it.
    pub fn open_for(&self, attempt: &mut Attempt) {
        self.open(attempt.take_transaction());
    }

    /// Closes the slot of an operation that has ended.
    pub fn close(&self) -> ReturnedTransaction {
        match mem::replace(&mut *self.state(), SlotState::Ended) {
            SlotState::InSlot(transaction) => ReturnedTransaction::Returned(transaction),
            SlotState::WithHandle => ReturnedTransaction::Missing,
            SlotState::NotClaimed | SlotState::NotBegun | SlotState::Ended => {
                ReturnedTransaction::Unused
            }
        }
    }

    /// Closes the slot of an attempt whose handler has ended, and gives it its transaction back. If
    /// the handle has kept the transaction, the attempt cannot [complete](Attempt::complete).
    pub fn close_for(&self, attempt: &mut Attempt) {
        match self.close() {
            ReturnedTransaction::Unused => {}
            ReturnedTransaction::Returned(transaction) => attempt.return_transaction(transaction),
            ReturnedTransaction::Missing => attempt.lose_transaction(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        matches!(*self.state(), SlotState::Ended)
    }

    /// Takes the transaction, which begins if it has not begun yet.
    async fn take(
        &self,
        begin: impl Future<Output = Result<Box<dyn Transaction>, StoreError>>,
        run: Option<&Run>,
    ) -> Result<Box<dyn Transaction>, TransactionError> {
        if let Some(transaction) = self.take_begun()? {
            return Ok(transaction);
        }
        let transaction = begin.await.map_err(|source| TransactionError::Begin { source })?;
        if let Some(run) = run {
            run.transaction_begun();
        }
        // A handle in a task may begin while the operation ends; its transaction is rolled back.
        self.note_begun().map(|()| transaction)
    }

    /// Takes the transaction; `None` if it may begin.
    fn take_begun(&self) -> Result<Option<Box<dyn Transaction>>, TransactionError> {
        let mut state = self.state();
        match mem::replace(&mut *state, SlotState::WithHandle) {
            SlotState::InSlot(transaction) => Ok(Some(transaction)),
            SlotState::NotBegun => {
                *state = SlotState::NotBegun;
                Ok(None)
            }
            SlotState::NotClaimed => {
                *state = SlotState::NotClaimed;
                Err(TransactionError::NotClaimed)
            }
            SlotState::WithHandle => Err(TransactionError::Ended),
            SlotState::Ended => {
                *state = SlotState::Ended;
                Err(TransactionError::Ended)
            }
        }
    }

    /// Notes that a transaction has begun, unless the operation has ended meanwhile.
    fn note_begun(&self) -> Result<(), TransactionError> {
        let mut state = self.state();
        if !matches!(*state, SlotState::NotBegun) {
            return Err(TransactionError::Ended);
        }
        *state = SlotState::WithHandle;
        Ok(())
    }

    /// Takes the transaction back. If that is too late, it is dropped and thereby rolled back.
    fn give_back(&self, transaction: Box<dyn Transaction>) {
        let mut state = self.state();
        if matches!(*state, SlotState::WithHandle) {
            *state = SlotState::InSlot(transaction);
        }
    }
}

/// What gives a handler the transaction of its operation. Dropping it returns the transaction to
/// the [slot](TransactionSlot). An integration wraps it.
pub struct TransactionHandle {
    slot: Arc<TransactionSlot>,
    transaction: Option<Box<dyn Transaction>>,
}

impl TransactionHandle {
    /// Creates the handle of a slot, which has one.
    #[must_use]
    pub fn new(slot: Arc<TransactionSlot>) -> Self {
        Self { slot, transaction: None }
    }

    /// Returns the transaction. If none has begun, `begin` is awaited, which is
    /// [`Runtime::transaction`](super::Runtime::transaction). `run` is the operation; a request
    /// without a key has none.
    ///
    /// # Errors
    /// Fails if the transaction cannot be begun, within a [step](Run::step) that is not run in this
    /// transaction, before the claim, and once the operation has ended.
    ///
    /// # Cancel safety
    /// Safe: no transaction stays open, and the next call begins one.
    pub async fn transaction(
        &mut self,
        begin: impl Future<Output = Result<Box<dyn Transaction>, StoreError>>,
        run: Option<&Run>,
    ) -> Result<&mut Box<dyn Transaction>, TransactionError> {
        if run.is_some_and(Run::is_in_step) {
            return Err(TransactionError::InStep);
        }
        let transaction = match self.transaction.take() {
            // Dropping the transaction rolls it back.
            Some(_) if self.slot.has_ended() => return Err(TransactionError::Ended),
            Some(transaction) => transaction,
            None => self.slot.take(begin, run).await?,
        };
        Ok(self.transaction.insert(transaction))
    }

    /// Returns the connection, inside the [transaction](Self::transaction).
    ///
    /// # Errors
    /// As for [`transaction`](Self::transaction), and if the store's connections are not of type
    /// `C`.
    ///
    /// # Cancel safety
    /// As for [`transaction`](Self::transaction).
    pub async fn connection<C: 'static>(
        &mut self,
        begin: impl Future<Output = Result<Box<dyn Transaction>, StoreError>>,
        run: Option<&Run>,
    ) -> Result<&mut C, TransactionError> {
        let transaction = self.transaction(begin, run).await?;
        transaction.connection_mut().downcast_mut().ok_or(TransactionError::Connection)
    }
}

impl Drop for TransactionHandle {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.slot.give_back(transaction);
        }
    }
}

/// The error of a use of an operation's transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The store could not begin the transaction.
    #[error("the transaction of an operation could not be begun")]
    #[non_exhaustive]
    Begin {
        /// The error of the store.
        source: StoreError,
    },
    /// The store's connections are of another type than the one that was asked for.
    #[error("the connections of the store are of another type; use that of its database")]
    Connection,
    /// The transaction was used within a step, which is recorded apart from it. Use
    /// [`run_in`](super::Step::run_in) for a step whose effects are in the transaction.
    #[error(
        "a transaction was used within a step, which is recorded apart from it; run the step in it \
         with `run_in`"
    )]
    InStep,
    /// The transaction was used in an extractor. Its operation is claimed after all extractors.
    #[error("a transaction was used in an extractor; use it in the handler")]
    NotClaimed,
    /// The transaction was used after its operation had ended. It is rolled back.
    #[error("a transaction was used after its operation had ended")]
    Ended,
}

impl std::fmt::Debug for TransactionSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransactionSlot")
    }
}

impl std::fmt::Debug for TransactionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransactionHandle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_begins_only_while_its_operation_runs() {
        let slot = Arc::<TransactionSlot>::default();
        let mut handle = TransactionHandle::new(slot.clone());
        let mut begin = async || {
            let busy = async { Err(StoreError::transient("test", "begin", "busy")) };
            handle.transaction(busy, None).await.err()
        };
        assert!(matches!(begin().await, Some(TransactionError::NotClaimed)));
        slot.open(None);
        for _ in 0..2 {
            assert!(matches!(begin().await, Some(TransactionError::Begin { .. })));
        }
        assert!(matches!(slot.close(), ReturnedTransaction::Unused));
        assert!(matches!(begin().await, Some(TransactionError::Ended)));
    }
}
