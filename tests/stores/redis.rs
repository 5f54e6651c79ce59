//! The Redis store, on private servers. `REDIS_URL` names another server for the tests that do not
//! stop or configure theirs.

mod conformance;
mod connections;
mod cuts;
mod damage;
mod failovers;
mod guarantees;
mod helpers;
mod losses;
mod outages;
mod privileges;
mod promotion;
mod replicas;
mod restarts;
mod stale_view;
mod topologies;
