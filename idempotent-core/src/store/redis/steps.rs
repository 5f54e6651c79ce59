//! The calls that the store is made of.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use redis::Value;
use tokio::{
    sync::mpsc::unbounded_channel,
    time::{Instant, timeout_at},
};

use super::{
    RedisStore,
    connections::Again,
    error::Failure,
    node::{Lane, Sent},
    packed::{GRACE, abandoned_code, pack, redis_millis, settle, unpack},
    scripts::{self, Arg, Script},
};
use crate::{
    clock::{Timestamp, millis},
    error::StoreError,
    fingerprint::Fingerprint,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Snapshot},
    record::{Record, RecordState},
    record_id::RecordId,
    transition,
};

/// How long renewals wait for each other at least, and at most as a part of the shortest lease. The
/// runtime waits a little longer.
const SHORTEST_ROUND: Duration = Duration::from_millis(750);
const ROUNDS: u32 = 8;

/// The outcome of a claim, and where it was sent.
pub(super) struct Claimed {
    pub(super) outcome: ClaimOutcome,
    /// The key was the owner's before the last call: one that was acknowledged, or one whose
    /// response was lost.
    pub(super) again: bool,
    pub(super) sent: Sent,
}

impl RedisStore {
    pub(super) fn key(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    /// Claims a key, in one round trip if the key is new or completed. A server that takes no
    /// writes, because it is full or has too few replicas, can still read the record.
    pub(super) async fn claim_on(&self, lane: Lane, key: &[u8], claim: &Claim) -> Result<Claimed, Failure> {
        match self.claim_writing(lane, key, claim).await {
            Err(refused) if refused.is_write_refused() => self.claim_reading(refused, lane, key, claim).await,
            claimed => claimed,
        }
    }

    /// The outcome of a claim that changes nothing, or else the reason why the claim was refused.
    async fn claim_reading(&self, refused: Failure, lane: Lane, key: &[u8], claim: &Claim) -> Result<Claimed, Failure> {
        let (found, sent) = self.read_on(lane, key).await?;
        let Some(found) = found else { return Err(refused) };
        let outcome = transition::claim(Some(&found.record), claim, found.at).1;
        if matches!(outcome, ClaimOutcome::Granted { .. }) {
            return Err(refused);
        }
        Ok(Claimed { outcome, again: false, sent })
    }

    async fn claim_writing(&self, lane: Lane, key: &[u8], claim: &Claim) -> Result<Claimed, Failure> {
        // A key that could come to be held has no expiry, from which its first time could be found
        // again; the expiry of a key whose lease is longer than its ttl would not tell the ttl; and
        // an answer that is not kept at all would tell no time at all.
        let ttl = redis_millis(claim.ttl);
        if claim.abandoned == Abandoned::Hold || claim.lease > claim.ttl || ttl == 0 {
            return self.claim_by_script(lane, key, claim).await;
        }
        let mut set = redis::cmd("SET");
        set.arg(key).arg(pack(claim)).arg("NX").arg("GET").arg("PX").arg(ttl + millis(GRACE));
        let (value, sent) = self.connections.send((lane, Again::Yes), key, &set).await?;
        match found(value)? {
            None => Ok(Claimed { outcome: ClaimOutcome::Granted { attempt: 1 }, again: false, sent }),
            // Only the server's clock can decide. Between the two calls the record may change; the
            // script reads it again.
            Some(record) if record.state == RecordState::InFlight => self.claim_by_script(lane, key, claim).await,
            // An answer is there until it expires, and what is held does not: what is said of them
            // is the same at every time, and no claim is granted at the first.
            Some(record) => {
                let outcome = transition::claim(Some(&record), claim, Timestamp::from_millis(0)).1;
                Ok(Claimed { outcome, again: false, sent })
            }
        }
    }

    async fn claim_by_script(&self, lane: Lane, key: &[u8], claim: &Claim) -> Result<Claimed, Failure> {
        let fingerprint = claim.fingerprint.to_bytes();
        let args = [
            Arg::Bytes(&fingerprint),
            Arg::Bytes(claim.owner.as_bytes()),
            Arg::Number(redis_millis(claim.lease)),
            Arg::Number(redis_millis(claim.ttl)),
            Arg::Number(abandoned_code(claim.abandoned).into()),
        ];
        let (value, sent) = self.connections.call((lane, Again::Yes), &scripts::CLAIM, key, &args).await?;
        outcome(value).map(|(outcome, again)| Claimed { outcome, again, sent })
    }

    /// A step that only the owner may take.
    pub(super) async fn owned(
        &self,
        operation: &'static str,
        again: Again,
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<Fence, StoreError> {
        let passed = self.take((Lane::Work, again), script, lease, more).await;
        passed.map(|(passed, _)| fence(passed)).map_err(|failure| failure.into_error(operation))
    }

    /// Renews all leases at once. A server that does not respond does not delay what is known of
    /// the others.
    ///
    /// The calls run in a separate task: one that was sent is not cancelled when the time is over,
    /// so that a server that hangs is noticed. It is not sent again after that: it could revive a
    /// lease that its owner has abandoned since.
    pub(super) async fn renew_all(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let Some(shortest) = leases.iter().map(|renewal| renewal.extend).min() else { return Ok(Vec::new()) };
        let responding = self.connections.times.responding;
        let until = Instant::now() + (shortest / ROUNDS).max(SHORTEST_ROUND).min(responding);
        let (done, mut results) = unbounded_channel();
        let (store, renewals) = (self.clone(), leases.to_vec());
        let runtime = tokio::runtime::Handle::try_current();
        runtime.map_err(|_| Failure::NoRuntime.into_error("renew"))?.spawn(async move {
            let store = &store;
            let calls = renewals.iter().enumerate().map(|(number, renewal)| {
                let done = done.clone();
                async move {
                    let _ = done.send((number, store.renew_one(renewal, until).await));
                }
            });
            join_all(calls).await;
        });
        let (mut outcomes, mut any, mut failed) = (vec![RenewOutcome::Unknown; leases.len()], false, None);
        while let Ok(Some((number, result))) = timeout_at(until, results.recv()).await {
            match (result, outcomes.get_mut(number)) {
                (Ok(renewed), Some(outcome)) => (any, *outcome) = (true, renewed),
                (Err(failure), _) if failed.is_none() || failure.is_transient() => failed = Some(failure),
                _ => {}
            }
        }
        if !any {
            return Err(failed.unwrap_or(Failure::Late).into_error("renew"));
        }
        if let Some(failure) = failed {
            let cause = std::error::Error::source(&failure);
            tracing::warn!(error = %failure, cause, "some leases could not be renewed; retrying");
        }
        Ok(outcomes)
    }

    /// Renews one lease. It is sent once more if its connection is lost before `until`.
    async fn renew_one(&self, renewal: &Renewal, until: Instant) -> Result<RenewOutcome, Failure> {
        let extend = [Arg::Number(redis_millis(renewal.extend))];
        let renew = || self.take((Lane::Renewal, Again::No), &scripts::RENEW, &renewal.lease, &extend);
        let renewed = match renew().await {
            Err(failure) if failure.is_outcome_unknown() && Instant::now() < until => renew().await,
            result => result,
        };
        renewed.map(|(passed, _)| fence(passed).into())
    }

    /// Calls a script that compares the owner. Returns whether it took its step, and where.
    pub(super) async fn take(
        &self,
        how: (Lane, Again),
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<(bool, Sent), Failure> {
        let args = [&[Arg::Bytes(lease.owner.as_bytes())], more].concat();
        match self.connections.call(how, script, &self.key(&lease.id), &args).await? {
            (Value::Int(taken @ (0 | 1)), sent) => Ok((taken == 1, sent)),
            _ => Err(Failure::Unexpected),
        }
    }

    pub(super) async fn read(&self, id: &RecordId) -> Result<Option<Snapshot>, Failure> {
        Ok(self.read_on(Lane::Work, &self.key(id)).await?.0)
    }

    async fn read_on(&self, lane: Lane, key: &[u8]) -> Result<(Option<Snapshot>, Sent), Failure> {
        let (found, sent) = self.connections.call((lane, Again::Yes), &scripts::LOOK_UP, key, &[]).await?;
        let Value::Array(found) = found else {
            return if found == Value::Nil { Ok((None, sent)) } else { Err(Failure::Unexpected) };
        };
        let [Value::Int(at), Value::BulkString(value), Value::Int(expires)] = three(found)? else {
            return Err(Failure::Unexpected);
        };
        let [at, expires] = [at, expires].map(|time| Timestamp::from_millis(u64::try_from(time).unwrap_or(0)));
        let record = settle(unpack(value.into())?, expires);
        Ok((Some(Snapshot { record, at }).filter(|found| !found.record.expired(at)), sent))
    }
}

fn fence(passed: bool) -> Fence {
    if passed { Fence::Passed } else { Fence::Fenced }
}

/// What stood in the way of a new key.
fn found(value: Value) -> Result<Option<Record>, Failure> {
    let Value::BulkString(value) = value else {
        return if value == Value::Nil { Ok(None) } else { Err(Failure::Unexpected) };
    };
    Ok(Some(unpack(value.into())?))
}

/// Reads what `lua/claim.lua` returns: the outcome, and whether the key was granted to its owner
/// again.
fn outcome(value: Value) -> Result<(ClaimOutcome, bool), Failure> {
    let Value::Array(value) = value else { return Err(Failure::Unexpected) };
    let [code, detail] = <[Value; 2]>::try_from(value).map_err(|_| Failure::Unexpected)?;
    let outcome = match (&code, detail) {
        (Value::Int(1 | 6), Value::Int(attempt)) => {
            ClaimOutcome::Granted { attempt: u32::try_from(attempt).map_err(|_| Failure::Damaged)? }
        }
        (Value::Int(2), Value::BulkString(recording)) => ClaimOutcome::Completed(Bytes::from(recording)),
        (Value::Int(3), Value::Int(left)) => {
            ClaimOutcome::InFlight { lease_left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) }
        }
        (Value::Int(4), Value::Int(newly)) => ClaimOutcome::Held { newly: newly == 1 },
        (Value::Int(5), Value::BulkString(fingerprint)) => {
            let fingerprint = fingerprint.try_into().map_err(|_| Failure::Damaged)?;
            ClaimOutcome::Mismatch { recorded: Fingerprint::from_bytes(fingerprint) }
        }
        _ => return Err(Failure::Unexpected),
    };
    Ok((outcome, code == Value::Int(6)))
}

fn three(values: Vec<Value>) -> Result<[Value; 3], Failure> {
    values.try_into().map_err(|_| Failure::Unexpected)
}
