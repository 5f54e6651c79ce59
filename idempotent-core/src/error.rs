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
    transient: bool,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// An error that the same call may not meet again: a lost connection, a busy database, a full store.
    pub fn transient(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, transient: true, source: source.into() }
    }

    /// An error that stays until someone mends its cause: a missing table, an unsafe setting, an unreadable row.
    pub fn permanent(
        store: &'static str,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { store, operation, transient: false, source: source.into() }
    }

    /// Whether the same call may succeed later without anybody's doing.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.transient
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
