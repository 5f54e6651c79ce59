//! The encoding of a record as one value, which `lua/record.lua` shares.

use std::time::Duration;

use bytes::{BufMut, Bytes};
use idempotent_core::{
    Abandoned, EncodedRecording, History, Record, RecordState,
    clock::{Timestamp, millis},
    history::Kind,
    protocol::Claim,
};

use self::layout::{COMPLETED, COMPLETED_AT, HEADER_LEN, IN_FLIGHT, STATE_AT, STATUS_AT, VERSION};
pub(crate) use self::{
    decode::{decode, decode_beginning, recording_for, short_text},
    layout::Unreadable,
    log::{log_entry, read_log_entry},
};
use crate::lua::Arg;

mod decode;
mod layout;
mod log;

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
    value.put_bytes(0, 11);
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
    let history = record.history.with(Kind::Completed, completed_at).encode();
    // Neither progress nor steps nor an input.
    let texts = [record.operation.as_bytes(), principal, reference, b"", history.as_bytes()];
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
    value.put_bytes(0, 8);
    texts.iter().for_each(|text| value.put_slice(text));
    value
}

/// Encodes what precedes the recording in the value of a first claim that is completed, as
/// `lua/complete_first.lua` does. `left` is the time until the record expires, in milliseconds.
pub(crate) fn encode_first_completed(claim: &[u8], recording: &Bytes, left: u64) -> Vec<u8> {
    let status = EncodedRecording::status_of(recording).unwrap_or_default();
    let mut value = claim.to_vec();
    let mut overwrite = |at: usize, bytes: &[u8]| {
        value.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
    };
    overwrite(STATE_AT, &[COMPLETED]);
    overwrite(COMPLETED_AT, &left.to_be_bytes());
    overwrite(STATUS_AT, &status.to_be_bytes());
    value
}

/// The bytes of a claim's principal; empty if there is none.
pub(crate) fn principal_bytes(claim: &Claim) -> &[u8] {
    claim.principal.as_ref().map_or(&[], |principal| principal.as_bytes())
}

/// Converts relative times to the server's clock, on which the key expires at `key_expires`. The
/// `completed_at` of a record with relative times is the time that was left until its expiry, and
/// its history follows from its times.
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
    record.history = History::EMPTY.with(Kind::Claimed, created);
    if let Some(completed_at) = record.completed_at {
        record.history = record.history.with(Kind::Completed, completed_at);
    }
    record
}

#[cfg(test)]
mod tests {
    use idempotent_core::{Fingerprint, Notes, OwnerToken, Principal, ShortText};

    use super::*;

    pub(super) fn claim() -> Claim {
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
        let completed_at = created.after(Duration::from_millis(10_000));
        assert_eq!(completed.completed_at, Some(completed_at));
        let appended = History::EMPTY.with(Kind::Claimed, created);
        assert_eq!(completed.history, appended.with(Kind::Completed, completed_at));
        let settled = with_absolute_times(record, created.after(claim().ttl).after(GRACE));
        assert_eq!(settled.first_seen, created);
        assert_eq!(settled.lease_until, created.after(claim().lease));
        assert_eq!(settled.expires_at, created.after(claim().ttl));
        assert_eq!((settled.owner, settled.attempt), (claim().owner, 1));
        assert_eq!((settled.operation, settled.principal), (claim().operation, claim().principal));
        assert_eq!((settled.completed_at, settled.status), (None, None));
        assert_eq!(settled.notes, Notes::default());
        assert_eq!(settled.history, History::EMPTY.with(Kind::Claimed, created));
    }

    #[test]
    fn a_completed_first_claim_differs_in_its_state_and_its_completion() {
        let recording = Bytes::from_static(b"done");
        let claimed = decode(encode_claim(&claim()).into()).unwrap();
        let mut value = encode_first_completed(&encode_claim(&claim()), &recording, 80_000);
        assert_eq!(value.len(), encode_claim(&claim()).len());
        value.extend_from_slice(&recording);
        let mut completed = decode(value.into()).unwrap();
        assert_eq!(completed.state, RecordState::Completed(recording));
        assert_eq!(completed.completed_at, Some(Timestamp::from_millis(80_000)));
        (completed.state, completed.completed_at) = (RecordState::InFlight, None);
        assert_eq!(completed, claimed);
    }

    #[test]
    fn the_scripts_use_the_same_sizes() {
        let script = include_str!("lua/record.lua");
        assert!(script.contains(&format!("LAYOUT = {HEADER_LEN}, ")));
        assert!(script.contains(&format!(":sub(-{})", History::MAX_CHARACTERS)));
        let list = include_str!("lua/list.lua");
        let principal = claim().principal.unwrap().as_bytes().len();
        let most = HEADER_LEN + 3 * ShortText::MAX_BYTES + principal + History::MAX_CHARACTERS;
        assert!(list.contains(&format!(" 0, {})", most - 1)));
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
}
