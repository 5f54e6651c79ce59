//! Where a transaction lies while neither the handler nor its attempt has it.

use std::{cell::Cell, rc::Rc};

use actix_web::{HttpMessage, HttpRequest};
use idempotent_core::store::Transaction;

/// The account of one request whose handler takes a `Tx`.
#[derive(Default)]
pub(crate) struct Account {
    transaction: Cell<Option<Box<dyn Transaction>>>,
    closed: Cell<bool>,
}

impl Account {
    /// The account of this request, if its handler takes a `Tx`.
    pub(crate) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.extensions().get::<Rc<Self>>().cloned()
    }

    pub(crate) fn lend(&self, transaction: Option<Box<dyn Transaction>>) {
        self.transaction.set(transaction);
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn take(&self) -> Option<Box<dyn Transaction>> {
        self.transaction.take()
    }

    /// A transaction that comes too late is dropped, and thereby rolled back.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn give_back(&self, transaction: Box<dyn Transaction>) {
        if !self.closed.get() {
            self.transaction.set(Some(transaction));
        }
    }

    /// Takes the transaction back, if the handler has given it back. It can do so no more.
    pub(crate) fn close(&self) -> Option<Box<dyn Transaction>> {
        self.closed.set(true);
        self.transaction.take()
    }
}
