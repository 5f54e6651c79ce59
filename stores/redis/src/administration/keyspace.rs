//! The keys of all servers.

use std::{collections::BTreeSet, sync::Arc};

use super::masters::assert_is_master;
use crate::{
    engine::Engine,
    error::CallFailure,
    net::{ConnectionRole, Message, Node, importing},
};
use idempotent_core::RecordId;

/// Which server is read next.
pub(super) enum NextNode {
    /// The one with this number.
    Is(usize),
    /// The first one again, because slots have been moved.
    First,
    /// All have been read.
    None,
}

/// Returns the server with this number, or the next one that has to be read.
///
/// Between the replies of two servers a third party may move a key from the second to the first.
/// Its slot is then still being imported, or has other owners than before. So after all servers
/// those are read once more that are importing a slot, and a scan begins again if the owners have
/// changed (case `a_scan_finds_the_records_of_a_slot_that_is_moving`).
pub(super) async fn next_node(
    engine: &Engine,
    masters: &[Arc<Node>],
    number: usize,
) -> Result<NextNode, CallFailure> {
    if number < masters.len() {
        return Ok(NextNode::Is(number));
    }
    if !engine.router.servers.in_cluster() {
        return Ok(NextNode::None);
    }
    let Some(importing) = importing(&engine.router, masters).await? else {
        return Ok(NextNode::First);
    };
    let numbers = (masters.len()..).zip(importing).skip(number - masters.len());
    let next = numbers.filter(|(_, is_importing)| *is_importing).map(|(number, _)| number).next();
    Ok(next.map_or(NextNode::None, NextNode::Is))
}

/// Asks a server for the next keys. Returns the cursor that follows, and the ids of the records in
/// order.
pub(super) async fn keys(
    engine: &Engine,
    node: &Arc<Node>,
    (cursor, pattern, count): (u64, &[u8], usize),
) -> Result<(u64, BTreeSet<RecordId>), CallFailure> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
    let message = Message::Command(&scan);
    let reply = engine.router.send_to(node, ConnectionRole::Lists, message).await?;
    let (cursor, keys): (u64, Vec<Vec<u8>>) =
        redis::from_redis_value(reply).map_err(CallFailure::unexpected_reply)?;
    assert_is_master(engine, node).await?;
    let id = |key: &Vec<u8>| key.strip_prefix(engine.prefix.as_bytes())?.try_into().ok();
    Ok((cursor, keys.iter().filter_map(id).map(RecordId::from_bytes).collect()))
}

/// The pattern of the keys of records whose ids begin with these bytes.
pub(super) fn pattern(engine: &Engine, beginning: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in engine.prefix.as_bytes().iter().chain(beginning) {
        if b"*?[]\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}
