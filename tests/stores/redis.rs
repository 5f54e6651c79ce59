//! The Redis store, on private servers. `REDIS_URL` names another server for the tests that do not
//! stop or configure theirs.

pub(crate) mod conformance;
mod connections;
mod cuts;
mod damage;
mod failovers;
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
#[cfg(feature = "redis-tls")]
mod tls;
mod topologies;
