//! The Redis store, on private servers. `REDIS_URL` names another server for the tests that do not
//! stop or configure theirs.

mod conforms;
mod connections;
mod cuts;
mod damage;
mod failovers;
mod losses;
mod outages;
mod privileges;
mod promises;
mod promotion;
mod replicas;
mod restarts;
mod stale;
mod topologies;
mod work;
