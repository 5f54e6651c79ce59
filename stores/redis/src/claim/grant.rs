//! The commands behind a claim.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::read::read_on;
use crate::{
    encoding::{
        GRACE, Unreadable, abandoned_code, decode, encode_claim, principal_bytes, recording_for,
        redis_millis, short_text,
    },
    engine::{Beside, Engine, FirstClaim},
    error::{CallFailure, Reaction},
    lua::{Arg, MAX_DIGITS},
    net::{ConnectionRole, ConnectionRoute, SendAgain},
};
use idempotent_core::{
    Abandoned, Fingerprint, Lease, RecordId, RecordState, ShortText,
    clock::{Timestamp, millis},
    protocol::{Claim, ClaimOutcome, Rejection},
    transition,
};

/// The outcome of a claim, and the connection on which it was sent.
pub(crate) struct ClaimReply {
    pub(crate) outcome: ClaimOutcome,
    /// Whether the owner already had the key before the last call: from an acknowledged claim, or
    /// from one whose response was lost.
    pub(crate) was_owned: bool,
    pub(crate) route: ConnectionRoute,
}

// What is boxed below keeps the future of a claim with one round trip small.

/// Claims a key, in one round trip if the key is new or completed. If the server refuses
/// writes, because it is full or has too few replicas, the record is only read.
pub(crate) async fn claim_on(
    engine: &Engine,
    role: ConnectionRole,
    (id, key): (&RecordId, &[u8]),
    claim: &Claim,
) -> Result<ClaimReply, CallFailure> {
    match claim_by_set(engine, role, (id, key), claim).await {
        Err(refused) if refused.reaction() == Some(Reaction::Read) => {
            Box::pin(claim_read_only(engine, refused, role, key, claim)).await
        }
        claimed => claimed,
    }
}

/// Returns the outcome of a claim that changes nothing, or the reason why the server refused
/// the write.
async fn claim_read_only(
    engine: &Engine,
    refused: CallFailure,
    role: ConnectionRole,
    key: &[u8],
    claim: &Claim,
) -> Result<ClaimReply, CallFailure> {
    let (found, route) = read_on(engine, role, key).await?;
    let Some(found) = found else { return Err(refused) };
    let outcome = transition::claim(Some(&found.record), claim, found.at).1;
    if matches!(outcome, ClaimOutcome::Granted { .. }) {
        return Err(refused);
    }
    Ok(ClaimReply { outcome, was_owned: false, route })
}

async fn claim_by_set(
    engine: &Engine,
    role: ConnectionRole,
    (id, key): (&RecordId, &[u8]),
    claim: &Claim,
) -> Result<ClaimReply, CallFailure> {
    // These claims need absolute times from the start: a key that can be held has no expiry
    // from which to derive its creation, an expiry that follows the lease does not determine
    // the ttl, and with a ttl of 0 the recording has no time at all.
    let ttl = redis_millis(claim.ttl);
    if claim.abandoned == Abandoned::Hold || claim.lease > claim.ttl || ttl == 0 {
        return Box::pin(claim_by_script(engine, role, id, claim)).await;
    }
    let (value, sent) = (encode_claim(claim), Instant::now());
    let set = set_new(key, &value, ttl + millis(GRACE));
    let (existing, route) = engine.router.send((role, SendAgain::Once), key, &set).await?;
    let Value::BulkString(existing) = existing else {
        if existing != Value::Nil {
            return Err(CallFailure::Unexpected);
        }
        // Other servers complete by the script only.
        if route.compares_values() {
            let (lease, times) = (Lease { id: *id, owner: claim.owner }, [sent, Instant::now()]);
            engine.first.remember(FirstClaim::new(lease, claim, value, times));
        }
        let outcome = ClaimOutcome::Granted { attempt: 1 };
        return Ok(ClaimReply { outcome, was_owned: false, route });
    };
    // A recording exists until it expires, and a held key does not expire, so their outcome depends
    // on no time.
    let outcome = match recording_for(&claim.fingerprint, existing.into()) {
        Ok(recording) => ClaimOutcome::Rejected(Rejection::Completed(recording)),
        Err(existing) => {
            let record = decode(existing)?;
            if record.state == RecordState::InFlight {
                // Only the server's clock can decide. Between the two calls the record may change;
                // the script reads it again.
                return Box::pin(claim_by_script(engine, role, id, claim)).await;
            }
            // At time 0 no claim is granted.
            transition::claim(Some(&record), claim, Timestamp::from_millis(0)).1
        }
    };
    Ok(ClaimReply { outcome, was_owned: false, route })
}

async fn claim_by_script(
    engine: &Engine,
    role: ConnectionRole,
    id: &RecordId,
    claim: &Claim,
) -> Result<ClaimReply, CallFailure> {
    let fingerprint = claim.fingerprint.to_bytes();
    let args = [
        Arg::Bytes(&fingerprint),
        Arg::Bytes(claim.owner.as_bytes()),
        Arg::Number(redis_millis(claim.lease)),
        Arg::Number(redis_millis(claim.ttl)),
        Arg::Number(abandoned_code(claim.abandoned).into()),
        Arg::Bytes(claim.operation.as_bytes()),
        Arg::Bytes(principal_bytes(claim)),
    ];
    // A record that holds its key is in the list already.
    let beside = if claim.abandoned == Abandoned::Hold { Beside::List } else { Beside::Nothing };
    let how = (role, SendAgain::Once);
    let (value, route) = engine.call(how, &engine.scripts.claim, (id, beside), &args).await?;
    claim_outcome(value).map(|(outcome, was_owned)| ClaimReply { outcome, was_owned, route })
}

/// `SET key value NX GET PX expiry`.
fn set_new(key: &[u8], value: &[u8], expiry: u64) -> Cmd {
    let length = "SETNXGETPX".len() + key.len() + value.len() + MAX_DIGITS;
    let mut set = Cmd::with_capacity(7, length);
    set.arg("SET").arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(expiry);
    set
}

/// Decodes the reply of `lua/claim.lua`: the outcome, and whether the key was granted to its owner
/// again.
fn claim_outcome(value: Value) -> Result<(ClaimOutcome, bool), CallFailure> {
    let Value::Array(value) = value else { return Err(CallFailure::Unexpected) };
    let outcome = match value.as_slice() {
        [Value::Int(1 | 6), Value::Int(attempt)] => {
            ClaimOutcome::Granted { attempt: u32::try_from(*attempt).map_err(|_| Unreadable)? }
        }
        [Value::Int(2), Value::BulkString(_)] => {
            let Some(Value::BulkString(recording)) = value.into_iter().nth(1) else {
                return Err(CallFailure::Unexpected);
            };
            return Ok((ClaimOutcome::Rejected(Rejection::Completed(recording.into())), false));
        }
        [Value::Int(3), Value::Int(lease_left), Value::BulkString(noted)] => {
            ClaimOutcome::Rejected(Rejection::InFlight {
                lease_left: Duration::from_millis(u64::try_from(*lease_left).unwrap_or(0)),
                reference: reference(noted)?,
            })
        }
        [Value::Int(4), Value::Int(newly), Value::BulkString(noted)] => {
            ClaimOutcome::Rejected(Rejection::Held {
                newly: *newly == 1,
                reference: reference(noted)?,
            })
        }
        [Value::Int(5), Value::BulkString(fingerprint)] => {
            let fingerprint = fingerprint.as_slice().try_into().map_err(|_| Unreadable)?;
            ClaimOutcome::Rejected(Rejection::Mismatch {
                recorded: Fingerprint::from_bytes(fingerprint),
            })
        }
        _ => return Err(CallFailure::Unexpected),
    };
    Ok((outcome, value.first() == Some(&Value::Int(6))))
}

fn reference(noted: &[u8]) -> Result<Option<ShortText>, Unreadable> {
    short_text(noted).map(|text| Some(text).filter(|text| !text.is_empty()))
}
