//! Calls to the store with a time limit.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use super::{
    environment::Environment,
    observer::{self, HeldOperation, Observer},
    options::RuntimeOptions,
    owner_tokens::OwnerTokens,
    process::Process,
    timing::{with_retry, with_timeout},
};
use crate::{
    error::StoreError,
    history::Kind,
    lease::OwnerToken,
    protocol::Rejection,
    record_id::RecordId,
    short_text::ShortText,
    store::{Store, Transaction, Transactions},
};

/// The time limit of an entry in a history, for which a client may wait.
const APPEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The store of a runtime. Every call has a time limit, and is refused in a forked process.
#[derive(Clone)]
pub(super) struct StoreCalls {
    store: Arc<dyn Store>,
    /// The application's store, which returns what is sealed as it is.
    kept: Arc<dyn Store>,
    timeout: Duration,
    /// The process in which the runtime was created.
    process: Process,
    environment: Environment,
    owners: Arc<OwnerTokens>,
    observer: Option<Arc<dyn Observer>>,
}

impl StoreCalls {
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: &RuntimeOptions,
        process: Process,
        environment: Environment,
    ) -> Self {
        let (timeout, observer) = (options.store_timeout, options.observer.clone());
        let (kept, owners) = (store.clone(), Arc::default());
        #[cfg(feature = "encrypt")]
        let store = super::sealing::with_keyring(store, &options.keyring);
        Self { store, kept, timeout, process, environment, owners, observer }
    }

    /// The store itself, whose calls have no time limit.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The application's store, which returns what is sealed as it is. Its calls have no time
    /// limit.
    #[cfg(feature = "encrypt")]
    pub(super) fn kept(&self) -> &dyn Store {
        &*self.kept
    }

    /// Whether both are calls to the same store.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.kept), Arc::as_ptr(&other.kept))
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn environment(&self) -> Environment {
        self.environment
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Calls the observer, if there is one.
    pub(super) fn observe(&self, call: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer {
            observer::notify(&**observer, call);
        }
    }

    /// The present time if there is an observer, for [`measured`](Self::measured).
    pub(super) fn stopwatch(&self) -> Option<Instant> {
        self.observer.as_ref().map(|_| self.environment.now())
    }

    /// Tells the observer how much time has passed since then. Returns the present time, from which
    /// the next measurement can begin; `None` without an observer.
    pub(super) fn measured(
        &self,
        since: Option<Instant>,
        call: impl FnOnce(&dyn Observer, Duration),
    ) -> Option<Instant> {
        let (since, observer) = (since?, self.observer.as_ref()?);
        let now = self.environment.now();
        observer::notify(&**observer, |observer| call(observer, now.duration_since(since)));
        Some(now)
    }

    /// Tells the observer that a key is held, if a claim was the first to find that.
    pub(super) fn observe_rejection<R>(
        &self,
        id: &RecordId,
        operation: &ShortText,
        rejection: &Rejection<R>,
    ) {
        if let Rejection::Held { newly: true, reference } = rejection {
            self.observe(|observer| {
                let reference = reference.clone();
                observer.held(&HeldOperation::new(*id, operation.clone(), reference));
            });
        }
    }

    /// Draws an owner token.
    pub(super) fn draw_owner(&self) -> Result<OwnerToken, StoreError> {
        self.environment.draw_owner(&self.owners)
    }

    /// Calls the store. If the call exceeds the time limit, its outcome is unknown, and the error
    /// names the step.
    pub(super) fn call<'a, T, C>(
        &'a self,
        step: &'static str,
        call: impl FnOnce(&'a dyn Store) -> C,
    ) -> impl Future<Output = Result<T, StoreError>>
    where
        C: Future<Output = Result<T, StoreError>> + Unpin,
    {
        self.limit(step, call(&*self.store))
    }

    /// Gives a call the time limit of the store.
    pub(super) fn limit<T>(
        &self,
        step: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Unpin,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.limit_to(step, self.timeout, call)
    }

    /// Gives a call a time limit. In a forked process the call is not made: both processes share
    /// the connections, so each could read the responses to the other.
    pub(super) fn limit_to<T>(
        &self,
        step: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, StoreError>> + Unpin,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let mut verified = false;
        let mut call = with_timeout(step, limit, call);
        // Not an `async` block, which would contain the call twice.
        poll_fn(move |cx| {
            if !verified {
                self.process.verify()?;
                verified = true;
            }
            let polled = Pin::new(&mut call).poll(cx);
            if let Poll::Ready(Err(error)) = &polled {
                self.observe(|observer| observer.store_failed(error));
            }
            polled
        })
    }

    /// Appends to a record's history what its store cannot see. A failure costs the entry only.
    pub(super) async fn append_history(&self, id: &RecordId, kind: Kind) {
        let Some(administration) = self.store.administration() else { return };
        let limit = self.timeout.min(APPEND_TIMEOUT);
        let append = administration.append_history(id, kind);
        if let Err(error) = self.limit_to("append", limit, append).await {
            tracing::debug!(
                id = %id.short(), %error, ?kind,
                "appending to the history of a record failed; the entry is missing"
            );
        }
    }

    pub(super) fn transactions(&self) -> Result<&dyn Transactions, StoreError> {
        self.store
            .transactions()
            .ok_or_else(|| StoreError::permanent("runtime", "begin a transaction", NoTransactions))
    }

    pub(super) async fn begin_transaction(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let transactions = self.transactions()?;
        with_retry(|| self.limit("begin a transaction", transactions.begin())).await
    }

    /// Returns whether the transaction has ended. If that takes too long, its connection is closed,
    /// which ends it later.
    pub(super) async fn roll_back(&self, transaction: Box<dyn Transaction>) -> bool {
        let rolled_back = Box::pin(async { Ok(transaction.roll_back().await) });
        self.limit("roll back", rolled_back).await.unwrap_or(false)
    }
}

/// The store cannot commit an application's writes together with a record.
#[derive(Debug, thiserror::Error)]
#[error("the store has no transactions; the SQLite, Postgres and MySQL stores have them")]
struct NoTransactions;
