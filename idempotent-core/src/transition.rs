//! The whole state machine, as one pure function.
//!
//! ```text
//!                 claim                     complete(owner)
//!   ABSENT ───────────────► IN FLIGHT ────────────────────────► COMPLETED ──ttl──► ABSENT
//!     ▲    release(owner)      │  ▲ ▲                               ▲
//!     └────────────────────────┘  │ └─ renew(owner)                 │ complete(owner): a late first owner
//!                lease over:      │                                 │ that nobody replaced
//!                abandoned=retry ─┘                                 │
//!                abandoned=hold ──────────► HELD ───────────────────┘
//!                                             └─ resolve: complete as … | release
//! ```
//!
//! The functions take the record as it is, what happens, and the store's time; they give the change and the outcome. The memory
//! store applies the change under its shard's lock. The other stores make the same decision atomic in their own language, and the
//! conformance suite compares them with this one.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::{Timestamp, millis},
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Resolution, ResolveOutcome},
    record::{Record, RecordState},
    recording::Length,
};
/// What becomes of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It is written, or written over.
    Put(Record),
    /// It is removed.
    Remove,
}

/// What can happen to a record. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// Someone asks for the key.
    Claim(&'a Claim),
    /// The owner says that it is still at work, for so long.
    Renew(OwnerToken, Duration),
    /// The owner brings the answer.
    Complete(OwnerToken, &'a Bytes),
    /// The owner gives the key back: nothing was done.
    Release(OwnerToken),
    /// The owner gives up without knowing what was done.
    Abandon(OwnerToken, Abandoned),
    /// An operator says what became of a held key, having seen this owner.
    Resolve(OwnerToken, &'a Resolution),
    /// The store makes room.
    Purge,
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(claim) => f.debug_tuple("Claim").field(claim).finish(),
            Self::Renew(owner, lease) => f.debug_tuple("Renew").field(owner).field(lease).finish(),
            Self::Complete(owner, recording) => {
                f.debug_tuple("Complete").field(owner).field(&Length(recording)).finish()
            }
            Self::Release(owner) => f.debug_tuple("Release").field(owner).finish(),
            Self::Abandon(owner, policy) => f.debug_tuple("Abandon").field(owner).field(policy).finish(),
            Self::Resolve(owner, resolution) => f.debug_tuple("Resolve").field(owner).field(resolution).finish(),
            Self::Purge => f.write_str("Purge"),
        }
    }
}

/// What an event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Event::Claim`].
    Claim(ClaimOutcome),
    /// Of an event that only the owner may cause.
    Fence(Fence),
    /// Of [`Event::Resolve`].
    Resolve(ResolveOutcome),
    /// Of [`Event::Purge`]: whether the record was removed.
    Purge(bool),
}

/// One step of the state machine.
#[must_use]
pub fn transition(record: Option<&Record>, event: &Event<'_>, now: Timestamp) -> (Change, Outcome) {
    match *event {
        Event::Claim(request) => with(Outcome::Claim, claim(record, request, now)),
        Event::Renew(owner, lease) => with(Outcome::Fence, renew(record, owner, lease, now)),
        Event::Complete(owner, recording) => with(Outcome::Fence, complete(record, owner, recording, now)),
        Event::Release(owner) => with(Outcome::Fence, release(record, owner)),
        Event::Abandon(owner, policy) => with(Outcome::Fence, abandon(record, owner, policy)),
        Event::Resolve(seen, resolution) => with(Outcome::Resolve, resolve(record, seen, resolution, now)),
        Event::Purge => match record {
            Some(record) if record.expired(now) => (Change::Remove, Outcome::Purge(true)),
            // The record may have expired, but for a lease that was granted before the clock was set back.
            Some(record) if record.expires_at <= now => (keep(record, now), Outcome::Purge(false)),
            _ => (Change::Keep, Outcome::Purge(false)),
        },
    }
}

fn with<T>(outcome: impl Fn(T) -> Outcome, (change, result): (Change, T)) -> (Change, Outcome) {
    (change, outcome(result))
}

/// The record stays, but no longer in flight than for its lease from now.
fn keep(record: &Record, now: Timestamp) -> Change {
    record.shortened(now).map_or(Change::Keep, Change::Put)
}

/// Someone asks for the key.
#[must_use]
pub fn claim(record: Option<&Record>, claim: &Claim, now: Timestamp) -> (Change, ClaimOutcome) {
    let Some(record) = record.filter(|record| !record.expired(now)) else {
        return (Change::Put(first_claim(claim, now)), ClaimOutcome::Granted { attempt: 1 });
    };
    let in_flight = record.state == RecordState::InFlight;
    if in_flight && record.owner == claim.owner {
        // The acknowledgement may have taken most of the lease to get lost: what is granted is always a whole one.
        return (Change::Put(leased(record, claim.lease, now)), ClaimOutcome::Granted { attempt: record.attempt });
    }
    if record.fingerprint != claim.fingerprint {
        return (keep(record, now), ClaimOutcome::Mismatch { recorded: record.fingerprint });
    }
    match &record.state {
        RecordState::Completed(recording) => (Change::Keep, ClaimOutcome::Completed(recording.clone())),
        RecordState::Held => (Change::Keep, ClaimOutcome::Held { newly: false }),
        RecordState::InFlight if !record.lapsed(now) => {
            (keep(record, now), ClaimOutcome::InFlight { lease_left: record.lease_left(now) })
        }
        RecordState::InFlight => match record.abandoned.or(claim.abandoned) {
            Abandoned::Retry => {
                let attempt = record.attempt.saturating_add(1);
                let taken = Record { owner: claim.owner, attempt, ..leased(record, claim.lease, now) };
                (Change::Put(taken), ClaimOutcome::Granted { attempt })
            }
            Abandoned::Hold => (Change::Put(held(record)), ClaimOutcome::Held { newly: true }),
        },
    }
}

fn first_claim(claim: &Claim, now: Timestamp) -> Record {
    Record {
        fingerprint: claim.fingerprint,
        owner: claim.owner,
        attempt: 1,
        abandoned: claim.abandoned,
        lease: whole(claim.lease),
        lease_until: now.after(claim.lease),
        first_seen: now,
        expires_at: now.after(claim.ttl),
        state: RecordState::InFlight,
    }
}

fn leased(record: &Record, lease: Duration, now: Timestamp) -> Record {
    Record { lease: whole(lease), lease_until: now.after(lease), ..record.clone() }
}

fn whole(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

/// An answer that comes when the ttl is over is kept for as long again: what a handler did while its key could not expire, or what
/// an operator says it did, must not be forgotten in the same moment and done once more.
fn completed(record: &Record, recording: &Bytes, now: Timestamp) -> Record {
    let late = record.expires_at <= now;
    let expires_at = if late { now.after(record.expires_at.since(record.first_seen)) } else { record.expires_at };
    Record { expires_at, state: RecordState::Completed(recording.clone()), ..record.clone() }
}

fn held(record: &Record) -> Record {
    Record { state: RecordState::Held, ..record.clone() }
}

fn in_flight_of(record: Option<&Record>, owner: OwnerToken) -> Option<&Record> {
    record.filter(|record| record.state == RecordState::InFlight && record.owner == owner)
}

/// The owner says that it is still at work. A lease that lapsed is revived while nobody has taken it.
#[must_use]
pub fn renew(record: Option<&Record>, owner: OwnerToken, lease: Duration, now: Timestamp) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(record) => (Change::Put(leased(record, lease, now)), Fence::Passed),
        None => (Change::Keep, Fence::Fenced),
    }
}

/// The owner brings the answer. There is no test of time: whoever was not replaced may complete.
#[must_use]
pub fn complete(record: Option<&Record>, owner: OwnerToken, recording: &Bytes, now: Timestamp) -> (Change, Fence) {
    match record.filter(|record| record.owner == owner) {
        Some(record) => match record.state {
            RecordState::Completed(_) => (Change::Keep, Fence::Passed),
            RecordState::InFlight | RecordState::Held => {
                (Change::Put(completed(record, recording, now)), Fence::Passed)
            }
        },
        None => (Change::Keep, Fence::Fenced),
    }
}

/// The owner gives the key back.
#[must_use]
pub fn release(record: Option<&Record>, owner: OwnerToken) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(_) => (Change::Remove, Fence::Passed),
        None => (Change::Keep, Fence::Fenced),
    }
}

/// The owner gives up: the key is held, or its lease is over at once so that the next request can take it. The lease then ends at
/// [`Timestamp::EPOCH`], as no lease does that expires: so it is over even if the clock is set back, and one that was given up is
/// distinguished from one whose renewal is late.
#[must_use]
pub fn abandon(record: Option<&Record>, owner: OwnerToken, policy: Abandoned) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(record) => {
            let abandoned = match record.abandoned.or(policy) {
                Abandoned::Retry => Record { lease_until: Timestamp::EPOCH, ..record.clone() },
                Abandoned::Hold => held(record),
            };
            (Change::Put(abandoned), Fence::Passed)
        }
        None => (Change::Keep, Fence::Fenced),
    }
}

/// The owner of an answer that an operator gave: no claimer draws it. A late first owner that comes back with an answer of its own
/// is thereby fenced, and sends its client what everybody else gets.
pub const NOBODY: OwnerToken = OwnerToken::from_bytes([0; 16]);

/// An operator says what became of a held key.
#[must_use]
pub fn resolve(
    record: Option<&Record>,
    seen: OwnerToken,
    resolution: &Resolution,
    now: Timestamp,
) -> (Change, ResolveOutcome) {
    match record.filter(|record| record.is_held(now) && record.owner == seen) {
        Some(record) => {
            let change = match resolution {
                Resolution::Complete(recording) => {
                    Change::Put(Record { owner: NOBODY, ..completed(record, recording, now) })
                }
                Resolution::Release => Change::Remove,
            };
            (change, ResolveOutcome::Resolved)
        }
        None => {
            let seen = record.filter(|record| record.owner == seen);
            (seen.map_or(Change::Keep, |record| keep(record, now)), ResolveOutcome::Conflict)
        }
    }
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod table;
