//! Claiming a key.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::CLAIM_NEW,
    item::{Contents, Stored, Tag, decode, encode},
    service_time::Now,
};
use idempotent_core::{
    Record, RecordId,
    protocol::{Claim, ClaimOutcome, Rejection},
    transition::{self, Change},
};

use super::{
    DECISIONS,
    decided::{as_seen, replace, with_lease},
    lookup::recording_of,
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
    let Some(record) = first(claim, now) else { return Ok(Err(None)) };
    let (tag, noted) = (Tag::random(), Tag::random());
    let stored = Stored { record, contents: Contents::default(), tag, noted, watched: false };
    let item = encode(&engine.keys, id, &stored);
    let expression = engine.expression(None, &[CLAIM_NEW], Vec::new());
    Ok(match engine.table.put(item, expression).await? {
        Ok(_) => Ok(()),
        Err(refused) => Err(refused.item.as_ref().map(decode).transpose()?),
    })
}

/// The record of a first attempt. Its times are the earliest, but what lasts ends at the latest.
fn first(claim: &Claim, now: Now) -> Option<Record> {
    let (Change::Put(mut record), _) = transition::claim(None, claim, now.earliest) else {
        return None;
    };
    record.expires_at = now.latest.after(claim.ttl);
    Some(with_lease(record, claim.lease, now))
}

/// Claims a key that has a record. Returns what was found instead if that has changed.
async fn claim_again(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    (stored, now): (&Stored, Now),
) -> Result<Result<ClaimOutcome, Option<Stored>>, CallFailure> {
    let seen = as_seen(&stored.record, now);
    let (change, outcome) = transition::claim(Some(&seen), claim, now.earliest);
    let starts_over = seen.is_expired(now.earliest);
    match (change, &outcome) {
        (Change::Keep | Change::Remove, ClaimOutcome::Rejected(Rejection::Completed(_))) => {
            let recording = recording_of(engine, id, stored).await?;
            Ok(recording.map(|bytes| ClaimOutcome::Rejected(Rejection::Completed(bytes))))
        }
        (Change::Keep | Change::Remove, _) => Ok(Ok(outcome)),
        (Change::Put(record), ClaimOutcome::Granted { .. }) => {
            let (record, contents) = match first(claim, now).filter(|_| starts_over) {
                Some(first) => (first, Contents::default()),
                None => (with_lease(record, claim.lease, now), stored.contents.clone()),
            };
            let watched = stored.watched && !starts_over;
            let seen = Stored { watched, ..stored.clone() };
            let written = replace(engine, id, &seen, record, contents).await?;
            Ok(written.map(|()| outcome))
        }
        // The key becomes held, or its lease is shortened.
        (Change::Put(record), ClaimOutcome::Rejected(_)) => {
            let written = replace(engine, id, stored, record, stored.contents.clone()).await?;
            Ok(written.map(|()| outcome))
        }
    }
}
