//! The events of operators: decisions about a record, and what is appended to its history.

use bytes::Bytes;

use super::{Change, completed, keep};
use crate::{
    clock::Timestamp,
    history::Kind,
    lease::OwnerToken,
    protocol::{Contents, Removal, Replacement, Resolution, ResolveOutcome},
    record::{Notes, Record, RecordState},
};

/// The owner token of a record that an operator has completed. No claim draws this token, so a
/// first owner that completes late is fenced, and its client gets the operator's response.
pub const OPERATOR: OwnerToken = OwnerToken::from_bytes([0; 16]);

/// Resolves a held key as an operator decides: the operation is completed, or the record is
/// removed. The outcome is a conflict unless the key is held and its owner is `seen`.
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
                    let completed =
                        completed(record, recording, now).with_entry(Kind::Resolved, now);
                    Change::Put(Record { owner: OPERATOR, ..completed })
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

/// Removes a record that an operator saw with this owner. Unless the removal includes live records,
/// one that is held or in flight stays if it has not expired. Returns whether the record was
/// removed.
#[must_use]
pub fn remove(record: Option<&Record>, removal: &Removal, now: Timestamp) -> (Change, bool) {
    let may_go = |record: &&Record| {
        record.owner == removal.seen
            && (removal.live
                || record.is_expired(now)
                || matches!(record.state, RecordState::Completed(_)))
    };
    match record.filter(may_go) {
        Some(_) => (Change::Remove, true),
        None => (Change::Keep, false),
    }
}

/// Replaces bytes of a record that an operator saw with this owner and these bytes. Returns whether
/// they were replaced.
#[must_use]
pub fn replace(record: Option<&Record>, replacement: &Replacement) -> (Change, bool) {
    let Replacement { seen, was, becomes } = replacement;
    let Some(record) = record.filter(|record| record.owner == *seen) else {
        return (Change::Keep, false);
    };
    let (mut state, Notes { steps, input, .. }) = (record.state.clone(), &record.notes);
    let recording = match &record.state {
        RecordState::Completed(recording) => recording.clone(),
        RecordState::InFlight | RecordState::Held => Bytes::new(),
    };
    let contents = Contents { recording, steps: steps.clone(), input: input.clone() };
    let is_seen = |was: &Bytes, is: &Bytes| was.is_empty() || was == is;
    if !is_seen(&was.recording, &contents.recording)
        || !is_seen(&was.steps, &contents.steps)
        || !is_seen(&was.input, &contents.input)
    {
        return (Change::Keep, false);
    }
    let replaced = |was: &Bytes, is: &Bytes, becomes: &Bytes| {
        if was.is_empty() { is.clone() } else { becomes.clone() }
    };
    if let RecordState::Completed(recording) = &mut state {
        *recording = replaced(&was.recording, &contents.recording, &becomes.recording);
    }
    let notes = Notes {
        steps: replaced(&was.steps, &contents.steps, &becomes.steps),
        input: replaced(&was.input, &contents.input, &becomes.input),
        ..record.notes.clone()
    };
    (Change::Put(Record { state, notes, ..record.clone() }), true)
}

/// Appends an entry to the history of a record in any state, even of an expired one, whose history
/// is not read again.
#[must_use]
pub fn append_history(record: Option<&Record>, kind: Kind, now: Timestamp) -> Change {
    record.map_or(Change::Keep, |record| Change::Put(record.clone().with_entry(kind, now)))
}
