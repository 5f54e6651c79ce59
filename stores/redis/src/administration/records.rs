//! Reading records for a list.

use futures_util::future::join_all;
use redis::Value;

use crate::{
    encoding::{decode_beginning, with_absolute_times},
    engine::Engine,
    error::{CallFailure, Reaction},
    net::{ConnectionRole, Message, SendAgain},
};
use idempotent_core::{RecordId, clock::Timestamp, protocol::Snapshot};

/// How many calls are sent at the same time if they are not sent in one write.
pub(super) const CONCURRENT_CALLS: usize = 32;

/// Reads records without their recordings, steps and inputs. `None`: there is no record, or it
/// cannot be read.
pub(super) async fn read(
    engine: &Engine,
    ids: &[RecordId],
) -> Result<Vec<Option<Snapshot>>, CallFailure> {
    let script = &engine.scripts.list;
    let keys: Vec<_> = ids.iter().map(|id| engine.key(id)).collect();
    let mut replies = engine.router.send_each(&keys, |_, key| script.by_hash(&[key], &[])).await?;
    // A server that does not have the script in its cache.
    let mut lacking: Vec<_> = replies
        .iter_mut()
        .zip(&keys)
        .filter(|(reply, _)| {
            reply.as_ref().is_err_and(|failure| failure.reaction() == Some(Reaction::SendScript))
        })
        .collect();
    for some in lacking.chunks_mut(CONCURRENT_CALLS) {
        let target = (ConnectionRole::Lists, SendAgain::Once);
        let calls = some
            .iter()
            .map(|(_, key)| async move { engine.router.call(target, script, &[key], &[]).await });
        for (called, (reply, _)) in join_all(calls).await.into_iter().zip(some.iter_mut()) {
            **reply = called.map(|(value, _)| value);
        }
    }
    replies
        .into_iter()
        .map(|reply| match reply.and_then(snapshot) {
            Err(CallFailure::Unreadable(_)) => Ok(None),
            read => read,
        })
        .collect()
}

/// Decodes the reply of `lua/list.lua`.
fn snapshot(reply: Value) -> Result<Option<Snapshot>, CallFailure> {
    let (at, value, expires): (u64, Vec<u8>, i64) =
        redis::from_redis_value(reply).map_err(CallFailure::unexpected_reply)?;
    if value.is_empty() {
        return Ok(None);
    }
    let expires = Timestamp::from_millis(u64::try_from(expires).unwrap_or(0));
    let record = with_absolute_times(decode_beginning(&value)?, expires);
    Ok(Some(Snapshot::new(record, Timestamp::from_millis(at))))
}

/// The time of a server.
pub(super) async fn now(engine: &Engine) -> Result<Timestamp, CallFailure> {
    let node = engine.router.servers.masters().into_iter().next().ok_or(CallFailure::NoMaster)?;
    let time = redis::cmd("TIME");
    let time: Value =
        engine.router.send_to(&node, ConnectionRole::Lists, Message::Command(&time)).await?;
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(time).map_err(CallFailure::unexpected_reply)?;
    Ok(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
}
