//! What the tests of the workspace share: private database servers, stores whose time tests move,
//! proxies that cut connections, an HTTP client that sends and returns exact bytes, handlers that
//! tests control, and a store that fails on request. Each store's tests use its feature alone, and
//! build neither the other stores nor actix.
//!
//! Nothing here sleeps. Tests wait for events, and a wait that exceeds [`WAIT_LIMIT`] is a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness fails by panicking"
)]
#![allow(missing_docs, reason = "not published; the names say what the helpers do")]

pub mod administering;
#[cfg(feature = "http")]
pub mod client;
pub mod cuts;
pub mod faults;
pub mod histories;
#[cfg(feature = "http")]
pub mod log;
pub mod longest_durations;
#[cfg(feature = "http")]
pub mod probe;
pub mod proxy;
#[cfg(feature = "http")]
pub mod server;
pub mod servers;
pub mod subjects;
pub mod taps;
#[cfg(feature = "http")]
pub mod test_app;
pub mod timing;
pub mod unreliable;
pub mod without_runtime;

use std::{error::Error, iter, time::Duration};

use idempotent_core::{
    RecordId,
    protocol::{Actor, AuditAction, AuditEntry, AuditedState},
};

pub use faults::{Fault, FaultyStore, Op};
#[cfg(feature = "http")]
pub use {
    client::{ClientResponse, Pending, Request},
    probe::Probe,
    server::Server,
    test_app::TestApp,
};

/// How long an event may take before a test fails.
pub const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Waits for an event, outside of any tokio runtime.
///
/// # Panics
/// When the event does not occur within [`WAIT_LIMIT`].
pub fn wait_for<T>(what: &str, event: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(WAIT_LIMIT, event).await });
    waited.unwrap_or_else(|_| panic!("timed out while waiting for {what}"))
}

/// What the log says of a decision about a record that was held.
pub fn decision(id: &RecordId) -> AuditEntry {
    let actor = Actor::new("ada", "as the bank's books say");
    AuditEntry::new(AuditAction::Release, *id, AuditedState::Held, actor)
}

/// An error and its causes, as in a log.
pub fn error_chain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
