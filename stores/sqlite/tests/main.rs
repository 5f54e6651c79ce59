//! The SQLite store, on temporary files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod administration;
mod concurrent_transactions;
mod conformance;
mod deferred_completions;
mod files_and_settings;
mod lost_commits;
mod misused_transactions;
mod moved_files;
mod schema;
mod shared_file;
mod shared_pool;
