//! The stores: each is tested with the conformance suite, against the pure function, and for its
//! particular behavior.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod conformance;
mod connecting;
mod crowd;
mod deferred;
mod hostile;
mod memory;
mod mutants;
mod neighbours;
mod postgres;
mod redis;
mod schema;
mod settling;
mod shown;
mod sqlite;
mod support;
