//! The locks and counters of code whose threads a test runs in many orders. Outside of tests they are std's.

#[cfg(all(not(test), feature = "memory"))]
pub(crate) use std::sync::MutexGuard;
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, atomic::AtomicUsize};

#[cfg(all(test, feature = "memory"))]
pub(crate) use self::interleaved::MutexGuard;
#[cfg(test)]
pub(crate) use self::interleaved::{AtomicUsize, Mutex, interleave};

#[cfg(test)]
mod interleaved;
