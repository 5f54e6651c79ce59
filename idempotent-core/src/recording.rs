//! Recorded responses and their encoding.

use std::fmt;

use bytes::{Buf, Bytes};

/// A recorded response: status, header lines in order, and body.
///
/// Header lines and body are unchanged bytes. `Debug` shows only the status, the number of headers
/// and the length of the body.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recording {
    /// The status code.
    pub status: u16,
    /// Header lines as (name, value), in order.
    pub headers: Vec<(Bytes, Bytes)>,
    /// The body.
    pub body: RecordedBody,
}

/// The body of a recording. `Debug` shows only its length.
///
/// Exhaustive: each kind of body has to be replayed in a different way.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordedBody {
    /// The response had no body, not even an empty one.
    None,
    /// The complete body.
    Whole(Bytes),
    /// The body was not recorded, because it exceeded a limit. The replay has no body.
    Omitted,
}

const VERSION: u8 = 1;

pub(crate) fn status(encoded: &[u8]) -> Option<u16> {
    match encoded {
        [VERSION, high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// A recording in its [encoded](Recording::encode) form, as stores keep it. `Debug` shows only its
/// length.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedRecording(Bytes);

impl EncodedRecording {
    /// Encodes a response, without copying it to a [`Recording`] first. The header lines are (name,
    /// value), in order.
    #[must_use]
    pub fn new(status: u16, headers: &[(&[u8], &[u8])], body: &RecordedBody) -> Self {
        let (kind, body): (u8, &[u8]) = match body {
            RecordedBody::None => (0, &[]),
            RecordedBody::Whole(body) => (1, body),
            RecordedBody::Omitted => (2, &[]),
        };
        let bytes: usize = headers.iter().map(|(name, value)| 6 + name.len() + value.len()).sum();
        let mut out = Vec::with_capacity(32 + bytes + body.len());
        out.push(VERSION);
        out.extend_from_slice(&status.to_be_bytes());
        out.push(kind);
        put_length(&mut out, headers.len());
        for part in headers.iter().flat_map(|(name, value)| [name, value]) {
            put_length(&mut out, part.len());
            out.extend_from_slice(part);
        }
        put_length(&mut out, body.len());
        out.extend_from_slice(body);
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_be_bytes());
        Self(out.into())
    }
}

impl From<&Recording> for EncodedRecording {
    fn from(Recording { status, headers, body }: &Recording) -> Self {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        Self::new(*status, &headers, body)
    }
}

impl From<EncodedRecording> for Bytes {
    fn from(EncodedRecording(bytes): EncodedRecording) -> Self {
        bytes
    }
}

impl Recording {
    /// Creates a recording. The header lines are (name, value), in order.
    #[must_use]
    pub const fn new(status: u16, headers: Vec<(Bytes, Bytes)>, body: RecordedBody) -> Self {
        Self { status, headers, body }
    }

    /// Encodes the recording: the version of the encoding, the parts with their lengths, and a
    /// CRC-32 of all of them.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        EncodedRecording::from(self).into()
    }

    /// Returns the status of an encoded recording; `None` if a later version of this library has
    /// encoded it.
    #[must_use]
    pub fn status_of(encoded: &[u8]) -> Option<u16> {
        status(encoded)
    }

    /// Decodes the result of [`encode`](Self::encode). Headers and body are slices of `bytes`, not
    /// copies.
    ///
    /// # Errors
    /// Fails if the bytes are damaged, or were written by a later version of this library. The
    /// operation of such a record is neither run again nor replayed.
    pub fn decode(bytes: &Bytes) -> Result<Self, RecordingError> {
        let (content, checksum) = bytes.split_last_chunk::<4>().ok_or(RecordingError::Damaged)?;
        if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
            return Err(RecordingError::Damaged);
        }
        let mut rest = bytes.slice(..content.len());
        match rest.try_get_u8()? {
            VERSION => {}
            version => return Err(RecordingError::UnknownVersion { version }),
        }
        let status = rest.try_get_u16()?;
        let kind = rest.try_get_u8()?;
        let count = take_length(&mut rest)?;
        let headers = (0..count)
            .map(|_| Ok((take(&mut rest)?, take(&mut rest)?)))
            .collect::<Result<_, RecordingError>>()?;
        let body = take(&mut rest)?;
        let body = match kind {
            0 if body.is_empty() => RecordedBody::None,
            1 => RecordedBody::Whole(body),
            2 if body.is_empty() => RecordedBody::Omitted,
            _ => return Err(RecordingError::Damaged),
        };
        if rest.is_empty() {
            Ok(Self { status, headers, body })
        } else {
            Err(RecordingError::Damaged)
        }
    }
}

/// Bytes of which `Debug` shows only the length, so that no log contains a response.
pub(crate) struct Length<'a>(pub(crate) &'a Bytes);

impl fmt::Debug for Length<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Recording");
        shown
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body", &self.body)
            .finish()
    }
}

impl fmt::Debug for RecordedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Whole(body) => f.debug_tuple("Whole").field(&Length(body)).finish(),
            Self::Omitted => f.write_str("Omitted"),
        }
    }
}

impl fmt::Debug for EncodedRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EncodedRecording").field(&Length(&self.0)).finish()
    }
}

/// Appends a length as unsigned LEB128: seven bits a byte, the lowest first.
fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
}

fn take_length(rest: &mut Bytes) -> Result<usize, RecordingError> {
    let mut length = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let byte = rest.try_get_u8()?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(length);
        }
    }
    Err(RecordingError::Damaged)
}

fn take(rest: &mut Bytes) -> Result<Bytes, RecordingError> {
    match take_length(rest)? {
        length if length <= rest.len() => Ok(rest.split_to(length)),
        _ => Err(RecordingError::Damaged),
    }
}

/// The reason why a recording cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Bytes were changed or lost.
    #[error("the recording is damaged")]
    Damaged,
    /// A later version of this library wrote the recording.
    #[error("the recording has the unknown version {version}")]
    UnknownVersion {
        /// The version of the encoding.
        version: u8,
    },
}

impl From<bytes::TryGetError> for RecordingError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Damaged
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn recordings() -> impl Strategy<Value = Recording> {
        let bytes = || vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let body = prop_oneof![
            Just(RecordedBody::None),
            Just(RecordedBody::Omitted),
            bytes().prop_map(RecordedBody::Whole)
        ];
        (any::<u16>(), vec((bytes(), bytes()), 0..5), body)
            .prop_map(|(status, headers, body)| Recording { status, headers, body })
    }

    proptest! {
        #[test]
        fn an_encoded_recording_is_decoded(recording in recordings()) {
            prop_assert_eq!(Recording::decode(&recording.encode()), Ok(recording));
        }

        #[test]
        fn a_changed_or_cut_recording_is_damaged(
            recording in recordings(),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let whole = recording.encode();
            let at = at.index(whole.len());
            let mut changed = whole.to_vec();
            changed[at] ^= 1u8 << bit;
            prop_assert!(Recording::decode(&changed.into()).is_err());
            prop_assert!(Recording::decode(&whole.slice(..at)).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200), sealed: bool) {
            let mut bytes = bytes;
            if sealed {
                bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
            }
            let _ = Recording::decode(&bytes.into());
        }
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = vec![2, 0, 200, 0];
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        assert_eq!(
            Recording::decode(&bytes.into()),
            Err(RecordingError::UnknownVersion { version: 2 })
        );
    }

    #[test]
    fn the_first_version_stays_readable() {
        let recording = Recording {
            status: 201,
            headers: vec![(Bytes::from_static(b"location"), Bytes::from_static(b"/p/1"))],
            body: RecordedBody::Whole(Bytes::from_static(b"{}")),
        };
        let written = b"\x01\x00\xc9\x01\x01\x08location\x04/p/1\x02{}";
        let mut written = written.to_vec();
        written.extend(crc32fast::hash(&written).to_be_bytes());
        assert_eq!(recording.encode(), written);
    }
}
