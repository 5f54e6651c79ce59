//! Warns of what a server can lose although it has acknowledged it. None of this is refused: the
//! guide says what each setting costs.

use std::{collections::HashMap, sync::Arc};

use crate::{
    engine::Engine,
    net::{ConnectionRole, Message, Node, has_replicas, persists_writes},
};

/// Warns of settings that lose more than the last second of a master's writes.
pub(super) async fn warn(engine: &Engine, node: &Arc<Node>, info: &str) {
    let server = node.info().addr().to_string();
    if persists_writes(info) && append_sync(engine, node).await.as_deref() == Some("no") {
        let warn = "the Redis server has `appendfsync no`: a crash of its machine loses the claims \
                    and recordings of about half a minute; set `appendfsync everysec`, or `always` \
                    to lose none";
        tracing::warn!(server, "{warn}");
    }
    if engine.replicas.is_none() && has_replicas(info) {
        let warn = "the Redis server has replicas, and no claim waits for them: a failover loses \
                    the claims and recordings that the promoted one does not have; set \
                    `wait_for_replicas`, and `min-replicas-to-write` on every server";
        tracing::warn!(server, "{warn}");
    }
}

/// Returns `appendfsync`; `None` if the server does not tell it to this user, such as a managed
/// service that has no `CONFIG`. The store does not need that privilege.
async fn append_sync(engine: &Engine, node: &Arc<Node>) -> Option<String> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg("appendfsync");
    let sent = engine.router.send_to(node, ConnectionRole::Requests, Message::Command(&get));
    let settings = sent.await.ok()?;
    let settings: HashMap<String, String> = redis::from_redis_value(settings).ok()?;
    settings.into_values().next()
}
