//! The DynamoDB store, on a private emulator, which `tests/dynamodb/install` installs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod conditions;
mod conformance;
mod faults;
mod hammer;
mod helpers;
mod schema;
