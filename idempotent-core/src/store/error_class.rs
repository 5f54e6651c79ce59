//! What an error of a server or a database means for the call that failed.

use std::error::Error;

use crate::error::StoreError;

/// Answers to the three questions that decide what a store does after an error. Each store has one
/// table, in its module `error`, from the errors that it can meet to these answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorClass {
    pub(crate) effect: Effect,
    pub(crate) cause: Cause,
    pub(crate) connection: ConnectionState,
}

/// Did the call take effect?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No: the call can be sent again.
    None,
    /// Possibly: the call can be sent again only if a second execution has the same result.
    Unknown,
}

/// Is the cause temporary?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The same call may succeed later without intervention.
    Temporary,
    /// The same call fails until the cause is fixed.
    Permanent,
}

/// Is the connection still good?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// The connection can be used for the next call.
    Good,
    /// The connection is lost, or its server or session cannot serve the next call. It must not
    /// return to a pool.
    Unusable,
}

impl ErrorClass {
    pub(crate) const fn new(effect: Effect, cause: Cause, connection: ConnectionState) -> Self {
        Self { effect, cause, connection }
    }

    /// Creates the error of a store.
    pub(crate) fn into_error(
        self,
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> StoreError {
        match self.cause {
            Cause::Temporary => StoreError::transient(store, operation, source),
            Cause::Permanent => StoreError::permanent(store, operation, source),
        }
    }
}
