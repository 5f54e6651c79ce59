//! The servers that lists are read from.

use std::sync::Arc;

use redis::Value;

use crate::{
    engine::Engine,
    error::{CallFailure, UnsuitableServer},
    net::{ConnectionRole, Message, Node},
};
use idempotent_core::clock::Timestamp;

/// The servers, of which there is at least one.
pub(super) fn masters(engine: &Engine) -> Result<Vec<Arc<Node>>, CallFailure> {
    let masters = engine.router.servers.masters();
    if masters.is_empty() { Err(CallFailure::NoMaster) } else { Ok(masters) }
}

/// Fails if the server of a store without a cluster has become a replica. In a cluster a replica
/// redirects the commands that name a key.
///
/// A master that became a replica keeps its connections, and its records may be outdated. It
/// refuses writes by itself, but not reads. Called after the reads, which a later demotion does not
/// make wrong.
pub(super) async fn assert_reads_were_of_the_master(engine: &Engine) -> Result<(), CallFailure> {
    if engine.router.servers.in_cluster() {
        return Ok(());
    }
    for node in masters(engine)? {
        assert_is_master(engine, &node).await?;
    }
    Ok(())
}

/// Fails if this server is a replica by now.
pub(super) async fn assert_is_master(engine: &Engine, node: &Arc<Node>) -> Result<(), CallFailure> {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let message = Message::Command(&info);
    let info = engine.router.send_to(node, ConnectionRole::Lists, message).await?;
    let info: String = redis::from_redis_value(info).map_err(CallFailure::unexpected_reply)?;
    if info.lines().any(|line| line.trim_end() == "role:master") {
        Ok(())
    } else {
        engine.router.servers.refresh();
        Err(CallFailure::UnsuitableServer(UnsuitableServer::Replica))
    }
}

/// The time of a server.
pub(super) async fn now(engine: &Engine) -> Result<Timestamp, CallFailure> {
    let node = masters(engine)?.into_iter().next().ok_or(CallFailure::NoMaster)?;
    let time = redis::cmd("TIME");
    let time: Value =
        engine.router.send_to(&node, ConnectionRole::Lists, Message::Command(&time)).await?;
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(time).map_err(CallFailure::unexpected_reply)?;
    Ok(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
}
