//! Encoding a record as an item.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use idempotent_core::{
    Abandoned, History, RecordId, RecordState,
    clock::{Timestamp, millis},
    history::Kind,
};

use super::{
    keys::Keys,
    names,
    stored::Stored,
    values::{Item, bytes, number, text},
};

/// For how long the table keeps what has expired, at least: a late owner still finds its record.
pub(crate) const GRACE: Duration = Duration::from_secs(3600);

/// When the table may remove what expires then, in seconds, rounded up.
pub(crate) fn gone(expires: Timestamp) -> u64 {
    expires.after(GRACE).as_millis().div_ceil(1_000)
}

/// An entry of a history.
pub(crate) fn entry(kind: Kind, at: Timestamp) -> AttributeValue {
    text(History::EMPTY.with(kind, at).encode())
}

/// Encodes a record as an item.
pub(crate) fn encode(keys: &Keys, id: &RecordId, stored: &Stored) -> Item {
    let Stored { record, contents, tag, noted, watched } = stored;
    let (state, is_completed) = match &record.state {
        RecordState::InFlight => (1, false),
        RecordState::Completed(_) => (2, true),
        RecordState::Held => (3, false),
    };
    let hold = record.abandoned == Abandoned::Hold;
    let stays = !is_completed && (hold || record.state == RecordState::Held);
    let due = gone(record.expires_at);
    // A claim in flight outlives its ttl while it is renewed.
    let lease_ends = if is_completed { 0 } else { gone(record.lease_until) };
    let mut item = Item::new();
    let mut set = |name: &str, value: AttributeValue| drop(item.insert(name.to_owned(), value));
    set(names::ID, bytes(&keys.record(id)));
    set(names::VERSION, number(names::FIRST_VERSION));
    set(names::OWNER, bytes(record.owner.as_bytes()));
    set(names::STATE, number(state));
    set(names::FINGERPRINT, bytes(&record.fingerprint.to_bytes()));
    set(names::HOLD, number(u8::from(hold)));
    set(names::ATTEMPT, number(record.attempt));
    set(names::LEASE, number(millis(record.lease)));
    set(names::UNTIL, number(record.lease_until.as_millis()));
    set(names::FIRST_SEEN, number(record.first_seen.as_millis()));
    set(names::EXPIRES, number(record.expires_at.as_millis()));
    set(names::DUE, number(due));
    set(names::TAG, tag.value());
    set(names::NOTED, noted.value());
    set(names::HISTORY, history(&record.history));
    set(names::STEPS, AttributeValue::L(contents.steps.iter().map(|step| step.value()).collect()));
    if !stays {
        set(names::GONE, number(due.max(lease_ends)));
    }
    if !is_completed && (*watched || stays) {
        set(names::WATCHED, text(keys.shard_of(id)));
    }
    if !record.operation.is_empty() {
        set(names::OPERATION, text(record.operation.as_str()));
    }
    let (completed, status) = (record.completed_at, record.status);
    let notes = &record.notes;
    let optional = [
        (names::COMPLETED, completed.map(|at| number(at.as_millis()))),
        (names::STATUS, status.map(number)),
        (names::PRINCIPAL, record.principal.map(|principal| bytes(principal.as_bytes()))),
        (names::REFERENCE, notes.reference.as_ref().map(|of| text(of.as_str()))),
        (names::PROGRESS, notes.progress.as_ref().map(|of| text(of.as_str()))),
        (names::INPUT, contents.input.as_ref().map(|input| input.value())),
        (names::RECORDING, contents.recording.as_ref().map(|recording| recording.value())),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            set(name, value);
        }
    }
    item
}

/// The latest entries of a history, each with its own text.
fn history(history: &History) -> AttributeValue {
    AttributeValue::L(history.entries().map(|each| entry(each.kind, each.at)).collect())
}
