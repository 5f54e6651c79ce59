//! The state machine of a record, as pure functions.
//!
//! ```text
//!                 claim                     complete(owner)
//!   ABSENT ───────────────► IN FLIGHT ────────────────────────► COMPLETED ──ttl──► ABSENT
//!     ▲    release(owner)      │  ▲ ▲                               ▲
//!     └────────────────────────┘  │ └─ renew(owner)                 │ complete(owner): late, but
//!               lease expired:    │                                 │ not replaced
//!                abandoned=retry ─┘                                 │
//!                abandoned=hold ──────────► HELD ───────────────────┘
//!                                             └─ resolve: COMPLETED or ABSENT
//! ```
//!
//! [`transition`] takes a record, an event and the store's time, and returns the change of the
//! record and the outcome of the event. Each event except the purge also has a function. The memory
//! store applies the change while it has the record locked. The other stores make the same
//! decisions atomic in their own language, and the conformance suite compares them with these
//! functions.
//!
//! The enums are exhaustive: a store must handle every event and every change.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    clock::{Timestamp, millis},
    history::{History, Kind},
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection},
    record::{Notes, Record, RecordState},
    recording::EncodedRecording,
};

mod events;
mod operators;

pub use events::{Change, Event, EventOutcome};
pub use operators::{OPERATOR, append_history, remove, replace, resolve};

/// Takes one step of the state machine: returns what happens to the record, and the outcome of the
/// event. `None` is an absent record.
#[must_use]
pub fn transition(
    record: Option<&Record>,
    event: &Event<'_>,
    now: Timestamp,
) -> (Change, EventOutcome) {
    match *event {
        Event::Claim(request) => with(EventOutcome::Claim, claim(record, request, now)),
        Event::Renew(owner, lease) => with(EventOutcome::Fence, renew(record, owner, lease, now)),
        Event::Note(owner, added) => with(EventOutcome::Fence, note(record, owner, added)),
        Event::Complete(owner, recording) => {
            with(EventOutcome::Fence, complete(record, owner, recording, now))
        }
        Event::Release(owner) => with(EventOutcome::Fence, release(record, owner)),
        Event::Abandon(owner, policy) => {
            with(EventOutcome::Fence, abandon(record, owner, policy, now))
        }
        Event::Resolve(seen, resolution) => {
            with(EventOutcome::Resolve, resolve(record, seen, resolution, now))
        }
        Event::Remove(removal) => with(EventOutcome::Changed, remove(record, &removal, now)),
        Event::Replace(replacement) => with(EventOutcome::Changed, replace(record, replacement)),
        Event::Append(kind) => (append_history(record, kind, now), EventOutcome::Appended),
        Event::Purge => match record {
            Some(record) if record.is_expired(now) => (Change::Remove, EventOutcome::Purge(true)),
            // The record stays until its lease has expired. The lease is shortened if it was
            // granted before the clock was set back.
            Some(record) if record.expires_at <= now && record.abandoned == Abandoned::Retry => {
                (keep(record, now), EventOutcome::Purge(false))
            }
            _ => (Change::Keep, EventOutcome::Purge(false)),
        },
    }
}

fn with<T>(
    outcome: impl Fn(T) -> EventOutcome,
    (change, result): (Change, T),
) -> (Change, EventOutcome) {
    (change, outcome(result))
}

/// Keeps the record, but shortens a lease that would last longer than its length from now.
fn keep(record: &Record, now: Timestamp) -> Change {
    record.with_shortened_lease(now).map_or(Change::Keep, Change::Put)
}

/// Claims a key for a request:
///
/// * An absent or expired key is granted as the first attempt.
/// * A key in flight is granted again, for a whole lease, to the owner that already has it.
/// * For any other record, a claim with another fingerprint is a mismatch.
/// * A completed key returns its recording, a held key stays held, and a key in flight whose lease
///   has not expired stays in flight.
/// * A key in flight whose lease has expired is granted as the next attempt. It becomes held
///   instead if the record or the claim says [`Abandoned::Hold`].
#[must_use]
pub fn claim(record: Option<&Record>, claim: &Claim, now: Timestamp) -> (Change, ClaimOutcome) {
    let Some(record) = record.filter(|record| !record.is_expired(now)) else {
        return (Change::Put(first_claim(claim, now)), ClaimOutcome::Granted { attempt: 1 });
    };
    let in_flight = record.state == RecordState::InFlight;
    if in_flight && record.owner == claim.owner {
        // Most of the lease may have passed before the claim was sent again; a granted lease is
        // always a whole one.
        return (
            Change::Put(with_lease(record, claim.lease, now)),
            ClaimOutcome::Granted { attempt: record.attempt },
        );
    }
    if record.fingerprint != claim.fingerprint {
        return rejected(keep(record, now), Rejection::Mismatch { recorded: record.fingerprint });
    }
    match &record.state {
        RecordState::Completed(recording) => {
            rejected(Change::Keep, Rejection::Completed(recording.clone()))
        }
        RecordState::Held => {
            let reference = record.notes.reference.clone();
            rejected(Change::Keep, Rejection::Held { newly: false, reference })
        }
        RecordState::InFlight if !record.lease_expired(now) => {
            let (lease_left, reference) = (record.lease_left(now), record.notes.reference.clone());
            rejected(keep(record, now), Rejection::InFlight { lease_left, reference })
        }
        RecordState::InFlight => match record.abandoned.or(claim.abandoned) {
            Abandoned::Retry => {
                let attempt = record.attempt.saturating_add(1);
                let successor =
                    Record { owner: claim.owner, attempt, ..with_lease(record, claim.lease, now) };
                (
                    Change::Put(successor.with_entry(Kind::TakenOver, now)),
                    ClaimOutcome::Granted { attempt },
                )
            }
            Abandoned::Hold => {
                let reference = record.notes.reference.clone();
                rejected(Change::Put(held(record, now)), Rejection::Held { newly: true, reference })
            }
        },
    }
}

/// Returns why a claim is rejected that changes nothing of the record, `None` for any other claim.
/// Such a claim needs no write.
#[must_use]
pub fn rejection_without_change(
    record: Option<&Record>,
    claim: &Claim,
    now: Timestamp,
) -> Option<Rejection> {
    match self::claim(record, claim, now) {
        (Change::Keep, ClaimOutcome::Rejected(rejection)) => Some(rejection),
        _ => None,
    }
}

fn rejected(change: Change, rejection: Rejection) -> (Change, ClaimOutcome) {
    (change, ClaimOutcome::Rejected(rejection))
}

fn first_claim(claim: &Claim, now: Timestamp) -> Record {
    Record {
        fingerprint: claim.fingerprint,
        owner: claim.owner,
        attempt: 1,
        abandoned: claim.abandoned,
        lease: rounded(claim.lease),
        lease_until: now.after(claim.lease),
        first_seen: now,
        expires_at: now.after(claim.ttl),
        state: RecordState::InFlight,
        operation: claim.operation.clone(),
        principal: claim.principal,
        completed_at: None,
        status: None,
        notes: Notes::default(),
        history: History::EMPTY.with(Kind::Claimed, now),
    }
}

fn with_lease(record: &Record, lease: Duration, now: Timestamp) -> Record {
    Record { lease: rounded(lease), lease_until: now.after(lease), ..record.clone() }
}

/// Rounds a lease down to whole milliseconds.
fn rounded(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

/// Completes a record. A completion after the ttl starts the ttl again. Otherwise the outcome of a
/// handler that ran longer than the ttl, or that an operator has reported, would expire at once,
/// and the operation could run again. Of the notes only the reference stays.
fn completed(record: &Record, recording: &Bytes, now: Timestamp) -> Record {
    let late = record.expires_at <= now;
    let ttl = record.expires_at.duration_since(record.first_seen);
    let expires_at = if late { now.after(ttl) } else { record.expires_at };
    Record {
        expires_at,
        state: RecordState::Completed(recording.clone()),
        completed_at: Some(now),
        status: EncodedRecording::status_of(recording),
        notes: Notes { reference: record.notes.reference.clone(), ..Notes::default() },
        ..record.clone()
    }
}

fn held(record: &Record, now: Timestamp) -> Record {
    Record { state: RecordState::Held, ..record.clone() }.with_entry(Kind::Held, now)
}

fn in_flight_of(record: Option<&Record>, owner: OwnerToken) -> Option<&Record> {
    record.filter(|record| record.state == RecordState::InFlight && record.owner == owner)
}

/// Renews the lease of the owner of a key in flight, from `now` on. An expired lease is renewed
/// too, unless another attempt has taken over the key.
#[must_use]
pub fn renew(
    record: Option<&Record>,
    owner: OwnerToken,
    lease: Duration,
    now: Timestamp,
) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(record) => (Change::Put(with_lease(record, lease, now)), Fence::Passed),
        None => (Change::Keep, Fence::Fenced),
    }
}

/// Adds a note of the owner to a key in flight, even after its lease has expired, unless another
/// attempt has taken over the key. Neither the lease nor the ttl changes.
#[must_use]
pub fn note(record: Option<&Record>, owner: OwnerToken, note: &Note) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(record) => (Change::Put(noted(record, note)), Fence::Passed),
        None => (Change::Keep, Fence::Fenced),
    }
}

fn noted(record: &Record, note: &Note) -> Record {
    let Notes { reference, progress, steps, input } = &record.notes;
    let notes = Notes {
        reference: note.reference.as_ref().or(reference.as_ref()).cloned(),
        progress: note.progress.as_ref().or(progress.as_ref()).cloned(),
        steps: match (steps.is_empty(), note.step.is_empty()) {
            (true, _) => note.step.clone(),
            (false, true) => steps.clone(),
            (false, false) => [&steps[..], &note.step].concat().into(),
        },
        input: if note.input.is_empty() { input } else { &note.input }.clone(),
    };
    let policy = if note.hold { Abandoned::Hold } else { Abandoned::Retry };
    Record { notes, abandoned: record.abandoned.or(policy), ..record.clone() }
}

/// Completes the operation for the owner of a key that is in flight or held, even after the lease
/// has expired, as long as no other attempt has taken over the key. If the operation is already
/// completed by the same owner, the call passes and the first recording stays.
#[must_use]
pub fn complete(
    record: Option<&Record>,
    owner: OwnerToken,
    recording: &Bytes,
    now: Timestamp,
) -> (Change, Fence) {
    match record.filter(|record| record.owner == owner) {
        Some(record) => match record.state {
            RecordState::Completed(_) => (Change::Keep, Fence::Passed),
            RecordState::InFlight | RecordState::Held => {
                let completed = completed(record, recording, now).with_entry(Kind::Completed, now);
                (Change::Put(completed), Fence::Passed)
            }
        },
        None => (Change::Keep, Fence::Fenced),
    }
}

/// Releases a key in flight for its owner: the record is removed.
#[must_use]
pub fn release(record: Option<&Record>, owner: OwnerToken) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(_) => (Change::Remove, Fence::Passed),
        None => (Change::Keep, Fence::Fenced),
    }
}

/// Ends the owner's attempt in flight without an outcome. The key becomes held if `policy` or the
/// record says [`Abandoned::Hold`]. Otherwise its lease expires at once, so that the next request
/// can take it over.
///
/// The lease then ends at [`Timestamp::EPOCH`], as no other lease does. It therefore stays expired
/// even if the clock is set back, and differs from a lease whose renewal is late.
#[must_use]
pub fn abandon(
    record: Option<&Record>,
    owner: OwnerToken,
    policy: Abandoned,
    now: Timestamp,
) -> (Change, Fence) {
    match in_flight_of(record, owner) {
        Some(record) => {
            let abandoned = match record.abandoned.or(policy) {
                Abandoned::Retry => {
                    let free = Record { lease_until: Timestamp::EPOCH, ..record.clone() };
                    free.with_entry(Kind::Abandoned, now)
                }
                Abandoned::Hold => held(record, now),
            };
            (Change::Put(abandoned), Fence::Passed)
        }
        None => (Change::Keep, Fence::Fenced),
    }
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod table;
