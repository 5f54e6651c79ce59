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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use idempotent_core::{
        Fingerprint, OwnerToken, Principal, ShortText,
        protocol::Claim,
        transition::{self, Change},
    };

    use super::{
        super::{contents::Content, decode::decode, stored::Tag},
        *,
    };

    /// The size by which an item is billed: its names and its values.
    fn size(item: &Item) -> usize {
        item.iter().map(|(name, value)| name.len() + size_of(value)).sum()
    }

    fn size_of(value: &AttributeValue) -> usize {
        let text = value.as_s().map(String::len);
        let bytes = value.as_b().map(|bytes| bytes.as_ref().len());
        // A byte for two digits, and one for the number.
        let number = value.as_n().map(|digits| digits.len().div_ceil(2) + 1);
        let list =
            value.as_l().map(|list| 3 + list.iter().map(|each| 1 + size_of(each)).sum::<usize>());
        text.or(bytes).or(number).or(list).unwrap()
    }

    fn stored(record: idempotent_core::Record) -> Stored {
        let (tag, noted) = (Tag::random(), Tag::random());
        Stored { record, contents: Default::default(), tag, noted, watched: false }
    }

    /// The guide has the costs of a record of this size.
    #[test]
    fn a_record_takes_about_300_bytes_and_its_recording() {
        let (keys, id) = (Keys::new(""), RecordId::from_bytes([1; 32]));
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let claim = Claim::new(fingerprint, OwnerToken::from_bytes([2; 16]))
            .with_operation(ShortText::new("POST /v1/payments").unwrap())
            .with_principal(Some(Principal::from_bytes([3; 16])));
        let now = Timestamp::from_millis(1_795_793_932_951);
        let (Change::Put(record), _) = transition::claim(None, &claim, now) else { panic!() };
        let claimed = stored(record.clone());
        let item = encode(&keys, &id, &claimed);
        assert!((280..=320).contains(&size(&item)), "{}", size(&item));
        assert_eq!(decode(&item), Ok(claimed));
        let recording = Bytes::from(vec![1; 500]);
        let completed = transition::complete(Some(&record), claim.owner, &recording, now).0;
        let Change::Put(mut record) = completed else { panic!() };
        record.state = RecordState::Completed(Bytes::new());
        let mut completed = stored(record);
        completed.contents.recording = Some(Content::Inline(recording));
        let item = encode(&keys, &id, &completed);
        assert!((800..=860).contains(&size(&item)), "{}", size(&item));
        assert_eq!(decode(&item), Ok(completed));
    }

    #[test]
    fn what_may_be_held_stays_in_the_table_and_in_the_index() {
        let (keys, id) = (Keys::new(""), RecordId::from_bytes([1; 32]));
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let claim = Claim::new(fingerprint, OwnerToken::from_bytes([2; 16]));
        for policy in [Abandoned::Retry, Abandoned::Hold] {
            let claim = claim.with_abandoned(policy).with_ttl(Duration::from_secs(60));
            let now = Timestamp::from_millis(1_000_000);
            let (Change::Put(record), _) = transition::claim(None, &claim, now) else { panic!() };
            let item = encode(&keys, &id, &stored(record));
            let gone = item.get(names::GONE).map(|gone| gone.as_n().unwrap().as_str());
            let expected = (policy == Abandoned::Retry).then_some("4660");
            assert_eq!(gone, expected);
            assert_eq!(item.contains_key(names::WATCHED), policy == Abandoned::Hold);
        }
    }
}
