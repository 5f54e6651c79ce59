//! The transaction of a run.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    runtime::{
        HandlerTransaction, Run, Runtime, TransactionError, TransactionHandle, TransactionSlot,
    },
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
    handle: TransactionHandle,
    connection: PhantomData<fn() -> C>,
}

impl<C: 'static> JobTransaction<C> {
    pub(super) fn new(runtime: Runtime, operation: Run, slot: Arc<TransactionSlot>) -> Self {
        let (handle, connection) = (TransactionHandle::new(slot), PhantomData);
        Self { runtime, operation, handle, connection }
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
        self.handle.connection(self.runtime.transaction(), Some(&self.operation)).await
    }
}

impl<C: 'static> HandlerTransaction for JobTransaction<C> {
    type Connection = C;
    type Error = TransactionError;

    async fn transaction(&mut self) -> Result<&mut Box<dyn Transaction>, TransactionError> {
        self.handle.transaction(self.runtime.transaction(), Some(&self.operation)).await
    }
}

impl<C> fmt::Debug for JobTransaction<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTransaction").field("operation", &self.operation).finish_non_exhaustive()
    }
}
