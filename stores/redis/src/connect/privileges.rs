//! Verifies the settings of the servers and the privileges of the user in the URL.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::losses;
use crate::{
    engine::Engine,
    error::{CallFailure, MissingPermission, Reaction, is_unknown, reaction},
    net::{ConnectionRole, Message, Node, tag},
};
use idempotent_core::OwnerToken;

/// How many random keys are tried to find one that a node owns. In a cluster of a thousand nodes a
/// node owns one key in a thousand.
const KEY_TRIES: u32 = 100_000;

/// Verifies the settings of each master, and sends it every command that a call may send, for a
/// key that does not exist, so that nothing changes.
pub(crate) async fn check(engine: &Engine) -> Result<(), CallFailure> {
    engine.router.on_each_master(|node| check_node(engine, node)).await
}

async fn check_node(engine: &Engine, node: Arc<Node>) -> Result<(), CallFailure> {
    // The settings may have changed since the connections were opened.
    let info = send(engine, &node, Message::Command(&redis::cmd("INFO"))).await;
    if let Some(info) = check_reply(engine, "INFO", info)? {
        let info = node.verify(info)?;
        losses::warn(engine, &node, &info).await;
    }
    let Some(key) = probe_key(engine, &node) else { return Ok(()) };
    let mut set = redis::cmd("SET");
    set.arg(&key).arg("").arg("XX").arg("GET").arg("PX").arg(1);
    check_reply(engine, "SET", send(engine, &node, Message::Command(&set)).await)?;
    for (name, call) in [
        ("EVAL", engine.scripts.check.by_code(&[&key], &[])),
        ("EVALSHA", engine.scripts.check.by_hash(&[&key], &[])),
    ] {
        let Some(value) =
            check_reply(engine, name, send(engine, &node, Message::Command(&call)).await)?
        else {
            continue;
        };
        check_script_reply(engine, value)?;
    }
    for (name, command) in lists(&key) {
        check_reply(engine, name, send(engine, &node, Message::Command(&command)).await)?;
    }
    if engine.replicas.is_some() {
        let mut wait = redis::cmd("WAIT");
        wait.arg(0).arg(1);
        check_reply(engine, "WAIT", send(engine, &node, Message::Command(&wait)).await)?;
    }
    if engine.router.servers.in_cluster() {
        // `ASKING` needs a following command, or it would apply to another call's.
        check_reply(engine, "SET", send(engine, &node, Message::Asking(&set)).await)?;
        let mut nodes = redis::cmd("CLUSTER");
        nodes.arg("NODES");
        let nodes = send(engine, &node, Message::Command(&nodes)).await;
        check_reply(engine, "CLUSTER|NODES", nodes)?;
    }
    Ok(())
}

async fn send(
    engine: &Engine,
    node: &Arc<Node>,
    message: Message<'_>,
) -> Result<Value, CallFailure> {
    engine.router.send_to(node, ConnectionRole::Requests, message).await
}

/// The commands that read lists for operators.
fn lists(key: &[u8]) -> [(&'static str, Cmd); 4] {
    let mut range = redis::cmd("ZRANGE");
    range.arg(key).arg(0).arg(0);
    let mut log = redis::cmd("XREVRANGE");
    log.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
    let mut scan = redis::cmd("SCAN");
    scan.arg(0).arg("MATCH").arg(key).arg("COUNT").arg(1);
    [("ZRANGE", range), ("XREVRANGE", log), ("SCAN", scan), ("DBSIZE", redis::cmd("DBSIZE"))]
}

/// Returns an unused key with the prefix that the node owns; `None` if it owns none. As long as the
/// key of a record, but text: a server that does not have a command quotes its arguments, and the
/// client library cannot read an error that is not text.
fn probe_key(engine: &Engine, node: &Arc<Node>) -> Option<Vec<u8>> {
    let random: [u8; 12] = *OwnerToken::random().ok()?.as_bytes().first_chunk()?;
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // If the prefix has a hash tag, one node has all keys.
    let tries = if tag(engine.prefix.as_bytes()).is_some() { 1 } else { KEY_TRIES };
    (0..tries).find_map(|number| {
        let key = format!("{}{number:08x}{random}", engine.prefix).into_bytes();
        let owner = engine.router.servers.node(&key).ok()?;
        Arc::ptr_eq(&owner, node).then_some(key)
    })
}

/// Distinguishes a missing privilege, or a command that the server does not have, from a transient
/// refusal: a server that is full or has too few replicas refuses any write, but only after it has
/// checked the privilege.
fn check_reply(
    engine: &Engine,
    command: &'static str,
    result: Result<Value, CallFailure>,
) -> Result<Option<Value>, CallFailure> {
    match result.map_err(|failure| failure.or_refusal_of(command)) {
        Ok(value) => Ok(Some(value)),
        Err(failure)
            if matches!(failure.reaction(), Some(Reaction::Read | Reaction::SendScript)) =>
        {
            Ok(None)
        }
        Err(CallFailure::MissingPermission(missing)) => {
            Err(CallFailure::MissingPermission(missing.under(&engine.prefix)))
        }
        Err(failure) => Err(failure),
    }
}

/// Evaluates the reply of `lua/check.lua`: the command that failed and its error, or nil.
fn check_script_reply(engine: &Engine, value: Value) -> Result<(), CallFailure> {
    let failed: Option<(String, String)> =
        redis::from_redis_value(value).map_err(CallFailure::unexpected_reply)?;
    match failed {
        None => Ok(()),
        Some((_, why)) if why.split(' ').next().and_then(reaction) == Some(Reaction::Read) => {
            Ok(())
        }
        Some((command, why)) if is_unknown(&why) => {
            Err(CallFailure::UnknownCommand { command: command.into(), why })
        }
        Some((command, why)) => Err(CallFailure::MissingPermission(
            MissingPermission::of(command, &why).under(&engine.prefix),
        )),
    }
}
