//! A record as one value. `lua/record.lua` reads and writes the same bytes.

use std::{fmt, time::Duration};

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
const HEAD: usize = 91;
const IN_FLIGHT: u8 = 1;
const COMPLETED: u8 = 2;
const HELD: u8 = 3;
/// How long a claim whose lease and ttl are over is kept for its late owner.
pub(super) const GRACE: Duration = Duration::from_secs(60 * 60);

/// A duration as the server takes it. It is cut to 1,000 years, so that no sum with a present time overflows, and that Lua's numbers
/// stay whole.
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

/// The value of a first claim. The claimer knows no server's time, so the times count from the moment at which the key is created;
/// a `first_seen` of 0 says so. The server's time is found again in the expiry of the key.
pub(super) fn pack(claim: &Claim) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD);
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

/// Reads a value. Times that count from the creation of the key are left so: the record is as it was when `first_seen` is the
/// present.
pub(super) fn unpack(value: Bytes) -> Result<Record, Damaged> {
    let mut rest = value;
    let [version, state, abandoned] = take(&mut rest)?;
    if version != VERSION {
        return Err(Damaged);
    }
    let attempt = rest.try_get_u32().map_err(|_| Damaged)?;
    let owner = OwnerToken::from_bytes(take(&mut rest)?);
    let fingerprint = Fingerprint::from_bytes(take(&mut rest)?);
    let [lease_until, first_seen, expires_at] = [time(&mut rest)?, time(&mut rest)?, time(&mut rest)?];
    let lease = Duration::from_millis(time(&mut rest)?.as_millis());
    let abandoned = match abandoned {
        0 => Abandoned::Retry,
        1 => Abandoned::Hold,
        _ => return Err(Damaged),
    };
    let state = match state {
        IN_FLIGHT if rest.is_empty() => RecordState::InFlight,
        COMPLETED => RecordState::Completed(rest),
        HELD if rest.is_empty() => RecordState::Held,
        _ => return Err(Damaged),
    };
    Ok(Record { fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at, state })
}

/// Makes the times of a record those of the server, which lets its key expire at `key_expires`.
pub(super) fn settle(record: Record, key_expires: Timestamp) -> Record {
    if record.first_seen != Timestamp::from_millis(0) {
        return record;
    }
    let [lease, ttl] = [record.lease_until, record.expires_at].map(|time| Duration::from_millis(time.as_millis()));
    let grace = if record.state == RecordState::InFlight { GRACE } else { Duration::ZERO };
    let created = key_expires.as_millis().saturating_sub(millis(ttl)).saturating_sub(millis(grace));
    let created = Timestamp::from_millis(created);
    Record { first_seen: created, expires_at: created.after(ttl), lease_until: created.after(lease), ..record }
}

fn take<const N: usize>(rest: &mut Bytes) -> Result<[u8; N], Damaged> {
    let mut taken = [0; N];
    rest.try_copy_to_slice(&mut taken).map_err(|_| Damaged)?;
    Ok(taken)
}

fn time(rest: &mut Bytes) -> Result<Timestamp, Damaged> {
    rest.try_get_u64().map(Timestamp::from_millis).map_err(|_| Damaged)
}

/// A value is not what any version of this library writes. It is neither run again nor replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record's value cannot be read")
    }
}

impl std::error::Error for Damaged {}

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
    fn a_first_claim_finds_its_time_in_the_expiry_of_its_key() {
        let record = unpack(pack(&claim()).into()).unwrap();
        let created = Timestamp::from_millis(1_700_000_000_000);
        let answer = Record { state: RecordState::Completed(Bytes::new()), ..record.clone() };
        assert_eq!(settle(answer, created.after(claim().ttl)).first_seen, created);
        let settled = settle(record, created.after(claim().ttl).after(GRACE));
        assert_eq!(settled.first_seen, created);
        assert_eq!(settled.lease_until, created.after(claim().lease));
        assert_eq!(settled.expires_at, created.after(claim().ttl));
        assert_eq!((settled.owner, settled.attempt), (claim().owner, 1));
    }

    #[test]
    fn the_scripts_know_the_same_sizes() {
        let script = include_str!("../../lua/record.lua");
        assert!(script.contains(&format!("LAYOUT = {HEAD}, ")));
        assert!(script.contains(&format!("GRACE = {}\n", GRACE.as_millis())));
        let first = include_str!("../../lua/complete_first.lua");
        assert!(first.contains(&format!("- {}\n", GRACE.as_millis())) && first.contains(&format!("#head == {HEAD} ")));
        assert_eq!(pack(&claim()).len(), HEAD);
    }

    #[test]
    fn a_cut_or_unknown_value_is_damaged() {
        let whole = pack(&claim());
        for length in 0..whole.len() {
            assert_eq!(unpack(Bytes::copy_from_slice(&whole[..length])), Err(Damaged), "{length}");
        }
        for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 4), (2, 2)] {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert_eq!(unpack(changed.into()), Err(Damaged), "{at} {byte}");
        }
        assert_eq!(unpack([whole.as_slice(), b"more"].concat().into()), Err(Damaged));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), version: bool, expires: u64) {
            let mut bytes = bytes;
            if let (true, Some(first)) = (version, bytes.first_mut()) {
                *first = VERSION;
            }
            if let Ok(record) = unpack(bytes.into()) {
                let _ = settle(record, Timestamp::from_millis(expires));
            }
        }
    }
}
