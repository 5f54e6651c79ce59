//! The place of a request's transaction while neither the `Tx` nor the attempt has it.

use std::{cell::Cell, rc::Rc};

use actix_web::{HttpMessage, HttpRequest};
use idempotent_core::store::Transaction;

/// Holds the transaction of one request whose handler takes a `Tx`.
pub(crate) struct TxSlot {
    transaction: Cell<Option<Box<dyn Transaction>>>,
    phase: Cell<Phase>,
}

/// What the `Tx` of a request may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The extractors run, before the claim.
    BeforeHandler,
    /// The handler runs, and no transaction has begun.
    NotBegun,
    /// The handler runs, and the transaction has begun.
    Begun,
    /// The handler has responded.
    AfterHandler,
}

/// The transaction of a handler that has responded.
pub(crate) enum Returned {
    /// The handler never used its `Tx`, so no transaction was begun.
    Unused,
    /// The transaction.
    Transaction(Box<dyn Transaction>),
    /// The handler still has its `Tx`, for example in a task, and the `Tx` has the transaction.
    Missing,
}

impl Default for TxSlot {
    fn default() -> Self {
        Self { transaction: Cell::new(None), phase: Cell::new(Phase::BeforeHandler) }
    }
}

impl TxSlot {
    /// Returns the slot of this request, if its handler takes a `Tx`.
    pub(crate) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.extensions().get::<Rc<Self>>().cloned()
    }

    /// Opens the slot for the handler, with the transaction if one was begun for it.
    pub(crate) fn open(&self, transaction: Option<Box<dyn Transaction>>) {
        let phase = if transaction.is_some() { Phase::Begun } else { Phase::NotBegun };
        self.phase.set(phase);
        self.transaction.set(transaction);
    }

    /// Closes the slot once the handler has responded.
    pub(crate) fn close(&self) -> Returned {
        match (self.phase.replace(Phase::AfterHandler), self.transaction.take()) {
            (_, Some(transaction)) => Returned::Transaction(transaction),
            (Phase::Begun, None) => Returned::Missing,
            (Phase::BeforeHandler | Phase::NotBegun | Phase::AfterHandler, None) => {
                Returned::Unused
            }
        }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl TxSlot {
    /// Takes the transaction, if one has begun and is in the slot.
    pub(crate) fn take(&self) -> Option<Box<dyn Transaction>> {
        self.transaction.take()
    }

    /// Returns whether a transaction may begin: the handler runs, and none has begun.
    pub(crate) fn may_begin(&self) -> bool {
        self.phase.get() == Phase::NotBegun
    }

    /// Returns whether the handler has responded.
    pub(crate) fn is_after_handler(&self) -> bool {
        self.phase.get() == Phase::AfterHandler
    }

    /// Notes that a transaction has begun. Returns whether the handler still runs to use it.
    pub(crate) fn note_begun(&self) -> bool {
        let in_time = self.may_begin();
        if in_time {
            self.phase.set(Phase::Begun);
        }
        in_time
    }

    /// Takes the transaction back. If that is too late, the transaction is dropped and thereby
    /// rolled back.
    pub(crate) fn give_back(&self, transaction: Box<dyn Transaction>) {
        if !self.is_after_handler() {
            self.transaction.set(Some(transaction));
        }
    }
}
