//! What several stores have in common, and the conformance suite itself. The tests of one store are
//! in its crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod batch_sizes;
mod columns;
mod conformance;
mod connecting;
mod erased_bytes;
mod faults;
mod group_commit;
#[cfg(feature = "mysql")]
mod mysql_files;
mod sealed_bytes;
mod sealed_conformance;
mod suite_mutants;
