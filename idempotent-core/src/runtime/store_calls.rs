//! Calls to the store with a time limit.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use super::{
    environment::Environment,
    process::Process,
    timing::{with_retry, with_timeout},
};
use crate::{
    error::StoreError,
    lease::OwnerToken,
    store::{Store, Transaction, Transactions},
};

/// The store of a runtime. Every call has a time limit, and is refused in a forked process.
#[derive(Clone)]
pub(super) struct StoreCalls {
    store: Arc<dyn Store>,
    timeout: Duration,
    /// The process in which the runtime was created.
    process: Process,
    environment: Environment,
}

impl StoreCalls {
    pub(super) fn new(
        store: Arc<dyn Store>,
        timeout: Duration,
        process: Process,
        environment: Environment,
    ) -> Self {
        Self { store, timeout, process, environment }
    }

    /// The store itself, whose calls have no time limit.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Whether both are calls to the same store.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.store), Arc::as_ptr(&other.store))
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn environment(&self) -> Environment {
        self.environment
    }

    pub(super) fn process(&self) -> Process {
        self.process
    }

    /// Draws an owner token, and verifies the process for a call that follows at once.
    pub(super) fn draw_owner(&self) -> Result<OwnerToken, StoreError> {
        self.environment.draw_owner(self.process.verify()?)
    }

    /// Calls the store. If the call exceeds the time limit, its outcome is unknown.
    pub(super) fn call<'a, T, C>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> C,
    ) -> impl Future<Output = Result<T, StoreError>>
    where
        C: Future<Output = Result<T, StoreError>> + Unpin,
    {
        self.limit(call(&*self.store))
    }

    /// Calls the store, as [`call`](Self::call). If `verified`, the caller has just verified the
    /// process, which takes a system call.
    pub(super) fn call_verified<'a, T, C>(
        &'a self,
        verified: bool,
        call: impl FnOnce(&'a dyn Store) -> C,
    ) -> impl Future<Output = Result<T, StoreError>>
    where
        C: Future<Output = Result<T, StoreError>> + Unpin,
    {
        self.limit_verified(verified, call(&*self.store))
    }

    /// Gives a call the time limit of the store. In a forked process the call is not made: both
    /// processes share the connections, so each could read the responses to the other.
    pub(super) fn limit<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Unpin,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.limit_verified(false, call)
    }

    fn limit_verified<T>(
        &self,
        mut verified: bool,
        call: impl Future<Output = Result<T, StoreError>> + Unpin,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let process = self.process;
        let mut call = with_timeout(self.timeout, call);
        // Not an `async` block, which would contain the call twice.
        poll_fn(move |cx| {
            if !verified {
                process.verify()?;
                verified = true;
            }
            Pin::new(&mut call).poll(cx)
        })
    }

    pub(super) fn transactions(&self) -> Result<&dyn Transactions, StoreError> {
        self.store
            .transactions()
            .ok_or_else(|| StoreError::permanent("runtime", "begin a transaction", NoTransactions))
    }

    pub(super) async fn begin_transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let transactions = self.transactions()?;
        with_retry(|| self.limit(transactions.begin())).await
    }

    /// Returns whether the transaction has ended. If that takes too long, its connection is closed,
    /// which ends it later.
    pub(super) async fn roll_back(&self, transaction: Box<dyn Transaction>) -> bool {
        let rolled_back = Box::pin(async { Ok(transaction.roll_back().await) });
        self.limit(rolled_back).await.unwrap_or(false)
    }
}

/// The store cannot commit an application's writes together with a record.
#[derive(Debug, thiserror::Error)]
#[error("the store has no transactions; the SQLite and Postgres stores have them")]
struct NoTransactions;
