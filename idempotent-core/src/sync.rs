//! Locks and counters whose interleavings tests explore. Outside of tests they are those of std.
#![cfg_attr(
    all(test, not(feature = "internals")),
    allow(unreachable_pub, reason = "reachable with the feature `internals`")
)]

#[cfg(all(not(any(test, feature = "internals")), feature = "memory"))]
pub(crate) use std::sync::MutexGuard;
#[cfg(not(any(test, feature = "internals")))]
pub(crate) use std::sync::{Mutex, atomic::AtomicUsize};

#[cfg(any(test, feature = "internals"))]
pub(crate) use self::interleaved::AtomicUsize;
#[cfg(all(any(test, feature = "internals"), feature = "memory"))]
pub use self::interleaved::MutexGuard;
#[cfg(any(test, feature = "internals"))]
pub use self::interleaved::{Mutex, interleave};

#[cfg(any(test, feature = "internals"))]
mod interleaved;
