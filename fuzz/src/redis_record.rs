//! The values of records in Redis.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, History, OwnerToken, Principal, Record, RecordState, ShortText,
    clock::{Timestamp, millis},
    history::Kind,
    protocol::Claim,
};
use idempotent_redis::internals::{decode_redis_record, encode_redis_claim};

use crate::input::Input;

/// The length of a value without texts and a recording.
const HEAD: usize = 114;
/// Where the lengths of the texts begin: five of one byte, and two of four bytes.
const LENGTHS: usize = HEAD - 13;

/// Input: the time at which the key expires, and a value; and the same bytes as a claim.
pub(crate) fn run(input: &[u8]) {
    let mut rest = Input(input);
    let key_expires = Timestamp::from_millis(u64::from_be_bytes(rest.array()));
    decode(rest.0, key_expires);
    // The same with a head that is valid more often.
    let mut value = rest.0.to_vec();
    if let [version, state, abandoned, ..] = value.as_mut_slice() {
        (*version, *state, *abandoned) = (1, *state % 4, *abandoned % 3);
    }
    if let Some(lengths) = value.get_mut(LENGTHS..HEAD) {
        let limits = [8, 17, 8, 8, 25, 1, 1, 1, 8, 1, 1, 1, 8];
        for (length, most) in lengths.iter_mut().zip(limits) {
            *length %= most;
        }
    }
    decode(&value, key_expires);
    // And of a claim that is neither completed nor noted.
    if let Some(open) = value.get_mut(LENGTHS - 10..LENGTHS) {
        open.fill(0);
    }
    decode(&value, key_expires);
    encode(&mut Input(input));
}

/// A value is refused, or is a record whose encoding is the value.
fn decode(value: &[u8], key_expires: Timestamp) {
    let Some((record, settled)) = decode_redis_record(Bytes::copy_from_slice(value), key_expires)
    else {
        return refused(value);
    };
    // A history may have entries of a later version, and upper-case digits.
    let history = history_of(value).unwrap_or_default();
    if record.history.encode().as_bytes() == history {
        assert_eq!(encoded(&record), value);
    }
    assert_eq!(record.completed_at.is_some(), is_completed(&record.state));
    let zero = Timestamp::from_millis(0);
    if record.first_seen == zero {
        let ttl = Duration::from_millis(record.expires_at.as_millis());
        assert!(settled.first_seen <= key_expires);
        assert_eq!(settled.expires_at, settled.first_seen.after(ttl));
        assert_eq!(settled.state, record.state);
        assert!(settled.completed_at.is_none_or(|at| at <= key_expires));
        let kinds: Vec<_> = settled.history.entries().map(|entry| entry.kind).collect();
        let expected = [Kind::Claimed, Kind::Completed];
        assert_eq!(kinds, expected[..1 + usize::from(is_completed(&record.state))]);
    } else {
        let expires_at = match record.state {
            RecordState::Completed(_) => record.expires_at.max(key_expires),
            RecordState::InFlight | RecordState::Held => record.expires_at,
        };
        let mut expected = record.clone();
        expected.expires_at = expires_at;
        assert_eq!(settled, expected);
    }
}

fn refused(value: &[u8]) {
    let Some((head, rest)) = value.split_first_chunk::<HEAD>() else { return };
    let [version, state, abandoned, ..] = head;
    let Some(texts) = texts(head, rest) else { return };
    let [operation, principal, reference, progress, history, ..] = texts;
    let is_text = |bytes: &[u8]| str::from_utf8(bytes).is_ok_and(|it| ShortText::new(it).is_ok());
    let texts_are_valid = [operation, reference, progress].into_iter().all(is_text)
        && [0, 16].contains(&principal.len())
        && str::from_utf8(history).is_ok_and(|text| History::decode(text).is_ok());
    let is_open = texts.concat().len() == rest.len() && head[91..LENGTHS] == [0; 10];
    let state_is_valid = *state == 2 || (matches!(state, 1 | 3) && is_open);
    assert!(
        *version != 1 || *abandoned > 1 || !state_is_valid || !texts_are_valid,
        "a record is refused"
    );
}

/// The texts of a value, if they are complete.
fn texts<'a>(head: &[u8; HEAD], mut rest: &'a [u8]) -> Option<[&'a [u8]; 7]> {
    let (short, long) = head[LENGTHS..].split_at(5);
    let long = long.as_chunks::<4>().0.iter().map(|length| u32::from_be_bytes(*length));
    let mut texts = [&[][..]; 7];
    for (text, length) in texts.iter_mut().zip(short.iter().map(|it| (*it).into()).chain(long)) {
        (*text, rest) = rest.split_at_checked(length.try_into().ok()?)?;
    }
    Some(texts)
}

fn history_of(value: &[u8]) -> Option<&[u8]> {
    let (head, rest) = value.split_first_chunk::<HEAD>()?;
    texts(head, rest).map(|[_, _, _, _, history, ..]| history)
}

fn is_completed(state: &RecordState) -> bool {
    matches!(state, RecordState::Completed(_))
}

/// The format as `lua/record.lua` describes it.
fn encoded(record: &Record) -> Vec<u8> {
    let (state, recording) = match &record.state {
        RecordState::InFlight => (1, Bytes::new()),
        RecordState::Completed(recording) => (2, recording.clone()),
        RecordState::Held => (3, Bytes::new()),
    };
    let mut value = vec![1, state, u8::from(record.abandoned == Abandoned::Hold)];
    value.extend(record.attempt.to_be_bytes());
    value.extend(record.owner.as_bytes());
    value.extend(record.fingerprint.to_bytes());
    for time in [record.lease_until, record.first_seen, record.expires_at] {
        value.extend(time.as_millis().to_be_bytes());
    }
    value.extend(millis(record.lease).to_be_bytes());
    value.extend(record.completed_at.map_or(0, Timestamp::as_millis).to_be_bytes());
    value.extend(record.status.unwrap_or_default().to_be_bytes());
    let text = |text: &Option<ShortText>| text.clone().unwrap_or_default();
    let (reference, progress) = (text(&record.notes.reference), text(&record.notes.progress));
    let principal = record.principal.map_or(Vec::new(), |principal| principal.as_bytes().to_vec());
    let history = record.history.encode();
    let short = [
        record.operation.as_bytes(),
        &principal,
        reference.as_bytes(),
        progress.as_bytes(),
        history.as_bytes(),
    ];
    let long = [&record.notes.steps[..], &record.notes.input];
    value.extend(short.map(|text| u8::try_from(text.len()).unwrap()));
    value.extend(long.map(|text| u32::try_from(text.len()).unwrap().to_be_bytes()).concat());
    value.extend([short.concat(), long.concat()].concat());
    value.extend(recording);
    value
}

/// A claim is decoded as the record that it creates; what is missing of it is noticed.
fn encode(input: &mut Input<'_>) {
    let now = Timestamp::from_millis(u64::from_be_bytes(input.array()) >> 16);
    let duration = |input: &mut Input<'_>| {
        Duration::from_millis(u64::from_be_bytes(input.array()) % 3_153_600_000_000)
    };
    let (lease, ttl) = (duration(input), duration(input));
    let fingerprint = Fingerprint::from_bytes(input.array());
    let owner = OwnerToken::from_bytes(input.array());
    let principal = Principal::from_bytes(input.array());
    let operation = ShortText::truncated(&String::from_utf8_lossy(input.0));
    let claim = Claim::new(fingerprint, owner)
        .with_lease(lease)
        .with_ttl(ttl)
        .with_principal(Some(principal))
        .with_operation(operation.clone());
    let value = encode_redis_claim(&claim);
    assert_eq!(value.len(), HEAD + 16 + operation.len());
    let grace = Duration::from_secs(60 * 60);
    let key_expires = now.after(ttl).after(grace);
    let (stored, record) = decode_redis_record(value.clone().into(), key_expires).unwrap();
    assert_eq!(encoded(&stored), value);
    assert_eq!((record.attempt, record.owner, record.lease), (1, owner, lease));
    assert_eq!((record.fingerprint, record.abandoned), (fingerprint, claim.abandoned));
    assert_eq!((record.first_seen, record.expires_at), (now, now.after(ttl)));
    assert_eq!((record.lease_until, record.state), (now.after(lease), RecordState::InFlight));
    assert_eq!((record.operation, record.principal), (operation, Some(principal)));
    assert_eq!((record.completed_at, record.status), (None, None));
    for length in 0..value.len() {
        assert_eq!(decode_redis_record(value[..length].to_vec().into(), now), None, "{length}");
    }
}
