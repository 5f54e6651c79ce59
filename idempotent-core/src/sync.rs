//! Locks and counters whose interleavings tests explore. Outside of tests they are those of std.
#![allow(unreachable_pub, reason = "reachable with the feature `internals`")]

pub(crate) use self::interleaved::AtomicUsize;
pub use self::interleaved::Mutex;
#[cfg(any(feature = "memory", feature = "internals"))]
pub use self::interleaved::MutexGuard;
#[cfg(any(test, feature = "internals"))]
pub use self::interleaved::interleave;

#[cfg(any(test, feature = "internals"))]
mod interleaved;
#[cfg(not(any(test, feature = "internals")))]
mod interleaved {
    #[cfg(feature = "memory")]
    pub use std::sync::MutexGuard;
    pub use std::sync::{Mutex, atomic::AtomicUsize};
}
