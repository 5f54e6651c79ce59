//! The transaction of a run.

use std::{
    fmt,
    marker::PhantomData,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::StoreError,
    runtime::{Attempt, HandlerTransaction, Run, Runtime},
    store::Transaction,
};

/// The transaction of a run, in which its effects and its result are committed together; see
/// [`Runtime::run_in_transaction`].
///
/// `C` is the type of the store's connections. The work must not keep this value, for example in a
/// task that it spawns, nor end the transaction with SQL: the result is then not recorded.
pub struct JobTransaction<C> {
    runtime: Runtime,
    operation: Run,
    transaction: Option<Box<dyn Transaction>>,
    slot: Arc<TransactionSlot>,
    connection: PhantomData<fn() -> C>,
}

impl<C: 'static> JobTransaction<C> {
    /// Creates the transaction of an attempt, which has begun if the claim is part of it.
    pub(super) fn new(
        runtime: Runtime,
        attempt: &mut Attempt,
        slot: &Arc<TransactionSlot>,
    ) -> Self {
        let (operation, transaction) = (attempt.operation().clone(), attempt.take_transaction());
        Self { runtime, operation, transaction, slot: slot.clone(), connection: PhantomData }
    }

    /// Returns the connection, inside the transaction, which the first call may begin.
    ///
    /// # Errors
    /// Fails if the transaction cannot be begun, if the store's connections are not of type `C`,
    /// within a [step](Run::step) that is not run in this transaction, and once the work has
    /// ended.
    ///
    /// # Cancel safety
    /// Safe: no transaction stays open, and the next call begins one.
    pub async fn connection(&mut self) -> Result<&mut C, TransactionError> {
        let transaction = self.begun().await?;
        transaction.connection_mut().downcast_mut().ok_or(TransactionError::Connection)
    }

    async fn begun(&mut self) -> Result<&mut Box<dyn Transaction>, TransactionError> {
        if self.operation.is_in_step() {
            return Err(TransactionError::InStep);
        }
        if self.slot.is_closed() {
            return Err(TransactionError::Ended);
        }
        let transaction = match self.transaction.take() {
            Some(transaction) => transaction,
            None => {
                let begun = self.runtime.transaction().await;
                let begun = begun.map_err(|source| TransactionError::Begin { source })?;
                self.operation.transaction_begun();
                begun
            }
        };
        Ok(self.transaction.insert(transaction))
    }
}

impl<C: 'static> HandlerTransaction for JobTransaction<C> {
    type Connection = C;
    type Error = TransactionError;

    async fn transaction(&mut self) -> Result<&mut Box<dyn Transaction>, TransactionError> {
        self.begun().await
    }
}

impl<C> Drop for JobTransaction<C> {
    fn drop(&mut self) {
        self.slot.give_back(self.transaction.take());
    }
}

impl<C> fmt::Debug for JobTransaction<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTransaction").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// The error of [`JobTransaction::connection`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The store could not begin the transaction.
    #[error("the transaction of a run could not be begun")]
    #[non_exhaustive]
    Begin {
        /// The error of the store.
        source: StoreError,
    },
    /// The store's connections are of another type than that of the [`JobTransaction`].
    #[error("the connections of the store are of another type; use that of its database")]
    Connection,
    /// The transaction was used within a step, which is recorded apart from it. Use
    /// [`run_in`](crate::runtime::Step::run_in) for a step whose effects are in the transaction.
    #[error("a transaction was used within a step; run the step in it with `run_in`")]
    InStep,
    /// The work has ended without dropping the transaction, which is rolled back.
    #[error("a transaction was used after the work of its run had ended")]
    Ended,
}

/// Where the transaction goes when the work drops it.
pub(super) struct TransactionSlot(Mutex<SlotState>);

enum SlotState {
    /// The work has the transaction, begun or not.
    WithWork,
    /// The work has dropped the transaction, which has begun or not.
    Returned(Option<Box<dyn Transaction>>),
    /// The work has ended.
    Closed,
}

impl TransactionSlot {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SlotState::WithWork)))
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        matches!(*self.state(), SlotState::Closed)
    }

    fn give_back(&self, transaction: Option<Box<dyn Transaction>>) {
        let mut state = self.state();
        if matches!(*state, SlotState::WithWork) {
            *state = SlotState::Returned(transaction);
        }
    }

    /// Returns the transaction to its attempt, once the work has ended. Returns whether the work
    /// has kept it.
    pub(super) fn close(&self, attempt: &mut Attempt) -> bool {
        match mem::replace(&mut *self.state(), SlotState::Closed) {
            SlotState::Returned(Some(transaction)) => {
                attempt.return_transaction(transaction);
                false
            }
            SlotState::Returned(None) => false,
            SlotState::WithWork | SlotState::Closed => true,
        }
    }
}
