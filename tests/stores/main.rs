//! The stores: the conformance suite, comparisons with the state machine, and tests of each store's
//! particular behavior.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod batches;
mod concurrent_transactions;
mod conformance;
mod connecting;
mod debug_output;
mod deferred;
mod faults;
mod hostile;
mod lost_commits;
mod moved_files;
mod mutants;
mod postgres;
mod redis;
mod schema;
mod shared_file;
mod shared_pool;
mod sqlite;
mod support;
