//! What can go wrong below the protocol.

use std::{error::Error, fmt};

/// A store could not do what it was asked.
///
/// It names the store and the operation, and keeps the cause as its [source](Error::source); none of the three may reach a
/// client. *In flight*, *mismatch* and the like are outcomes, not errors.
#[derive(Debug)]
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
    Share,
}

impl StoreError {
    /// An error that the same call may not meet again: a lost connection, a busy database, a full store.
    pub fn transient(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Transient, source: source.into() }
    }

    /// An error that stays until someone mends its cause: a missing table, a missing privilege, an unsafe setting.
    pub fn permanent(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Permanent, source: source.into() }
    }

    /// A permanent error of one record: what is kept for the key is damaged, or is not a record. The operation may have been
    /// done, so it is neither run again nor replayed. Other keys are not affected.
    pub fn unreadable(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Unreadable, source: source.into() }
    }

    /// A claim that is refused because its principal has its share of a bounded store. Nothing was claimed; other principals are not
    /// affected.
    pub fn share_exceeded(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, kind: Kind::Share, source: source.into() }
    }

    /// Whether a principal has its share of the store.
    #[must_use]
    pub fn is_share_exceeded(&self) -> bool {
        self.kind == Kind::Share
    }

    /// Whether the same call may succeed later without anybody's doing.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == Kind::Transient
    }

    /// Whether the error is of one record, which cannot be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.kind == Kind::Unreadable
    }

    /// The store that failed, such as `"sqlite"`.
    #[must_use]
    pub fn store(&self) -> &'static str {
        self.store
    }

    /// The operation that failed, such as `"claim"`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} store failed to {}", self.store, self.operation)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// A call from outside of a runtime.
#[derive(Debug)]
pub(crate) struct NoRuntime;

impl fmt::Display for NoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store was called from outside of a Tokio runtime")
    }
}

impl Error for NoRuntime {}
