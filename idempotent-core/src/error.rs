//! Errors of stores.

use std::{error::Error, fmt};

/// The error of a call to a store, or of the runtime that made the call.
///
/// The error names the store and the operation, and keeps the cause as its [source](Error::source).
/// Log it, but do not show it to a client. *In flight*, *mismatch* and the like are outcomes, not
/// errors.
///
/// Unless it is documented otherwise, the outcome of a call that returned an error is unknown: it
/// may have taken effect.
///
/// The `Debug` output is meant to be read: an error that `main` returns is shown by it. It consists
/// of the message, the causes, and `(transient)` if the error [is](Self::is_transient).
#[derive(thiserror::Error)]
#[error("{store}: failed to {operation}")]
pub struct StoreError {
    store: &'static str,
    operation: &'static str,
    kind: Kind,
    source: Box<dyn Error + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Transient,
    Permanent,
    Unreadable,
    ShareExceeded,
    Escaped,
    Unsupported,
}

impl StoreError {
    /// Creates an error that may not occur when the call is repeated: a lost connection, a busy
    /// database, a full store.
    pub fn transient(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Transient, source: source.into() }
    }

    /// Creates an error that persists until its cause is fixed: a missing table, a missing
    /// privilege, an unsafe setting.
    pub fn permanent(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Permanent, source: source.into() }
    }

    /// Creates a permanent error that concerns one record: the data stored for the key is damaged,
    /// or is not a record. The operation may have been done, so it is neither run again nor
    /// replayed. Other keys are not affected.
    pub fn unreadable(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Unreadable, source: source.into() }
    }

    /// Creates the error of a claim that is refused because its principal has used up its share of
    /// a store of limited size. Nothing was claimed. Other principals are not affected.
    pub fn share_exceeded(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::ShareExceeded, source: source.into() }
    }

    /// Creates a permanent error of a transaction that its handler has ended with SQL: what the
    /// handler has written since may be committed, although the transaction is not.
    pub fn escaped(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Escaped, source: source.into() }
    }

    /// Creates the permanent error of a call that the store does not support.
    pub fn unsupported(store: &'static str, operation: &'static str) -> Self {
        Self { store, operation, kind: Kind::Unsupported, source: Unsupported.into() }
    }

    /// Returns whether the store does not support the call.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.kind == Kind::Unsupported
    }

    /// Returns whether a handler has ended its transaction, and effects of it may be committed.
    #[must_use]
    pub fn is_escaped(&self) -> bool {
        self.kind == Kind::Escaped
    }

    /// Returns whether a claim was refused because its principal has used up its share of the
    /// store.
    #[must_use]
    pub fn is_share_exceeded(&self) -> bool {
        self.kind == Kind::ShareExceeded
    }

    /// Returns whether the same call may succeed later without intervention. The other kinds of
    /// errors are not transient.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == Kind::Transient
    }

    /// Returns whether the error concerns one record, which cannot be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.kind == Kind::Unreadable
    }

    /// Returns the name of the store that failed, such as `"sqlite"`, or of another part that
    /// failed, such as `"runtime"`.
    #[must_use]
    pub fn store(&self) -> &'static str {
        self.store
    }

    /// Returns the operation that failed, such as `"claim"`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_causes(f, self)?;
        f.write_str(if self.is_transient() { " (transient)" } else { "" })
    }
}

/// Writes the message of an error and those of its causes. A cause whose message is part of the one
/// before it is left out.
pub(crate) fn write_with_causes(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    let mut before = error.to_string();
    f.write_str(&before)?;
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !before.contains(&message) {
            write!(f, ": {message}")?;
        }
        (before, cause) = (message, error.source());
    }
    Ok(())
}

/// The cause of an error of a call that a store does not support.
#[derive(Debug, thiserror::Error)]
#[error("the store does not support this")]
struct Unsupported;

/// The cause of an error of a store that was called from outside of a Tokio runtime.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store was called from outside of a Tokio runtime")]
pub struct NoRuntime;
