//! The locks and counters whose interleavings tests explore: those of std. Tests compile
//! `sync/interleaved.rs` in place of this file.

#[cfg(feature = "memory")]
pub(crate) use std::sync::MutexGuard;
pub(crate) use std::sync::{Mutex, atomic::AtomicUsize};
