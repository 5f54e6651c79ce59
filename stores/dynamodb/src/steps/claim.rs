//! Claiming a key.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::CLAIM_NEW,
    item::{Contents, Stored, Tag, decode, encode},
    service_time::Now,
};
use idempotent_core::{
    Lease, Record, RecordId,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, Renewal},
    transition::{self, Change},
};

use super::{
    decided::{DECISIONS, judged, replace},
    lookup::recording_of,
    renewal::{Watch, renew_one},
};

/// Claims a key: one write if it is new, or if it is completed and its recording is inline.
pub(crate) async fn claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<ClaimOutcome, CallFailure> {
    let mut found = None;
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let Some(stored) = found.take() else {
            match claim_new(engine, id, claim, now).await? {
                Ok(()) => return Ok(ClaimOutcome::Granted { attempt: 1 }),
                Err(met) => found = met,
            }
            continue;
        };
        match claim_again(engine, id, claim, (&stored, now)).await? {
            Ok(outcome) => return Ok(outcome),
            Err(met) => found = met,
        }
    }
    Err(CallFailure::Contended)
}

/// Claims a key that nobody has claimed, or returns its record.
async fn claim_new(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    now: Now,
) -> Result<Result<(), Option<Stored>>, CallFailure> {
    let (Change::Put(record), _) = transition::claim(None, claim, now.at) else {
        return Ok(Err(None));
    };
    let (tag, noted) = (Tag::random(), Tag::random());
    let stored = Stored { record, contents: Contents::default(), tag, noted, watched: false };
    let item = encode(&engine.keys, id, &stored);
    let expression = engine.expression(None, &[CLAIM_NEW], Vec::new());
    Ok(match engine.table.put(item, expression).await? {
        Ok(_) => Ok(()),
        Err(refused) => Err(refused.item.as_ref().map(decode).transpose()?),
    })
}

/// Claims a key that has a record. Returns what was found instead if that has changed.
async fn claim_again(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    (stored, now): (&Stored, Now),
) -> Result<Result<ClaimOutcome, Option<Stored>>, CallFailure> {
    let seen = judged(&stored.record, now);
    let starts_over = seen.is_expired(now.past);
    let (change, outcome) = transition::claim(Some(&seen), claim, now.past);
    if let ClaimOutcome::Rejected(Rejection::Completed(_)) = outcome {
        let recording = recording_of(engine, id, stored).await?;
        return Ok(recording.map(|bytes| ClaimOutcome::Rejected(Rejection::Completed(bytes))));
    }
    if change == Change::Keep {
        return Ok(Ok(in_flight_since(outcome, &stored.record, now)));
    }
    if !starts_over && stored.record.owner == claim.owner {
        return grant_again(engine, id, claim, stored).await;
    }
    // What has changed since it was surely past has changed by now.
    let (Change::Put(record), outcome) = transition::claim(Some(&stored.record), claim, now.at)
    else {
        return Ok(Ok(outcome));
    };
    let contents = if starts_over { Contents::default() } else { stored.contents.clone() };
    let seen = Stored { watched: stored.watched && !starts_over, ..stored.clone() };
    Ok(replace(engine, id, &seen, record, contents).await?.map(|()| outcome))
}

/// Starts the lease of a claim again whose owner sends it again: the response may have been lost.
/// Many sendings at once change the record after each other, so none is decided by its tag.
async fn grant_again(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    stored: &Stored,
) -> Result<Result<ClaimOutcome, Option<Stored>>, CallFailure> {
    let lease = Lease { id: *id, owner: claim.owner };
    let fence = renew_one(engine, &Renewal::new(lease, claim.lease), Watch::AsBefore).await?;
    if fence == Fence::Passed {
        return Ok(Ok(ClaimOutcome::Granted { attempt: stored.record.attempt }));
    }
    Ok(Err(engine.read(id).await?))
}

/// How long a lease lasts: until its end, or if that is not surely past, until it is.
fn in_flight_since(outcome: ClaimOutcome, record: &Record, now: Now) -> ClaimOutcome {
    if let ClaimOutcome::Rejected(Rejection::InFlight { lease_left, reference }) = outcome {
        let left = Some(record.lease_left(now.at)).filter(|left| !left.is_zero());
        let lease_left = left.unwrap_or(lease_left);
        ClaimOutcome::Rejected(Rejection::InFlight { lease_left, reference })
    } else {
        outcome
    }
}
