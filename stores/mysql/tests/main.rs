//! The MySQL store, on real MariaDB servers.
//!
//! The tests start private servers. `MYSQL_URL` names another server for the tests that do not stop
//! theirs: it needs a user that may create databases and users.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod conformance;
mod contention;
mod cut_commits;
mod cut_connections;
mod dropped_handlers;
mod helpers;
mod misused_transactions;
mod opening;
mod outages;
mod pooler;
mod transaction_claims;
