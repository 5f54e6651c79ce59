//! Completions. On servers that can compare a value before they replace it (Valkey 8.1 or later),
//! most need no script: the completed record replaces the claim on the condition that it is still
//! the same value (`SET … IFEQ`).
//!
//! * A [first claim](FirstClaim) is compared with the value that this process has written.
//! * Otherwise, a large recording takes a second round trip, which reads the claim. A script would
//!   copy the recording several times, and the server does nothing else meanwhile.
//!
//! If the condition fails, or in any unusual case, the script decides.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use tokio::time::Instant;

use super::read::value_on;
use crate::{
    encoding::{completion_args, encode_completed},
    engine::{Beside, Engine, FirstClaim, replaced, set_if_equal},
    error::CallFailure,
    net::{ConnectionRole, ConnectionRoute, SendAgain},
};
use idempotent_core::{Lease, RecordState, clock::millis, protocol::Fence};

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
    if let Some(first) = engine.first.take(lease)
        && let Some(route) = complete_first(engine, role, lease, &first, recording).await?
    {
        return Ok((Fence::Passed, route));
    }
    if recording.len() >= engine.large
        && let Some(route) = Box::pin(complete_if_unchanged(engine, role, lease, recording)).await?
    {
        return Ok((Fence::Passed, route));
    }
    let args = completion_args(recording);
    let (how, record) = ((role, SendAgain::Once), (lease, Beside::ListIfTogether));
    engine.call_fenced(how, &engine.scripts.complete, record, &args).await
}

/// Completes a first claim, unless it has changed since this process has written it. Returns `None`
/// if the script has to decide.
async fn complete_first(
    engine: &Engine,
    role: ConnectionRole,
    lease: &Lease,
    first: &FirstClaim,
    recording: &Bytes,
) -> Result<Option<ConnectionRoute>, CallFailure> {
    let key = engine.key(&lease.id);
    // Another server may have become the master since the claim.
    if !engine.router.servers.node(&key)?.compares_values() {
        return Ok(None);
    }
    let Some(left) = first.left(Instant::now()) else { return Ok(None) };
    let set = first.completion(&key, recording, left);
    replaced(engine.router.send((role, SendAgain::Once), &key, &set).await)
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
    let head = encode_completed(record, at, recording);
    let set = set_if_equal(&key, [&head, recording], &found.value, millis(left));
    let complete = engine.router.send((role, SendAgain::Once), &key, &set);
    let sent = match found.may_be_watched() {
        false => complete.await,
        true => {
            // Sent at the same time, on the same connection.
            let unwatch = engine.correct_list(role, &engine.scripts.unwatch, &lease.id, &[]);
            Box::pin(join(complete, unwatch)).await.0
        }
    };
    replaced(sent)
}
