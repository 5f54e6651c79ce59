//! Decoding the value of a record.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use idempotent_core::{
    Abandoned, Fingerprint, History, OwnerToken, Principal, Record, RecordState, ShortText,
    clock::Timestamp,
};

use super::layout::{COMPLETED, FINGERPRINT_AT, HELD, IN_FLIGHT, LENGTHS_AT, Unreadable, VERSION};

/// Decodes a value. Relative times are left unchanged, as if the key had been created at time 0.
pub(crate) fn decode(mut value: Bytes) -> Result<Record, Unreadable> {
    let mut rest = &value[..];
    let Header { mut record, state, completed_at, long } = decode_header(&mut rest)?;
    let [steps, input] = long.map(|length| next_text(&mut rest, length));
    (record.notes.steps, record.notes.input) = (value.slice_ref(steps?), value.slice_ref(input?));
    let is_open =
        rest.is_empty() && (completed_at.as_millis(), record.status.unwrap_or_default()) == (0, 0);
    let recording = value.len() - rest.len();
    record.state = match state {
        IN_FLIGHT if is_open => RecordState::InFlight,
        COMPLETED => {
            // Unlike `split_off`, this allocates nothing.
            value.advance(recording);
            RecordState::Completed(value)
        }
        HELD if is_open => RecordState::Held,
        _ => return Err(Unreadable),
    };
    Ok(record)
}

/// Returns the recording of a completed record with this fingerprint, without decoding what else
/// the record has; otherwise the value.
pub(crate) fn recording_for(fingerprint: &Fingerprint, mut value: Bytes) -> Result<Bytes, Bytes> {
    match recording_at(fingerprint, &value) {
        Some(at) => {
            value.advance(at);
            Ok(value)
        }
        None => Err(value),
    }
}

fn recording_at(fingerprint: &Fingerprint, value: &[u8]) -> Option<usize> {
    let [VERSION, COMPLETED, 0 | 1, ..] = value else { return None };
    let same = value.get(FINGERPRINT_AT..)?.starts_with(&fingerprint.to_bytes());
    let mut rest = value.get(LENGTHS_AT..)?;
    let short: [u8; 5] = take(&mut rest).ok()?;
    let [steps, input] = [take(&mut rest).ok()?, take(&mut rest).ok()?].map(u32::from_be_bytes);
    let lengths = short.into_iter().map(u32::from).chain([steps, input]);
    let at = lengths.map(u64::from).sum::<u64>() + u64::try_from(value.len() - rest.len()).ok()?;
    let at = usize::try_from(at).ok()?;
    (same && at <= value.len()).then_some(at)
}

/// Decodes the beginning of a value, up to the history. The recording, the steps and the input are
/// empty.
pub(crate) fn decode_beginning(mut value: &[u8]) -> Result<Record, Unreadable> {
    let Header { mut record, state, .. } = decode_header(&mut value)?;
    record.state = match state {
        IN_FLIGHT => RecordState::InFlight,
        COMPLETED => RecordState::Completed(Bytes::new()),
        HELD => RecordState::Held,
        _ => return Err(Unreadable),
    };
    Ok(record)
}

/// What the header and the texts up to the history say.
struct Header {
    /// The record, in flight, without its steps and its input.
    record: Record,
    state: u8,
    completed_at: Timestamp,
    /// The lengths of the steps and of the input, which follow.
    long: [u32; 2],
}

fn decode_header(rest: &mut &[u8]) -> Result<Header, Unreadable> {
    let [version, state, abandoned] = take(rest)?;
    if version != VERSION {
        return Err(Unreadable);
    }
    let attempt = u32::from_be_bytes(take(rest)?);
    let owner = OwnerToken::from_bytes(take(rest)?);
    let fingerprint = Fingerprint::from_bytes(take(rest)?);
    let [lease_until, first_seen, expires_at] = [time(rest)?, time(rest)?, time(rest)?];
    let lease = Duration::from_millis(time(rest)?.as_millis());
    let completed_at = time(rest)?;
    let status = u16::from_be_bytes(take(rest)?);
    let short: [u8; 5] = take(rest)?;
    let long = [take(rest)?, take(rest)?].map(u32::from_be_bytes);
    let [operation, principal, reference, progress, history] =
        short.map(|length| next_text(rest, length.into()));
    let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    record.attempt = attempt;
    record.abandoned = match abandoned {
        0 => Abandoned::Retry,
        1 => Abandoned::Hold,
        _ => return Err(Unreadable),
    };
    (record.lease, record.lease_until) = (lease, lease_until);
    record.operation = short_text(operation?)?;
    record.principal = match principal? {
        [] => None,
        bytes => Some(Principal::from_bytes(bytes.try_into().map_err(|_| Unreadable)?)),
    };
    record.completed_at = (state == COMPLETED).then_some(completed_at);
    record.status = (status != 0).then_some(status);
    let (reference, progress) = (short_text(reference?)?, short_text(progress?)?);
    record.notes.reference = Some(reference).filter(|text| !text.is_empty());
    record.notes.progress = Some(progress).filter(|text| !text.is_empty());
    let history = str::from_utf8(history?).map_err(|_| Unreadable)?;
    record.history = History::decode(history).map_err(|_| Unreadable)?;
    Ok(Header { record, state, completed_at, long })
}

fn next_text<'a>(rest: &mut &'a [u8], length: u32) -> Result<&'a [u8], Unreadable> {
    let length = usize::try_from(length).map_err(|_| Unreadable)?;
    let (text, more) = rest.split_at_checked(length).ok_or(Unreadable)?;
    *rest = more;
    Ok(text)
}

pub(crate) fn short_text(bytes: &[u8]) -> Result<ShortText, Unreadable> {
    std::str::from_utf8(bytes)
        .map_err(|_| Unreadable)
        .and_then(|text| ShortText::new(text).map_err(|_| Unreadable))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    let (taken, more) = rest.split_first_chunk().ok_or(Unreadable)?;
    *rest = more;
    Ok(*taken)
}

fn time(rest: &mut &[u8]) -> Result<Timestamp, Unreadable> {
    take(rest).map(|time| Timestamp::from_millis(u64::from_be_bytes(time)))
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;
    use idempotent_core::{Notes, history::Kind};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::encoding::{encode_claim, layout::HEADER_LEN, tests::claim, with_absolute_times};

    /// The lengths of the texts, at the end of the header.
    const LENGTHS_LEN: usize = 13;

    /// A value with these texts.
    fn with_texts(texts: [&[u8]; 7]) -> Vec<u8> {
        let mut value = encode_claim(&claim());
        value.truncate(HEADER_LEN - LENGTHS_LEN);
        let (short, long) = texts.split_at(5);
        short.iter().for_each(|text| value.put_u8(text.len().try_into().unwrap()));
        long.iter().for_each(|text| value.put_u32(text.len().try_into().unwrap()));
        [value, texts.concat()].concat()
    }

    #[test]
    fn all_texts_are_read_or_the_value_is_refused() {
        let history = b"c0000000000ah0000000000b";
        let texts: [&[u8]; 7] =
            [b"POST /", &[6; 16], b"pi_1", b"half", history, &[0; 300], &[255; 70_000]];
        let record = decode(with_texts(texts).into()).unwrap();
        assert_eq!(record.operation.as_str(), "POST /");
        assert_eq!(record.principal, Some(Principal::from_bytes([6; 16])));
        let Notes { reference, progress, steps, input, .. } = record.notes;
        assert_eq!((reference.as_deref(), progress.as_deref()), (Some("pi_1"), Some("half")));
        assert!(steps[..] == [0; 300] && input[..] == [255; 70_000]);
        let appended = History::EMPTY.with(Kind::Claimed, Timestamp::from_millis(10));
        assert_eq!(record.history, appended.with(Kind::Held, Timestamp::from_millis(11)));
        let mut listed = decode(with_texts(texts).into()).unwrap();
        (listed.notes.steps, listed.notes.input) = (Bytes::new(), Bytes::new());
        let length = HEADER_LEN + texts[..5].concat().len();
        let whole = with_texts(texts);
        assert_eq!(decode_beginning(&whole[..length]), Ok(listed.clone()));
        assert_eq!(decode_beginning(&whole[..length + 100]), Ok(listed));
        assert_eq!(decode_beginning(&whole[..length - 1]), Err(Unreadable));
        let wrong: [(usize, &[u8]); 7] = [
            (0, b"\xff"),
            (1, &[6; 15]),
            (1, &[6; 17]),
            (2, b"a\nb"),
            (3, b"\xc3"),
            (4, b"c0000000000"),
            (4, b"\xff0000000000a"),
        ];
        for (at, text) in wrong {
            let mut texts = texts;
            texts[at] = text;
            assert_eq!(decode(with_texts(texts).into()), Err(Unreadable), "{at}");
        }
        // One byte too many or too few for the lengths of the texts.
        let whole = with_texts(texts);
        for at in (HEADER_LEN - LENGTHS_LEN)..HEADER_LEN {
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

    #[test]
    fn the_recording_of_a_completed_record_is_found_by_its_fingerprint() {
        let texts: [&[u8]; 7] = [b"POST /", &[6; 16], b"pi_1", b"", b"", &[1; 300], &[2; 70_000]];
        let mut value = with_texts(texts);
        value[1] = COMPLETED;
        let length = value.len();
        value.extend_from_slice(b"recording");
        let found =
            |value: &[u8]| recording_for(&claim().fingerprint, Bytes::copy_from_slice(value)).ok();
        assert_eq!(found(&value).unwrap(), &b"recording"[..]);
        assert_eq!(found(&value[..length]).unwrap(), &b""[..]);
        assert!((0..length).all(|length| found(&value[..length]).is_none()));
        for at in [0, 1, 2, FINGERPRINT_AT, FINGERPRINT_AT + Fingerprint::BYTES - 1] {
            let mut other = value.clone();
            other[at] ^= 3;
            assert_eq!(found(&other), None, "{at}");
            assert_eq!(
                recording_for(&claim().fingerprint, other.clone().into()),
                Err(other.into())
            );
        }
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
            let lengths = bytes.get_mut(HEADER_LEN - LENGTHS_LEN..HEADER_LEN);
            if let (true, Some(lengths)) = (short, lengths) {
                lengths.iter_mut().for_each(|length| *length %= 4);
                lengths[4..8].fill(0);
                lengths[9..12].fill(0);
            }
            let bytes = Bytes::from(bytes);
            let found = bytes.get(FINGERPRINT_AT..FINGERPRINT_AT + Fingerprint::BYTES).map(|own| {
                let own = Fingerprint::from_bytes(own.try_into().unwrap());
                recording_for(&own, bytes.clone())
            });
            if let Ok(record) = decode(bytes) {
                let recording = found.and_then(Result::ok).map(RecordState::Completed);
                let completed = matches!(record.state, RecordState::Completed(_));
                prop_assert_eq!(recording, completed.then(|| record.state.clone()));
                let _ = with_absolute_times(record, Timestamp::from_millis(expires));
            }
        }
    }
}
