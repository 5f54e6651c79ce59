//! The servers: which of them has a key, their connections, and their health.

pub(crate) mod address;
pub(crate) mod cluster;
mod discovery;
mod election;
pub(crate) mod node;
mod replication_connections;
pub(crate) mod requirements;
pub(crate) mod router;
mod sentinels;
mod servers;
mod watch_thread;
mod wire;
