//! Notices an operation that begins inside the handler of another one, whose open transaction is
//! the only writer of the store: each would wait for the other.

use std::{cell::RefCell, future::poll_fn, pin::Pin};

use super::run::Run;
use crate::{
    error::StoreError,
    runtime::{parts::RuntimeParts, store_calls::StoreCalls},
};

thread_local! {
    /// The operation whose handler this thread is polling, if its store has a single writer.
    static POLLED: RefCell<Option<Run>> = const { RefCell::new(None) };
}

/// Restores the operation whose handler was polled before.
struct Restore(Option<Run>);

impl Drop for Restore {
    fn drop(&mut self) {
        POLLED.set(self.0.take());
    }
}

impl Run {
    /// Runs the handler of this operation. An integration calls it, so that another operation that
    /// begins inside the handler fails at once if the handler's transaction
    /// [excludes](crate::store::Transactions::is_exclusive) it.
    pub async fn scope<F: Future + Unpin>(&self, mut handler: F) -> F::Output {
        let has_single_writer = self.shared.parts.as_ref().is_some_and(|parts| {
            parts.store.store().transactions().is_some_and(|store| store.is_exclusive())
        });
        poll_fn(|cx| {
            let _restore = has_single_writer.then(|| Restore(POLLED.replace(Some(self.clone()))));
            Pin::new(&mut handler).poll(cx)
        })
        .await
    }

    /// Whether an open transaction of this operation is the only writer of the store.
    fn excludes(&self, store: &StoreCalls) -> bool {
        self.in_transaction()
            && self.shared.parts.as_ref().is_some_and(|parts| parts.store.is_same(store))
    }
}

impl RuntimeParts {
    /// Fails inside a handler whose open transaction would block another operation until both time
    /// out.
    pub(in crate::runtime) fn verify_may_begin(&self) -> Result<(), StoreError> {
        let excluded = POLLED.with_borrow(|polled| {
            polled.as_ref().is_some_and(|operation| operation.excludes(&self.store))
        });
        if excluded {
            Err(StoreError::permanent("runtime", "begin an operation", Excluded))
        } else {
            Ok(())
        }
    }
}

/// The open transaction of the handler prevents every other write.
#[derive(Debug, thiserror::Error)]
#[error(
    "the open transaction of the handler is the only writer of the store: begin the other \
     operation before the transaction, or write in the transaction"
)]
struct Excluded;
