//! The process that a runtime belongs to.

use std::process;

use crate::error::StoreError;

/// A process, by its id.
#[derive(Clone, Copy)]
pub(super) struct Process(u32);

impl Process {
    pub(super) const fn of(id: u32) -> Self {
        Self(id)
    }

    pub(super) fn current() -> Self {
        Self::of(process::id())
    }

    /// Fails in another process.
    ///
    /// A forked process has a copy of the runtime's memory, but neither the thread that renews
    /// leases nor the thread of a store, and its connections are shared with the first process.
    pub(super) fn verify(self) -> Result<(), StoreError> {
        match process::id() {
            id if id == self.0 => Ok(()),
            _ => Err(StoreError::permanent("runtime", "claim a key", Forked)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this process was forked after the runtime was created, so its leases are not renewed; open \
     the store and create the runtime after the fork"
)]
struct Forked;
