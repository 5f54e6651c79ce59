//! The results of runs, as values.

use std::{convert::Infallible, error::Error};

use crate::{error::StoreError, protocol::Rejection};

/// The result of a run that succeeded, or of the earlier run with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done<T> {
    /// What the work returned.
    pub value: T,
    /// Whether an earlier run returned it, so that this one did nothing.
    pub replayed: bool,
}

/// The failure of the work of a run, which decides what happens to its key.
///
/// With `?`, any error becomes [`Other`](Self::Other). `E` is the type of an application's own
/// errors; a text by default.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure<E = String> {
    /// Nothing was done. The key is released, and the next run with it runs the work.
    ///
    /// If a [step](crate::runtime::Run::step) has begun, or an earlier attempt was abandoned, part
    /// of the operation may have been done: the next run is then the next attempt, or the key is
    /// held after the [point of no return](crate::runtime::Run::point_of_no_return).
    Retryable(E),
    /// The operation has failed for good. The failure is recorded, and each later run with the key
    /// gets it.
    Final(E),
    /// It is unknown what was done. The key is held until an operator resolves it.
    Unknown(E),
    /// An error that does not say what was done. The key is treated as after a crash:
    /// [`OnAbandon::Retry`](crate::OnAbandon::Retry) as for [`Retryable`](Self::Retryable),
    /// [`OnAbandon::Hold`](crate::OnAbandon::Hold) as for [`Unknown`](Self::Unknown).
    Other(Box<dyn Error + Send + Sync>),
}

/// So that `?` works in the work of a run, on the errors of the operation, of the transaction, and
/// of any library.
impl<E, S: Error + Send + Sync + 'static> From<S> for Failure<E> {
    fn from(source: S) -> Self {
        Self::Other(Box::new(source))
    }
}

/// The reason why a run has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E = String> {
    /// The operation has failed for good. A later run with the key gets the same failure.
    #[error("the operation failed: {error}")]
    #[non_exhaustive]
    Final {
        /// The failure.
        error: E,
        /// Whether an earlier run failed with it, so that this one did nothing.
        replayed: bool,
    },
    /// The operation failed, and the key is free: run it again.
    #[error("the operation failed and can be run again: {error}")]
    #[non_exhaustive]
    Retryable {
        /// The failure.
        error: E,
    },
    /// The operation failed, and it is unknown what was done. Its key is held from now on.
    #[error("the operation failed with an unknown outcome, and its key is held: {error}")]
    #[non_exhaustive]
    Unknown {
        /// The failure.
        error: E,
    },
    /// The work failed with an error that does not say what was done.
    #[error("the operation failed, and its key {}", if *.held { "is held" } else { "is free" })]
    #[non_exhaustive]
    Other {
        /// The error.
        source: Box<dyn Error + Send + Sync>,
        /// Whether the key is held from now on. Otherwise run the operation again.
        held: bool,
    },
    /// The work did not run, or its result does not count:
    ///
    /// * `InFlight`: another run with the key is in flight, and was so for the `wait` of the
    ///   policy. Run the operation again later.
    /// * `Held`: the outcome of an attempt is unknown, and its key is held until an operator
    ///   resolves it.
    /// * `Mismatch`: the key was first used with another input. The work did not run.
    #[error("{}", reason(.0))]
    Rejected(Rejection<Infallible>),
    /// The work ran, but the store lost the record of its key, or the record's ttl passed. Whatever
    /// it did is not recorded.
    #[error(
        "the record of the key was lost while the work ran, and the key {}",
        if *.reused { "now has another input" } else { "is free" }
    )]
    #[non_exhaustive]
    Lost {
        /// Whether the key now belongs to a run with another input. Otherwise the key is free: run
        /// the operation again.
        reused: bool,
    },
    /// The work ran, but its transaction was not committed, or it is unknown whether it was. A
    /// later run with the key finds out.
    #[error("the transaction of the operation was not committed, or may not have been")]
    #[non_exhaustive]
    NotCommitted {
        /// Whether the next run may succeed. If not, the work has kept or ended the transaction
        /// itself.
        transient: bool,
    },
    /// The operation is complete, but its result was not recorded: it has more than 1 MiB as JSON,
    /// or cannot be written as JSON and read again, as a `NaN`. The first run has returned it.
    #[error("the operation is complete, but its result could not be recorded")]
    Omitted,
    /// The operation may be complete, but its record cannot be read: it is damaged, was written by
    /// a later release or not by a run, or its result has another type than this run expects. The
    /// work does not run again.
    #[error("the recorded result of the operation cannot be read")]
    #[non_exhaustive]
    Unreadable {
        /// The cause, if the result is of another type.
        source: Option<serde_json::Error>,
    },
    /// The input cannot be serialized as JSON. Nothing was claimed.
    #[error("the input of the operation cannot be serialized")]
    #[non_exhaustive]
    Input {
        /// The cause.
        source: serde_json::Error,
    },
    /// The scope is [empty](crate::ScopeId::is_empty). Nothing was claimed.
    #[error("the scope of the key is empty; use `ScopeId::global` if the key has no principal")]
    EmptyScope,
    /// The store failed before the work ran.
    #[error("the key of the operation could not be claimed")]
    #[non_exhaustive]
    Store {
        /// The error of the store.
        #[from]
        source: StoreError,
    },
}

/// Why a run was rejected.
fn reason(rejection: &Rejection<Infallible>) -> &'static str {
    match rejection {
        Rejection::Completed(never) => match *never {},
        Rejection::InFlight { .. } => "another run with the key is in flight",
        Rejection::Held { .. } => "the outcome of an earlier run is unknown, and its key is held",
        Rejection::Mismatch { .. } => "the key was first used with another input",
    }
}

impl<E> RunError<E> {
    /// Returns whether a later run with the same key and input may have another outcome without an
    /// operator. A consumer leaves such a message for redelivery, and sets any other aside.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Rejected(rejection) => matches!(rejection, Rejection::InFlight { .. }),
            Self::Retryable { .. }
            | Self::Other { held: false, .. }
            | Self::Lost { reused: false } => true,
            Self::NotCommitted { transient } => *transient,
            Self::Store { source } => source.is_transient() || source.is_share_exceeded(),
            Self::Final { .. }
            | Self::Unknown { .. }
            | Self::Other { held: true, .. }
            | Self::Lost { reused: true }
            | Self::Omitted
            | Self::Unreadable { .. }
            | Self::Input { .. }
            | Self::EmptyScope => false,
        }
    }
}
