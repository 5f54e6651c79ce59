//! Stores large recordings without a script, on servers that can compare a value before they
//! replace it: Valkey 8.1 or later.
//!
//! A script copies a recording several times, and the server does nothing else meanwhile. Instead
//! the store reads the claim, and replaces it with the completed record on the condition that it is
//! still the same value (`SET … IFEQ`). If the condition fails, or in any unusual case, the script
//! decides.
//!
//! The expiry is a length (`PX`), not a point in time (`PXAT`). The server propagates `SET … IFEQ …
//! PX` as a plain `SET … PXAT`, but `SET … IFEQ … PXAT` as it is, which an older replica refuses
//! and acknowledges all the same. A length is also right for a command that arrives late: a point
//! in time that has passed would delete the record.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use futures_util::future::join;
use redis::{RedisWrite, Value};

use super::read::value_on;
use crate::{
    encoding::{completion_args, encode_completed},
    engine::{Beside, Engine},
    error::CallFailure,
    net::{ConnectionRole, ConnectionRoute, SendAgain},
};
use idempotent_core::{Lease, RecordState, clock::millis, protocol::Fence, store::Effect};

/// The script completes a record that expires sooner than this, because a completion after the ttl
/// keeps the recording for the same ttl again, and only the server knows the time of the write.
const MIN_LEFT: Duration = Duration::from_secs(60);

/// Completes a claim. Returns whether it passed, and the connection on which it was sent last.
pub(crate) async fn complete_on(
    engine: &Engine,
    role: ConnectionRole,
    lease: &Lease,
    recording: &Bytes,
) -> Result<(Fence, ConnectionRoute), CallFailure> {
    if recording.len() >= engine.large
        && let Some(route) = Box::pin(complete_if_unchanged(engine, role, lease, recording)).await?
    {
        return Ok((Fence::Passed, route));
    }
    let args = completion_args(recording);
    let (how, record) = ((role, SendAgain::Once), (lease, Beside::ListIfTogether));
    engine.call_fenced(how, &engine.scripts.complete, record, &args).await
}

/// Completes a claim if it does not change between reading and writing it. Returns `None` if
/// the script has to decide.
async fn complete_if_unchanged(
    engine: &Engine,
    role: ConnectionRole,
    lease: &Lease,
    recording: &Bytes,
) -> Result<Option<ConnectionRoute>, CallFailure> {
    let key = engine.key(&lease.id);
    if !engine.router.servers.node(&key)?.compares_values() {
        return Ok(None);
    }
    let Some(found) = value_on(engine, role, &key).await?.0 else { return Ok(None) };
    let (record, at) = (&found.snapshot.record, found.snapshot.at);
    if record.owner != lease.owner
        || record.state != RecordState::InFlight
        // The script also removes the attempt from the index.
        || !record.notes.input.is_empty()
        || record.expires_at < at.after(MIN_LEFT)
    {
        return Ok(None);
    }
    let left = record.expires_at.duration_since(at);
    let mut set = redis::cmd("SET");
    set.arg(&key);
    {
        let mut value = set.writer_for_next_arg();
        let _ = value.write_all(&encode_completed(record, at, recording));
        let _ = value.write_all(recording);
    }
    set.arg("IFEQ").arg(&found.value[..]).arg("PX").arg(millis(left));
    let complete = engine.router.send((role, SendAgain::Once), &key, &set);
    let sent = match found.may_be_watched() {
        false => complete.await,
        true => {
            // Sent at the same time, on the same connection.
            let unwatch = engine.correct_list(role, &engine.scripts.unwatch, &lease.id, &[]);
            Box::pin(join(complete, unwatch)).await.0
        }
    };
    match sent {
        Ok((Value::Okay, route)) => Ok(Some(route)),
        // The record has changed, or an earlier call whose response was lost has completed it.
        Ok((Value::Nil, _)) => Ok(None),
        Ok(_) => Err(CallFailure::Unexpected),
        Err(failure) if failure.class().effect == Effect::Unknown => Err(failure),
        // A full server still executes the script.
        Err(_) => Ok(None),
    }
}
