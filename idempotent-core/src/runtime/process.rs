//! The process that a runtime belongs to.

use std::{error::Error, fmt, process};

use crate::error::StoreError;

/// A process, by its id.
pub(super) struct Process(u32);

impl Process {
    pub(super) const fn of(id: u32) -> Self {
        Self(id)
    }

    /// Refuses another process. One that was forked has a copy of the runtime's memory, but not its thread, which renews leases, nor the
    /// thread of a store; and its connections are the first process' too.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        match process::id() {
            id if id == self.0 => Ok(()),
            _ => Err(StoreError::permanent("runtime", "claim a key", Forked)),
        }
    }
}

/// The present one.
impl Default for Process {
    fn default() -> Self {
        Self::of(process::id())
    }
}

#[derive(Debug)]
struct Forked;

impl fmt::Display for Forked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this process was forked after the runtime was made, and nothing renews leases here; open the store and make the \
             runtime after the fork",
        )
    }
}

impl Error for Forked {}
