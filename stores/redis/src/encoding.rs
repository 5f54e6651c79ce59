//! The encoding of a record as one value, which `lua/record.lua` shares.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use idempotent_core::{
    Abandoned, EncodedRecording, Fingerprint, Notes, OwnerToken, Principal, Record, RecordState,
    ShortText,
    clock::{Timestamp, millis},
    protocol::Claim,
};

use crate::lua::Arg;

const VERSION: u8 = 1;
const HEADER_LEN: usize = 113;
const IN_FLIGHT: u8 = 1;
const COMPLETED: u8 = 2;
const HELD: u8 = 3;
/// How long a claim is kept for its late owner after its lease and its ttl have expired.
pub(crate) const GRACE: Duration = Duration::from_secs(60 * 60);

/// A duration in milliseconds, at most 1,000 years, so that no sum with a current time overflows
/// and Lua represents it exactly.
pub(crate) fn redis_millis(duration: Duration) -> u64 {
    const MAX: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;
    millis(duration).min(MAX)
}

pub(crate) fn abandoned_code(abandoned: Abandoned) -> u8 {
    match abandoned {
        Abandoned::Retry => 0,
        Abandoned::Hold => 1,
    }
}

/// The arguments of a script that completes a record: the recording and its status.
pub(crate) fn completion_args(recording: &Bytes) -> [Arg<'_>; 2] {
    let status = EncodedRecording::status_of(recording).unwrap_or_default();
    [Arg::Bytes(recording), Arg::Number(status.into())]
}

/// Encodes a first claim. The claimer does not know the server's time, so the times are relative to
/// the creation of the key, which a `first_seen` of 0 indicates. [`with_absolute_times`] derives
/// the creation from the key's expiry.
pub(crate) fn encode_claim(claim: &Claim) -> Vec<u8> {
    let (operation, principal) = (claim.operation.as_bytes(), principal_bytes(claim));
    let mut value = Vec::with_capacity(HEADER_LEN + operation.len() + principal.len());
    value.extend([VERSION, IN_FLIGHT, abandoned_code(claim.abandoned)]);
    value.put_u32(1);
    value.put_slice(claim.owner.as_bytes());
    value.put_slice(&claim.fingerprint.to_bytes());
    value.put_u64(redis_millis(claim.lease));
    value.put_u64(0);
    value.put_u64(redis_millis(claim.ttl));
    value.put_u64(redis_millis(claim.lease));
    // Neither completed nor noted yet.
    value.put_bytes(0, 10);
    for text in [operation, principal] {
        value.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    }
    value.put_bytes(0, 10);
    value.put_slice(operation);
    value.put_slice(principal);
    value
}

/// Encodes what precedes the recording in the value of a completed record, as `complete` in
/// `lua/record.lua` does. The record has absolute times.
pub(crate) fn encode_completed(
    record: &Record,
    completed_at: Timestamp,
    recording: &Bytes,
) -> Vec<u8> {
    let principal = record.principal.as_ref().map_or(&[][..], |principal| principal.as_bytes());
    let reference = record.notes.reference.as_deref().unwrap_or_default().as_bytes();
    let texts = [record.operation.as_bytes(), principal, reference];
    let mut value =
        Vec::with_capacity(HEADER_LEN + texts.iter().map(|text| text.len()).sum::<usize>());
    value.extend([VERSION, COMPLETED, abandoned_code(record.abandoned)]);
    value.put_u32(record.attempt);
    value.put_slice(record.owner.as_bytes());
    value.put_slice(&record.fingerprint.to_bytes());
    value.put_u64(record.lease_until.as_millis());
    value.put_u64(record.first_seen.as_millis());
    value.put_u64(record.expires_at.as_millis());
    value.put_u64(redis_millis(record.lease));
    value.put_u64(completed_at.as_millis());
    value.put_u16(EncodedRecording::status_of(recording).unwrap_or_default());
    for text in texts {
        value.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    }
    // Neither progress nor steps nor an input.
    value.put_bytes(0, 9);
    texts.iter().for_each(|text| value.put_slice(text));
    value
}

/// The bytes of a claim's principal; empty if there is none.
pub(crate) fn principal_bytes(claim: &Claim) -> &[u8] {
    claim.principal.as_ref().map_or(&[], |principal| principal.as_bytes())
}

/// Decodes a value. Relative times are left unchanged, as if the key had been created at time 0.
pub(crate) fn decode(mut value: Bytes) -> Result<Record, Unreadable> {
    let mut rest = &value[..];
    let [version, state, abandoned] = take(&mut rest)?;
    if version != VERSION {
        return Err(Unreadable);
    }
    let attempt = u32::from_be_bytes(take(&mut rest)?);
    let owner = OwnerToken::from_bytes(take(&mut rest)?);
    let fingerprint = Fingerprint::from_bytes(take(&mut rest)?);
    let [lease_until, first_seen, expires_at] =
        [time(&mut rest)?, time(&mut rest)?, time(&mut rest)?];
    let lease = Duration::from_millis(time(&mut rest)?.as_millis());
    let completed_at = time(&mut rest)?;
    let status = u16::from_be_bytes(take(&mut rest)?);
    let (operation, principal, notes) = decode_texts(&value, &mut rest)?;
    let abandoned = match abandoned {
        0 => Abandoned::Retry,
        1 => Abandoned::Hold,
        _ => return Err(Unreadable),
    };
    let is_open = rest.is_empty() && (completed_at.as_millis(), status) == (0, 0);
    let recording = value.len() - rest.len();
    let state = match state {
        IN_FLIGHT if is_open => RecordState::InFlight,
        COMPLETED => {
            // Unlike `split_off`, this allocates nothing.
            value.advance(recording);
            RecordState::Completed(value)
        }
        HELD if is_open => RecordState::Held,
        _ => return Err(Unreadable),
    };
    let is_completed = matches!(state, RecordState::Completed(_));
    let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    record.attempt = attempt;
    record.abandoned = abandoned;
    record.lease = lease;
    record.lease_until = lease_until;
    record.state = state;
    record.operation = operation;
    record.principal = principal;
    record.completed_at = is_completed.then_some(completed_at);
    record.status = (status != 0).then_some(status);
    record.notes = notes;
    Ok(record)
}

/// Decodes the lengths of the texts, and the texts, from `rest`, which is the end of `value`.
fn decode_texts(
    value: &Bytes,
    rest: &mut &[u8],
) -> Result<(ShortText, Option<Principal>, Notes), Unreadable> {
    let short: [u8; 4] = take(rest)?;
    let long = [take(rest)?, take(rest)?].map(u32::from_be_bytes);
    let mut next = |length: u32| {
        let length = usize::try_from(length).map_err(|_| Unreadable)?;
        let (text, more) = rest.split_at_checked(length).ok_or(Unreadable)?;
        *rest = more;
        Ok(text)
    };
    let [operation, principal, reference, progress] = short.map(|length| next(length.into()));
    let [steps, input] = long.map(next);
    let (reference, progress) = (short_text(reference?)?, short_text(progress?)?);
    let principal = match principal? {
        [] => None,
        bytes => Some(Principal::from_bytes(bytes.try_into().map_err(|_| Unreadable)?)),
    };
    let mut notes = Notes::default();
    notes.reference = Some(reference).filter(|text| !text.is_empty());
    notes.progress = Some(progress).filter(|text| !text.is_empty());
    notes.steps = value.slice_ref(steps?);
    notes.input = value.slice_ref(input?);
    Ok((short_text(operation?)?, principal, notes))
}

pub(crate) fn short_text(bytes: &[u8]) -> Result<ShortText, Unreadable> {
    std::str::from_utf8(bytes)
        .map_err(|_| Unreadable)
        .and_then(|text| ShortText::new(text).map_err(|_| Unreadable))
}

/// Converts relative times to the server's clock, on which the key expires at `key_expires`. The
/// `completed_at` of a record with relative times is the time that was left until its expiry.
pub(crate) fn with_absolute_times(mut record: Record, key_expires: Timestamp) -> Record {
    if record.first_seen != Timestamp::from_millis(0) {
        // The key expires later than the record says if the server has executed the write of its
        // recording late.
        if matches!(record.state, RecordState::Completed(_)) {
            record.expires_at = record.expires_at.max(key_expires);
        }
        return record;
    }
    let [lease, ttl] =
        [record.lease_until, record.expires_at].map(|time| Duration::from_millis(time.as_millis()));
    let grace = if record.state == RecordState::InFlight { GRACE } else { Duration::ZERO };
    let before = |time: Timestamp, by: Duration| {
        Timestamp::from_millis(time.as_millis().saturating_sub(millis(by)))
    };
    let created = before(before(key_expires, ttl), grace);
    record.first_seen = created;
    record.expires_at = created.after(ttl);
    record.lease_until = created.after(lease);
    record.completed_at = record
        .completed_at
        .map(|left| before(key_expires, Duration::from_millis(left.as_millis())));
    record
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    let (taken, more) = rest.split_first_chunk().ok_or(Unreadable)?;
    *rest = more;
    Ok(*taken)
}

fn time(rest: &mut &[u8]) -> Result<Timestamp, Unreadable> {
    take(rest).map(|time| Timestamp::from_millis(u64::from_be_bytes(time)))
}

/// The value is not one that any version of this library writes. Its record is neither run again
/// nor replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record's value cannot be read")]
pub(crate) struct Unreadable;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn claim() -> Claim {
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let mut claim = Claim::new(fingerprint, OwnerToken::from_bytes([9; 16]));
        claim.lease = Duration::from_millis(30_000);
        claim.ttl = Duration::from_millis(90_000);
        claim.abandoned = Abandoned::Retry;
        claim.principal = Some(Principal::from_bytes([5; 16]));
        claim.operation = ShortText::new("POST /v1/payments").unwrap();
        claim
    }

    #[test]
    fn a_first_claim_derives_its_times_from_the_expiry_of_its_key() {
        let record = decode(encode_claim(&claim()).into()).unwrap();
        let created = Timestamp::from_millis(1_700_000_000_000);
        let mut completed = record.clone();
        completed.state = RecordState::Completed(Bytes::new());
        completed.completed_at = Some(Timestamp::from_millis(80_000));
        let completed = with_absolute_times(completed, created.after(claim().ttl));
        assert_eq!(completed.first_seen, created);
        assert_eq!(completed.completed_at, Some(created.after(Duration::from_millis(10_000))));
        let settled = with_absolute_times(record, created.after(claim().ttl).after(GRACE));
        assert_eq!(settled.first_seen, created);
        assert_eq!(settled.lease_until, created.after(claim().lease));
        assert_eq!(settled.expires_at, created.after(claim().ttl));
        assert_eq!((settled.owner, settled.attempt), (claim().owner, 1));
        assert_eq!((settled.operation, settled.principal), (claim().operation, claim().principal));
        assert_eq!((settled.completed_at, settled.status), (None, None));
        assert_eq!(settled.notes, Notes::default());
    }

    #[test]
    fn the_scripts_use_the_same_sizes() {
        let script = include_str!("lua/record.lua");
        assert!(script.contains(&format!("LAYOUT = {HEADER_LEN}, ")));
        assert!(script.contains(&format!("GRACE = {}\n", GRACE.as_millis())));
        let first = include_str!("lua/complete_first.lua");
        let longest =
            HEADER_LEN + ShortText::MAX_BYTES + claim().principal.unwrap().as_bytes().len();
        assert!(
            first.contains(&format!("- {}\n", GRACE.as_millis()))
                && first.contains(&format!("#head == {HEADER_LEN} + "))
                && first.contains(&format!(", '0', '{longest}')"))
        );
        let mut named = claim();
        named.operation = ShortText::new(&"a".repeat(ShortText::MAX_BYTES)).unwrap();
        assert_eq!(encode_claim(&named).len(), longest);
        let mut nameless = claim();
        (nameless.operation, nameless.principal) = (ShortText::EMPTY, None);
        assert_eq!(encode_claim(&nameless).len(), HEADER_LEN);
    }

    /// A value with these texts.
    fn with_texts(texts: [&[u8]; 6]) -> Vec<u8> {
        let mut value = encode_claim(&claim());
        value.truncate(HEADER_LEN - 12);
        let (short, long) = texts.split_at(4);
        short.iter().for_each(|text| value.put_u8(text.len().try_into().unwrap()));
        long.iter().for_each(|text| value.put_u32(text.len().try_into().unwrap()));
        [value, texts.concat()].concat()
    }

    #[test]
    fn all_texts_are_read_or_the_value_is_refused() {
        let texts: [&[u8]; 6] = [b"POST /", &[6; 16], b"pi_1", b"half", &[0; 300], &[255; 70_000]];
        let record = decode(with_texts(texts).into()).unwrap();
        assert_eq!(record.operation.as_str(), "POST /");
        assert_eq!(record.principal, Some(Principal::from_bytes([6; 16])));
        let Notes { reference, progress, steps, input, .. } = record.notes;
        assert_eq!((reference.as_deref(), progress.as_deref()), (Some("pi_1"), Some("half")));
        assert!(steps[..] == [0; 300] && input[..] == [255; 70_000]);
        let wrong: [(usize, &[u8]); 5] =
            [(0, b"\xff"), (1, &[6; 15]), (1, &[6; 17]), (2, b"a\nb"), (3, b"\xc3")];
        for (at, text) in wrong {
            let mut texts = texts;
            texts[at] = text;
            assert_eq!(decode(with_texts(texts).into()), Err(Unreadable), "{at}");
        }
        // One byte too many or too few for the lengths of the texts.
        let whole = with_texts(texts);
        for at in (HEADER_LEN - 12)..HEADER_LEN {
            for change in [1, u8::MAX] {
                let mut changed = whole.clone();
                changed[at] = changed[at].wrapping_add(change);
                assert_eq!(decode(changed.into()), Err(Unreadable), "{at} {change}");
            }
        }
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
            bytes in vec(any::<u8>(), 0..300),
            short: bool,
            version: bool,
            expires: u64,
        ) {
            let mut bytes = bytes;
            if let (true, Some(first)) = (version, bytes.first_mut()) {
                *first = VERSION;
            }
            // Long texts have lengths that few values have by chance.
            if let (true, Some(lengths)) = (short, bytes.get_mut(HEADER_LEN - 12..HEADER_LEN)) {
                lengths.iter_mut().for_each(|length| *length %= 4);
                lengths[4..7].fill(0);
                lengths[8..11].fill(0);
            }
            if let Ok(record) = decode(bytes.into()) {
                let _ = with_absolute_times(record, Timestamp::from_millis(expires));
            }
        }
    }
}
