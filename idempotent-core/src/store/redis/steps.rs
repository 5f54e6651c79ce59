//! The calls that the store is made of.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::{
    NAME, RedisStore,
    connections::{Again, Connection, Lane},
    error::{Failure, TooFewReplicas},
    packed::{GRACE, abandoned_code, pack, redis_millis, settle, unpack},
    replicas::Replicas,
    scripts::{self, Arg, Script},
};
use crate::{
    clock::{Timestamp, millis},
    error::StoreError,
    fingerprint::Fingerprint,
    lease::Lease,
    policy::Abandoned,
    record::{Record, RecordId, State},
    store::{Claim, ClaimOutcome, Fence, Found, RenewOutcome},
    transition,
};

type Claimed = Result<(ClaimOutcome, Connection), Failure>;

impl RedisStore {
    pub(super) fn key(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    /// Asks for a key in one round trip, where the key is new or its answer is there.
    pub(super) async fn claim_on(&self, lane: Lane, key: &[u8], claim: &Claim) -> Claimed {
        // A key that could come to be held has no expiry, from which its first time could be found again; the expiry of a key whose
        // lease is longer than its ttl would not tell the ttl; and an answer that is not kept at all would tell no time at all.
        let ttl = redis_millis(claim.ttl);
        if claim.abandoned == Abandoned::Hold || claim.lease > claim.ttl || ttl == 0 {
            return self.claim_by_script(lane, key, claim).await;
        }
        let mut set = redis::cmd("SET");
        set.arg(key).arg(pack(claim)).arg("NX").arg("GET").arg("PX").arg(ttl + millis(GRACE));
        let (value, connection) = self.connections.send((lane, Again::Yes), &set).await?;
        match found(value)? {
            None => Ok((ClaimOutcome::Granted { attempt: 1 }, connection)),
            // Only the server's clock can tell what becomes of it. Between the two calls it may change: the script looks again.
            Some(record) if record.state == State::InFlight => self.claim_by_script(lane, key, claim).await,
            // An answer is there until it expires, and what is held does not: what is said of them is the same at every time, and
            // no claim is granted at the first.
            Some(record) => Ok((transition::claim(Some(&record), claim, Timestamp::from_millis(0)).1, connection)),
        }
    }

    async fn claim_by_script(&self, lane: Lane, key: &[u8], claim: &Claim) -> Claimed {
        let fingerprint = claim.fingerprint.to_bytes();
        let args = [
            Arg::Bytes(&fingerprint),
            Arg::Bytes(claim.owner.as_bytes()),
            Arg::Number(redis_millis(claim.lease)),
            Arg::Number(redis_millis(claim.ttl)),
            Arg::Number(abandoned_code(claim.abandoned).into()),
        ];
        let (answer, connection) = self.connections.call((lane, Again::Yes), &scripts::CLAIM, key, &args).await?;
        outcome(answer).map(|outcome| (outcome, connection))
    }

    /// Asks for a key, and gives it back unless enough replicas have the claim.
    pub(super) async fn claim_replicated(
        &self,
        replicas: &Replicas,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let failed = |failure: Failure| failure.into_error("claim");
        let (lane, key) = (replicas.lane().await, self.key(id));
        let (outcome, mut connection) = self.claim_on(Lane::Waiting(lane.number), &key, claim).await.map_err(failed)?;
        if !matches!(outcome, ClaimOutcome::Granted { .. }) {
            return Ok(outcome);
        }
        let waited = connection.wire.wait(&key, replicas.wanted, replicas.within).await;
        let source: Box<dyn std::error::Error + Send + Sync> = match waited {
            Ok(found) if found >= u64::from(replicas.wanted) => return Ok(outcome),
            Ok(found) => Box::new(TooFewReplicas { wanted: replicas.wanted, found }),
            Err(error) => Box::new(error),
        };
        // The claim is told to be of unknown outcome either way; if this fails too, it lapses by itself.
        let lease = Lease { id: *id, owner: claim.owner };
        let _ = self.owned("claim", Again::No, &scripts::RELEASE, &lease, &[]).await;
        Err(StoreError::transient(NAME, "claim", source))
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
        passed.map(fence).map_err(|failure| failure.into_error(operation))
    }

    pub(super) async fn renew_one(&self, lease: &Lease, extend: Duration) -> Result<RenewOutcome, Failure> {
        let extend = [Arg::Number(redis_millis(extend))];
        self.take((Lane::Renewal, Again::Yes), &scripts::RENEW, lease, &extend).await.map(|passed| fence(passed).into())
    }

    /// Calls a script that compares the owner and says whether it took its step.
    pub(super) async fn take(
        &self,
        how: (Lane, Again),
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<bool, Failure> {
        let args = [&[Arg::Bytes(lease.owner.as_bytes())], more].concat();
        match self.connections.call(how, script, &self.key(&lease.id), &args).await? {
            (Value::Int(taken @ (0 | 1)), _) => Ok(taken == 1),
            _ => Err(Failure::Unexpected),
        }
    }

    pub(super) async fn read(&self, id: &RecordId) -> Result<Option<Found>, Failure> {
        let (answer, _) =
            self.connections.call((Lane::Work, Again::Yes), &scripts::LOOK_UP, &self.key(id), &[]).await?;
        let Value::Array(answer) = answer else {
            return if answer == Value::Nil { Ok(None) } else { Err(Failure::Unexpected) };
        };
        let [Value::Int(at), Value::BulkString(value), Value::Int(expires)] = three(answer)? else {
            return Err(Failure::Unexpected);
        };
        let [at, expires] = [at, expires].map(|time| Timestamp::from_millis(u64::try_from(time).unwrap_or(0)));
        let record = settle(unpack(value.into())?, expires);
        Ok(Some(Found { record, at }).filter(|found| !found.record.expired(at)))
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

/// What `lua/claim.lua` answers.
fn outcome(answer: Value) -> Result<ClaimOutcome, Failure> {
    let Value::Array(answer) = answer else { return Err(Failure::Unexpected) };
    let [code, detail] = <[Value; 2]>::try_from(answer).map_err(|_| Failure::Unexpected)?;
    match (code, detail) {
        (Value::Int(1), Value::Int(attempt)) => {
            Ok(ClaimOutcome::Granted { attempt: u32::try_from(attempt).map_err(|_| Failure::Damaged)? })
        }
        (Value::Int(2), Value::BulkString(recording)) => Ok(ClaimOutcome::Completed(Bytes::from(recording))),
        (Value::Int(3), Value::Int(left)) => {
            Ok(ClaimOutcome::InFlight { lease_left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) })
        }
        (Value::Int(4), _) => Ok(ClaimOutcome::Held),
        (Value::Int(5), Value::BulkString(fingerprint)) => {
            let fingerprint = fingerprint.try_into().map_err(|_| Failure::Damaged)?;
            Ok(ClaimOutcome::Mismatch { recorded: Fingerprint::from_bytes(fingerprint) })
        }
        _ => Err(Failure::Unexpected),
    }
}

fn three(values: Vec<Value>) -> Result<[Value; 3], Failure> {
    values.try_into().map_err(|_| Failure::Unexpected)
}
