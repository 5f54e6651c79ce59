//! The Postgres store, on real servers.
//!
//! The tests start private servers. `DATABASE_URL` names another server for the tests that do not
//! stop theirs: it needs `pg_stat_statements` in `shared_preload_libraries`, and a user that may
//! create databases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod administration;
mod batched_conformance;
mod claims;
mod conformance;
mod contention;
mod cut_commits;
mod cut_connections;
mod helpers;
mod in_doubt;
mod late_batches;
mod leftovers;
mod logs;
mod migrations;
mod misused_transactions;
mod observed_sessions;
mod opening;
mod outages;
mod plans;
mod privileges;
mod roles;
mod runtimes;
mod sessions;
mod silence;
mod snapshots;
mod sqlstates;
mod state_machine;
mod time_limits;
mod transaction_claims;
mod triggers;
mod unsafe_servers;
