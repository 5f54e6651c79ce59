//! The commands and scripts behind each step.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::{
    sync::mpsc::unbounded_channel,
    time::{Instant, timeout_at},
};

use crate::{
    encoding::{
        GRACE, Unreadable, abandoned_code, decode, encode_claim, principal_bytes, redis_millis,
        short_text, with_absolute_times,
    },
    error::{
        CallFailure,
        server_error::{LOST, Reaction},
    },
    lua::{Arg, MAX_DIGITS, Script},
    net::{
        node::{ConnectionRole, ConnectionRoute},
        router::SendAgain,
    },
    store::RedisStore,
};
use idempotent_core::{
    Abandoned, Fingerprint, Lease, Record, RecordId, RecordState, ShortText, StoreError,
    clock::{Timestamp, millis},
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Snapshot},
    transition,
};

pub(crate) mod completion;
pub(crate) mod replicated;

/// The minimum time for a round of renewals, and its maximum as a fraction of the shortest lease.
/// The runtime waits a little longer.
const MIN_RENEWAL_WAIT: Duration = Duration::from_millis(750);
const LEASE_FRACTION: u32 = 8;

/// The outcome of a claim, and the connection on which it was sent.
pub(crate) struct ClaimReply {
    pub(crate) outcome: ClaimOutcome,
    /// Whether the owner already had the key before the last call: from an acknowledged claim, or
    /// from one whose response was lost.
    pub(crate) was_owned: bool,
    pub(crate) route: ConnectionRoute,
}

/// A record that was read, with absolute times, and the value from which it was decoded.
pub(crate) struct StoredValue {
    pub(crate) snapshot: Snapshot,
    pub(crate) value: Bytes,
}

impl RedisStore {
    pub(crate) fn key(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    // What is boxed below keeps the future of a claim with one round trip small.

    /// Claims a key, in one round trip if the key is new or completed. If the server refuses
    /// writes, because it is full or has too few replicas, the record is only read.
    pub(crate) async fn claim_on(
        &self,
        role: ConnectionRole,
        key: &[u8],
        claim: &Claim,
    ) -> Result<ClaimReply, CallFailure> {
        match self.claim_by_set(role, key, claim).await {
            Err(refused) if refused.reaction() == Some(Reaction::Read) => {
                Box::pin(self.claim_read_only(refused, role, key, claim)).await
            }
            claimed => claimed,
        }
    }

    /// Returns the outcome of a claim that changes nothing, or the reason why the server refused
    /// the write.
    async fn claim_read_only(
        &self,
        refused: CallFailure,
        role: ConnectionRole,
        key: &[u8],
        claim: &Claim,
    ) -> Result<ClaimReply, CallFailure> {
        let (found, route) = self.read_on(role, key).await?;
        let Some(found) = found else { return Err(refused) };
        let outcome = transition::claim(Some(&found.record), claim, found.at).1;
        if matches!(outcome, ClaimOutcome::Granted { .. }) {
            return Err(refused);
        }
        Ok(ClaimReply { outcome, was_owned: false, route })
    }

    async fn claim_by_set(
        &self,
        role: ConnectionRole,
        key: &[u8],
        claim: &Claim,
    ) -> Result<ClaimReply, CallFailure> {
        // These claims need absolute times from the start: a key that can be held has no expiry
        // from which to derive its creation, an expiry that follows the lease does not determine
        // the ttl, and with a ttl of 0 the recording has no time at all.
        let ttl = redis_millis(claim.ttl);
        if claim.abandoned == Abandoned::Hold || claim.lease > claim.ttl || ttl == 0 {
            return Box::pin(self.claim_by_script(role, key, claim)).await;
        }
        let set = set_new(key, &encode_claim(claim), ttl + millis(GRACE));
        let (value, route) = self.router.send((role, SendAgain::Once), key, &set).await?;
        match existing_record(value)? {
            None => Ok(ClaimReply {
                outcome: ClaimOutcome::Granted { attempt: 1 },
                was_owned: false,
                route,
            }),
            // Only the server's clock can decide. Between the two calls the record may change; the
            // script reads it again.
            Some(record) if record.state == RecordState::InFlight => {
                Box::pin(self.claim_by_script(role, key, claim)).await
            }
            // A recording exists until it expires, and a held key does not expire, so their outcome
            // depends on no time; at time 0 no claim is granted.
            Some(record) => {
                let outcome = transition::claim(Some(&record), claim, Timestamp::from_millis(0)).1;
                Ok(ClaimReply { outcome, was_owned: false, route })
            }
        }
    }

    async fn claim_by_script(
        &self,
        role: ConnectionRole,
        key: &[u8],
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
        let (value, route) = self
            .router
            .call((role, SendAgain::Once), &self.router.scripts.claim, key, &args)
            .await?;
        claim_outcome(value).map(|(outcome, was_owned)| ClaimReply { outcome, was_owned, route })
    }

    /// Calls a script that compares the owner.
    pub(crate) async fn step(
        &self,
        operation: &'static str,
        resend: SendAgain,
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<Fence, StoreError> {
        let passed =
            self.call_fenced((ConnectionRole::Requests, resend), script, lease, more).await;
        passed.map(|(passed, _)| fence(passed)).map_err(|failure| failure.into_error(operation))
    }

    /// Renews all leases at once. A server that does not respond does not delay the others.
    ///
    /// The calls run in a separate task, so that a command that was sent is not cancelled when the
    /// time is over, and an unresponsive server is detected. It is not sent again after that: it
    /// could revive a lease that its owner has abandoned since.
    pub(crate) async fn renew_all(
        &self,
        leases: &[Renewal],
    ) -> Result<Vec<RenewOutcome>, StoreError> {
        let Some(shortest) = leases.iter().map(|renewal| renewal.extend).min() else {
            return Ok(Vec::new());
        };
        let response = self.router.timeouts.response;
        let until =
            Instant::now() + (shortest / LEASE_FRACTION).max(MIN_RENEWAL_WAIT).min(response);
        let (done, mut results) = unbounded_channel();
        let (store, renewals) = (self.clone(), leases.to_vec());
        let runtime = tokio::runtime::Handle::try_current();
        runtime.map_err(|_| CallFailure::NoRuntime.into_error("renew"))?.spawn(async move {
            let store = &store;
            let calls = renewals.iter().enumerate().map(|(number, renewal)| {
                let done = done.clone();
                async move {
                    let _ = done.send((number, store.renew_one(renewal, until).await));
                }
            });
            join_all(calls).await;
        });
        let (mut outcomes, mut any, mut failed) =
            (vec![RenewOutcome::Unknown; leases.len()], false, None);
        while let Ok(Some((number, result))) = timeout_at(until, results.recv()).await {
            match (result, outcomes.get_mut(number)) {
                (Ok(renewed), Some(outcome)) => (any, *outcome) = (true, renewed),
                (Err(failure), _) if failed.is_none() || failure.is_transient() => {
                    failed = Some(failure)
                }
                _ => {}
            }
        }
        if !any {
            return Err(failed.unwrap_or(CallFailure::ResponseTimeout).into_error("renew"));
        }
        if let Some(failure) = failed {
            let cause = std::error::Error::source(&failure);
            tracing::warn!(error = %failure, cause, "some leases could not be renewed; retrying");
        }
        Ok(outcomes)
    }

    /// Renews one lease; sends it once more if its connection is lost before `until`.
    async fn renew_one(
        &self,
        renewal: &Renewal,
        until: Instant,
    ) -> Result<RenewOutcome, CallFailure> {
        let extend = [Arg::Number(redis_millis(renewal.extend))];
        let renew = || {
            self.call_fenced(
                (ConnectionRole::Renewals, SendAgain::Never),
                &self.router.scripts.renew,
                &renewal.lease,
                &extend,
            )
        };
        let renewed = match renew().await {
            Err(failure) if failure.class() == LOST && Instant::now() < until => renew().await,
            result => result,
        };
        renewed.map(|(passed, _)| fence(passed).into())
    }

    /// Calls a script that compares the owner. Returns whether it passed, and the connection on
    /// which it was sent. If the attempt has ended with an input, removes it from the index.
    pub(crate) async fn call_fenced(
        &self,
        how: (ConnectionRole, SendAgain),
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<(bool, ConnectionRoute), CallFailure> {
        let args = [&[Arg::Bytes(lease.owner.as_bytes())], more].concat();
        match self.router.call(how, script, &self.key(&lease.id), &args).await? {
            (Value::Int(called @ (0 | 1)), route) => Ok((called == 1, route)),
            (Value::Int(2), route) => {
                Box::pin(self.remove_from_index(&[*lease])).await;
                Ok((true, route))
            }
            _ => Err(CallFailure::Unexpected),
        }
    }

    pub(crate) async fn read(&self, id: &RecordId) -> Result<Option<Snapshot>, CallFailure> {
        Ok(self.read_on(ConnectionRole::Requests, &self.key(id)).await?.0)
    }

    async fn read_on(
        &self,
        role: ConnectionRole,
        key: &[u8],
    ) -> Result<(Option<Snapshot>, ConnectionRoute), CallFailure> {
        let (found, route) = self.value_on(role, key).await?;
        let snapshot = found.map(|found| found.snapshot);
        Ok((snapshot.filter(|found| !found.record.is_expired(found.at)), route))
    }

    /// Reads a record, which may have expired, and its encoded value.
    pub(crate) async fn value_on(
        &self,
        role: ConnectionRole,
        key: &[u8],
    ) -> Result<(Option<StoredValue>, ConnectionRoute), CallFailure> {
        let (found, route) = self
            .router
            .call((role, SendAgain::Once), &self.router.scripts.look_up, key, &[])
            .await?;
        let Value::Array(found) = found else {
            return if found == Value::Nil {
                Ok((None, route))
            } else {
                Err(CallFailure::Unexpected)
            };
        };
        let [Value::Int(at), Value::BulkString(value), Value::Int(expires)] = triple(found)? else {
            return Err(CallFailure::Unexpected);
        };
        let [at, expires] =
            [at, expires].map(|time| Timestamp::from_millis(u64::try_from(time).unwrap_or(0)));
        let value = Bytes::from(value);
        let record = with_absolute_times(decode(value.clone())?, expires);
        Ok((Some(StoredValue { snapshot: Snapshot::new(record, at), value }), route))
    }
}

/// `SET key value NX GET PX expiry`.
fn set_new(key: &[u8], value: &[u8], expiry: u64) -> Cmd {
    let length = "SETNXGETPX".len() + key.len() + value.len() + MAX_DIGITS;
    let mut set = Cmd::with_capacity(7, length);
    set.arg("SET").arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(expiry);
    set
}

pub(crate) fn fence(passed: bool) -> Fence {
    if passed { Fence::Passed } else { Fence::Fenced }
}

/// Decodes the existing value in the reply to `SET … NX GET`.
fn existing_record(value: Value) -> Result<Option<Record>, CallFailure> {
    let Value::BulkString(value) = value else {
        return if value == Value::Nil { Ok(None) } else { Err(CallFailure::Unexpected) };
    };
    Ok(Some(decode(value.into())?))
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
            return Ok((ClaimOutcome::Completed(recording.into()), false));
        }
        [Value::Int(3), Value::Int(lease_left), Value::BulkString(noted)] => {
            ClaimOutcome::InFlight {
                lease_left: Duration::from_millis(u64::try_from(*lease_left).unwrap_or(0)),
                reference: reference(noted)?,
            }
        }
        [Value::Int(4), Value::Int(newly), Value::BulkString(noted)] => {
            ClaimOutcome::Held { newly: *newly == 1, reference: reference(noted)? }
        }
        [Value::Int(5), Value::BulkString(fingerprint)] => {
            let fingerprint = fingerprint.as_slice().try_into().map_err(|_| Unreadable)?;
            ClaimOutcome::Mismatch { recorded: Fingerprint::from_bytes(fingerprint) }
        }
        _ => return Err(CallFailure::Unexpected),
    };
    Ok((outcome, value.first() == Some(&Value::Int(6))))
}

fn reference(noted: &[u8]) -> Result<Option<ShortText>, Unreadable> {
    short_text(noted).map(|text| Some(text).filter(|text| !text.is_empty()))
}

fn triple(values: Vec<Value>) -> Result<[Value; 3], CallFailure> {
    values.try_into().map_err(|_| CallFailure::Unexpected)
}
