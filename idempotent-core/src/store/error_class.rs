//! What an error of a server or a database means for the call that failed.

use std::error::Error;

use crate::error::StoreError;

/// Answers to the three questions that decide what a store does after an error.
///
/// Each supplied store has one table, in its module `error`, from the errors that it can meet to
/// these answers. A store of your own may do the same, but need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorClass {
    /// Whether the call took effect.
    pub effect: Effect,
    /// Whether the cause is temporary.
    pub cause: Cause,
    /// Whether the connection is still good.
    pub connection: ConnectionState,
}

/// Did the call take effect?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No: the call can be sent again.
    None,
    /// Possibly: the call can be sent again only if a second execution has the same result.
    Unknown,
}

/// Is the cause temporary?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The same call may succeed later without intervention.
    Temporary,
    /// The same call fails until the cause is fixed.
    Permanent,
}

/// Is the connection still good?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The connection can be used for the next call.
    Good,
    /// The connection is lost, or its server or session cannot serve the next call. It must not
    /// return to a pool.
    Unusable,
}

impl ErrorClass {
    /// Creates a class from the three answers.
    #[must_use]
    pub const fn new(effect: Effect, cause: Cause, connection: ConnectionState) -> Self {
        Self { effect, cause, connection }
    }

    /// Creates the error of a call: a transient one if the cause is temporary, and a permanent one
    /// otherwise.
    pub fn into_error(
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
