//! The stores: each against the conformance suite and the pure function, and what is particular to each.
#![cfg(all(feature = "conformance", feature = "memory", feature = "sqlite"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests are tests")]

mod conformance;
mod connecting;
mod crowd;
mod deferred;
mod hostile;
#[path = "../servers/longest.rs"]
mod longest;
mod memory;
mod mutants;
mod neighbours;
mod schema;
mod settling;
mod shown;
mod sqlite;
mod support;
#[path = "../servers/without_runtime.rs"]
mod without_runtime;
