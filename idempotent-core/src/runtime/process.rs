//! The process that a runtime belongs to.

use crate::error::StoreError;

/// The process that a runtime was created in.
#[derive(Clone)]
pub(super) struct Process {
    /// Counts the forks by a handler of the C library, because a claim asks twice, and the id of
    /// the process would be a system call each time.
    forks: forkguard::Guard,
    /// Set in tests.
    is_another: bool,
}

impl Process {
    pub(super) fn current() -> Self {
        Self { forks: forkguard::new(), is_another: false }
    }

    /// A process that is not this one.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn another() -> Self {
        Self { is_another: true, ..Self::current() }
    }

    /// Fails in another process.
    ///
    /// A forked process has a copy of the runtime's memory, but neither the thread that renews
    /// leases nor the thread of a store, and its connections are shared with the first process.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        if self.is_another || self.forks.clone().detected_fork() {
            return Err(StoreError::permanent("runtime", "claim a key", Forked));
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this process was forked after the runtime was created, so its leases are not renewed; open \
     the store and create the runtime after the fork"
)]
struct Forked;
