//! Reading records for a list.

use futures_util::future::join_all;
use redis::Value;

use crate::{
    encoding::{decode_beginning, with_absolute_times},
    engine::Engine,
    error::{CallFailure, Reaction},
    net::{ConnectionRole, SendAgain},
};
use idempotent_core::{RecordId, clock::Timestamp, protocol::Snapshot};

/// How many calls are sent at the same time if they are not sent in one write.
pub(super) const CONCURRENT_CALLS: usize = 32;

/// What was found under an id.
#[expect(clippy::large_enum_variant, reason = "nearly all are records, of one page")]
pub(super) enum Found {
    Absent,
    Record(Snapshot),
    Unreadable,
}

/// Reads records without their recordings, steps and inputs.
pub(super) async fn read(engine: &Engine, ids: &[RecordId]) -> Result<Vec<Found>, CallFailure> {
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
        .map(|reply| match reply.and_then(found) {
            Err(CallFailure::Unreadable(_)) => Ok(Found::Unreadable),
            found => found,
        })
        .collect()
}

/// Decodes the reply of `lua/list.lua`.
fn found(reply: Value) -> Result<Found, CallFailure> {
    let (at, value, expires): (u64, Vec<u8>, i64) =
        redis::from_redis_value(reply).map_err(CallFailure::unexpected_reply)?;
    if value.is_empty() {
        return Ok(Found::Absent);
    }
    let expires = Timestamp::from_millis(u64::try_from(expires).unwrap_or(0));
    let record = with_absolute_times(decode_beginning(&value)?, expires);
    Ok(Found::Record(Snapshot::new(record, Timestamp::from_millis(at))))
}
