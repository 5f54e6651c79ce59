//! The servers: which of them has a key, their connections, and their health.

mod address;
mod cluster;
mod discovery;
mod election;
mod lock;
mod node;
mod replicas;
mod requirements;
mod route;
mod router;
mod sentinels;
mod servers;
mod slot_moves;
mod watch_thread;
mod wire;

pub(crate) use self::{
    address::Address,
    cluster::{SLOTS, checksum, slot, slot_of_checksum, tag},
    lock::lock,
    node::{ConnectionRole, Message, Node},
    replicas::Replicas,
    requirements::{has_replicas, persists_writes},
    route::ConnectionRoute,
    router::{Router, SendAgain},
    slot_moves::importing,
};
