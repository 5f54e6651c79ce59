//! The encoding of recorded responses.

use bytes::Bytes;
use idempotent_core::{EncodedRecording, RecordingError};
use idempotent_http::recording::{RecordedBody, Recording};

use crate::input::Input;

/// Above this length, only some of the damaged copies are tried.
const FEW: usize = 48;

/// Input: what is decoded; and the same bytes as the parts of a recording.
pub(crate) fn run(input: &[u8]) {
    decode(Bytes::copy_from_slice(input));
    decode(with_checksum(input));
    let recording = build(&mut Input(input));
    let encoded = Bytes::from(recording.encode());
    assert_eq!(read(&encoded), Ok(recording));
    damage(&encoded, input.iter().map(|byte| usize::from(*byte)).sum());
}

/// Reads a recording as it is read from a store.
fn read(bytes: &Bytes) -> Result<Recording, RecordingError> {
    Recording::decode(&EncodedRecording::verify(bytes.clone())?)
}

/// The bytes with the checksum that belongs to them.
fn with_checksum(content: &[u8]) -> Bytes {
    [content, &crc32fast::hash(content).to_be_bytes()].concat().into()
}

/// Bytes are refused, or are a recording that keeps its meaning when it is encoded again.
fn decode(bytes: Bytes) {
    let (version, intact) = match bytes.split_last_chunk::<4>() {
        Some((content, _)) => (content.first().copied(), bytes == with_checksum(content)),
        None => (None, false),
    };
    match read(&bytes) {
        Ok(recording) => {
            assert!(intact && version == Some(1));
            let parts: usize =
                recording.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(parts < bytes.len(), "more bytes than there were");
            let again = recording.encode();
            assert!(again.as_bytes().len() <= bytes.len());
            assert_eq!(Recording::decode(&again), Ok(recording));
        }
        Err(RecordingError::UnknownVersion { version: unknown }) => {
            assert!(intact && unknown != 1 && version == Some(unknown));
        }
        Err(RecordingError::Sealed) => {
            assert_eq!(bytes.first(), Some(&EncodedRecording::SEALED));
        }
        Err(_) => assert!(!intact || version == Some(1) || version.is_none()),
    }
}

fn build(input: &mut Input<'_>) -> Recording {
    let status = u16::from_be_bytes(input.array());
    let kind = input.byte();
    let count = input.byte() % 5;
    let part = |input: &mut Input<'_>| Bytes::copy_from_slice(input.part());
    let headers = (0..count).map(|_| (part(input), part(input))).collect();
    let body = match kind % 3 {
        0 => RecordedBody::None,
        1 => RecordedBody::Whole(Bytes::copy_from_slice(input.0)),
        _ => RecordedBody::Omitted,
    };
    let mut recording = Recording::new(status, headers, body);
    recording.redacted = kind & 0x80 != 0;
    recording
}

/// A shortened recording, or one with a changed bit, is refused.
fn damage(encoded: &Bytes, seed: usize) {
    let step = encoded.len() / FEW + 1;
    for at in (seed % step..encoded.len()).step_by(step) {
        assert!(read(&encoded.slice(..at)).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut changed = encoded.to_vec();
            changed[at] ^= 1 << bit;
            assert!(read(&changed.into()).is_err(), "bit {bit} of {at}");
        }
    }
}
