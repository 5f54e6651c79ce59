//! What the tests of the workspace share: real servers, a client that sees bytes, handlers and stores that do as they are told.
//!
//! Nothing here sleeps. What a test waits for is an event, and a wait that lasts [`PATIENCE`] is a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a harness fails by panicking")]

pub mod client;
pub mod log;
pub mod probe;
pub mod server;
pub mod servers;
#[cfg(doctest)]
mod signatures;
pub mod store;
pub mod world;

use std::time::Duration;

pub use client::{Answer, Pending, Request};
pub use probe::Probe;
pub use server::Server;
pub use store::{Fault, FaultyStore, Op};
pub use world::World;

/// How long an event may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits, outside of any runtime, for something that has to happen.
///
/// # Panics
/// When it does not happen within [`PATIENCE`].
pub fn wait_for<T>(what: &str, event: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, event).await });
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
