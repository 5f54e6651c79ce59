//! The values of records in Redis.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, OwnerToken, Record, RecordState,
    clock::{Timestamp, millis},
    internals::{decode_redis_record, encode_redis_claim},
    protocol::Claim,
};

use crate::input::Input;

/// The length of a value without a recording.
const HEAD: usize = 91;

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
    decode(&value, key_expires);
    encode(&mut Input(input));
}

/// A value is refused, or is a record whose encoding is the value.
fn decode(value: &[u8], key_expires: Timestamp) {
    let Some((record, settled)) = decode_redis_record(Bytes::copy_from_slice(value), key_expires)
    else {
        return refused(value);
    };
    assert_eq!(encoded(&record), value);
    let zero = Timestamp::from_millis(0);
    if record.first_seen == zero {
        let ttl = Duration::from_millis(record.expires_at.as_millis());
        assert!(settled.first_seen <= key_expires);
        assert_eq!(settled.expires_at, settled.first_seen.after(ttl));
        assert_eq!(settled.state, record.state);
    } else {
        assert_eq!(settled, record);
    }
}

fn refused(value: &[u8]) {
    let Some(([version, state, abandoned, ..], recording)) = value.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let state_is_valid = matches!(state, 1..=3) && (*state == 2 || recording.is_empty());
    assert!(*version != 1 || *abandoned > 1 || !state_is_valid, "a record is refused");
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
    let claim = Claim::new(fingerprint, owner).with_lease(lease).with_ttl(ttl);
    let value = encode_redis_claim(&claim);
    assert_eq!(value.len(), HEAD);
    let grace = Duration::from_secs(60 * 60);
    let key_expires = now.after(ttl).after(grace);
    let (stored, record) = decode_redis_record(value.clone().into(), key_expires).unwrap();
    assert_eq!(encoded(&stored), value);
    assert_eq!((record.attempt, record.owner, record.lease), (1, owner, lease));
    assert_eq!((record.fingerprint, record.abandoned), (fingerprint, claim.abandoned));
    assert_eq!((record.first_seen, record.expires_at), (now, now.after(ttl)));
    assert_eq!((record.lease_until, record.state), (now.after(lease), RecordState::InFlight));
    for length in 0..HEAD {
        assert_eq!(decode_redis_record(value[..length].to_vec().into(), now), None, "{length}");
    }
}
