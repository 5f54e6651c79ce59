//! The Redis store, on private servers. `REDIS_URL` names another server for the tests that do not
//! stop or configure theirs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod administration;
mod conformance;
mod connections;
mod cut_connections;
mod damage;
mod failovers;
mod first_completions;
mod guarantees;
mod helpers;
mod idle_connections;
mod large_recordings;
mod losses;
mod moving_slots;
mod notes;
mod outages;
mod privileges;
mod promotion;
mod propagation;
mod replicas;
mod replicated_notes;
mod restarts;
mod server_errors;
mod slow_links;
mod stale_view;
#[cfg(feature = "tls")]
mod tls;
mod topologies;
mod unsafe_servers;
