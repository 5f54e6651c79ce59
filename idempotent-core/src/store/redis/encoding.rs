//! The encoding of a record as one value, which `lua/record.lua` shares.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use crate::{
    clock::{Timestamp, millis},
    fingerprint::Fingerprint,
    lease::OwnerToken,
    policy::Abandoned,
    protocol::Claim,
    record::{Record, RecordState},
};

const VERSION: u8 = 1;
const HEADER_LEN: usize = 91;
const IN_FLIGHT: u8 = 1;
const COMPLETED: u8 = 2;
const HELD: u8 = 3;
/// How long a claim is kept for its late owner after its lease and its ttl have expired.
pub(super) const GRACE: Duration = Duration::from_secs(60 * 60);

/// A duration in milliseconds, at most 1,000 years, so that no sum with a current time overflows
/// and Lua represents it exactly.
pub(super) fn redis_millis(duration: Duration) -> u64 {
    const MAX: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;
    millis(duration).min(MAX)
}

pub(super) fn abandoned_code(abandoned: Abandoned) -> u8 {
    match abandoned {
        Abandoned::Retry => 0,
        Abandoned::Hold => 1,
    }
}

/// Encodes a first claim. The claimer does not know the server's time, so the times are relative to
/// the creation of the key, which a `first_seen` of 0 indicates. [`with_absolute_times`] derives
/// the creation from the key's expiry.
pub(super) fn encode_claim(claim: &Claim) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER_LEN);
    value.extend([VERSION, IN_FLIGHT, abandoned_code(claim.abandoned)]);
    value.put_u32(1);
    value.put_slice(claim.owner.as_bytes());
    value.put_slice(&claim.fingerprint.to_bytes());
    value.put_u64(redis_millis(claim.lease));
    value.put_u64(0);
    value.put_u64(redis_millis(claim.ttl));
    value.put_u64(redis_millis(claim.lease));
    value
}

/// Decodes a value. Relative times are left unchanged, as if the key had been created at time 0.
pub(super) fn decode(value: Bytes) -> Result<Record, Unreadable> {
    let mut rest = value;
    let [version, state, abandoned] = take(&mut rest)?;
    if version != VERSION {
        return Err(Unreadable);
    }
    let attempt = rest.try_get_u32().map_err(|_| Unreadable)?;
    let owner = OwnerToken::from_bytes(take(&mut rest)?);
    let fingerprint = Fingerprint::from_bytes(take(&mut rest)?);
    let [lease_until, first_seen, expires_at] =
        [time(&mut rest)?, time(&mut rest)?, time(&mut rest)?];
    let lease = Duration::from_millis(time(&mut rest)?.as_millis());
    let abandoned = match abandoned {
        0 => Abandoned::Retry,
        1 => Abandoned::Hold,
        _ => return Err(Unreadable),
    };
    let state = match state {
        IN_FLIGHT if rest.is_empty() => RecordState::InFlight,
        COMPLETED => RecordState::Completed(rest),
        HELD if rest.is_empty() => RecordState::Held,
        _ => return Err(Unreadable),
    };
    Ok(Record {
        fingerprint,
        owner,
        attempt,
        abandoned,
        lease,
        lease_until,
        first_seen,
        expires_at,
        state,
    })
}

/// Converts relative times to the server's clock, on which the key expires at `key_expires`.
pub(super) fn with_absolute_times(record: Record, key_expires: Timestamp) -> Record {
    if record.first_seen != Timestamp::from_millis(0) {
        return record;
    }
    let [lease, ttl] =
        [record.lease_until, record.expires_at].map(|time| Duration::from_millis(time.as_millis()));
    let grace = if record.state == RecordState::InFlight { GRACE } else { Duration::ZERO };
    let created = key_expires.as_millis().saturating_sub(millis(ttl)).saturating_sub(millis(grace));
    let created = Timestamp::from_millis(created);
    Record {
        first_seen: created,
        expires_at: created.after(ttl),
        lease_until: created.after(lease),
        ..record
    }
}

fn take<const N: usize>(rest: &mut Bytes) -> Result<[u8; N], Unreadable> {
    let mut taken = [0; N];
    rest.try_copy_to_slice(&mut taken).map_err(|_| Unreadable)?;
    Ok(taken)
}

fn time(rest: &mut Bytes) -> Result<Timestamp, Unreadable> {
    rest.try_get_u64().map(Timestamp::from_millis).map_err(|_| Unreadable)
}

/// The value is not one that any version of this library writes. Its record is neither run again
/// nor replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record's value cannot be read")]
pub(super) struct Unreadable;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn claim() -> Claim {
        Claim {
            fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
            owner: OwnerToken::from_bytes([9; 16]),
            lease: Duration::from_millis(30_000),
            ttl: Duration::from_millis(90_000),
            abandoned: Abandoned::Retry,
            principal: None,
        }
    }

    #[test]
    fn a_first_claim_derives_its_times_from_the_expiry_of_its_key() {
        let record = decode(encode_claim(&claim()).into()).unwrap();
        let created = Timestamp::from_millis(1_700_000_000_000);
        let completed = Record { state: RecordState::Completed(Bytes::new()), ..record.clone() };
        assert_eq!(with_absolute_times(completed, created.after(claim().ttl)).first_seen, created);
        let settled = with_absolute_times(record, created.after(claim().ttl).after(GRACE));
        assert_eq!(settled.first_seen, created);
        assert_eq!(settled.lease_until, created.after(claim().lease));
        assert_eq!(settled.expires_at, created.after(claim().ttl));
        assert_eq!((settled.owner, settled.attempt), (claim().owner, 1));
    }

    #[test]
    fn the_scripts_use_the_same_sizes() {
        let script = include_str!("../../lua/record.lua");
        assert!(script.contains(&format!("LAYOUT = {HEADER_LEN}, ")));
        assert!(script.contains(&format!("GRACE = {}\n", GRACE.as_millis())));
        let first = include_str!("../../lua/complete_first.lua");
        assert!(
            first.contains(&format!("- {}\n", GRACE.as_millis()))
                && first.contains(&format!("#head == {HEADER_LEN} "))
        );
        assert_eq!(encode_claim(&claim()).len(), HEADER_LEN);
    }

    #[test]
    fn a_truncated_or_unknown_value_is_unreadable() {
        let whole = encode_claim(&claim());
        for length in 0..whole.len() {
            assert_eq!(
                decode(Bytes::copy_from_slice(&whole[..length])),
                Err(Unreadable),
                "{length}"
            );
        }
        for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 4), (2, 2)] {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert_eq!(decode(changed.into()), Err(Unreadable), "{at} {byte}");
        }
        assert_eq!(decode([whole.as_slice(), b"more"].concat().into()), Err(Unreadable));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in vec(any::<u8>(), 0..200),
            version: bool,
            expires: u64,
        ) {
            let mut bytes = bytes;
            if let (true, Some(first)) = (version, bytes.first_mut()) {
                *first = VERSION;
            }
            if let Ok(record) = decode(bytes.into()) {
                let _ = with_absolute_times(record, Timestamp::from_millis(expires));
            }
        }
    }
}
