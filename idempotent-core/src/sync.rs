//! Locks and counters whose interleavings tests explore. Outside of tests they are those of std.
#![allow(unreachable_pub, reason = "reachable with the feature `internals`")]

pub use self::interleaved::*;

#[cfg(any(test, feature = "internals"))]
mod interleaved;
#[cfg(not(any(test, feature = "internals")))]
mod interleaved {
    pub use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};
}
