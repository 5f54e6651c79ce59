//! Recorded responses and their encoding.

use std::fmt;

use bytes::{Buf, Bytes};
use idempotent_core::{EncodedRecording, RecordingError};

mod lines;
mod record_rule;
mod trace;

pub use self::{lines::recorded_lines, record_rule::RecordRule, trace::TraceContext};

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
    /// The trace of the request that was run, if it had one. It is not part of the response.
    pub trace: Option<TraceContext>,
    /// Whether the application has changed the recording, so that it is not the response that the
    /// first client got. The replay says so.
    pub redacted: bool,
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
    /// The body was not recorded, because it exceeded a limit, or because the handler said so. The
    /// replay has no body.
    Omitted,
}

const VERSION: u8 = EncodedRecording::WITH_STATUS;
/// Added to the kind of the body of a recording that the application has changed.
const REDACTED: u8 = 4;

/// The bit of the body's kind that says that a trace follows.
const TRACED: u8 = 0x80;

/// Encodes a response, without copying it to a [`Recording`] first. The header lines are (name,
/// value), in order.
#[must_use]
pub fn encode(status: u16, headers: &[(&[u8], &[u8])], body: &RecordedBody) -> EncodedRecording {
    encode_marked(status, headers, body, false, None)
}

/// Encodes a response, whether it was redacted, and its trace.
fn encode_marked(
    status: u16,
    headers: &[(&[u8], &[u8])],
    body: &RecordedBody,
    redacted: bool,
    trace: Option<&TraceContext>,
) -> EncodedRecording {
    let (kind, body): (u8, &[u8]) = match body {
        RecordedBody::None => (0, &[]),
        RecordedBody::Whole(body) => (1, body),
        RecordedBody::Omitted => (2, &[]),
    };
    let bytes: usize = headers.iter().map(|(name, value)| 6 + name.len() + value.len()).sum();
    let mut out = Vec::with_capacity(56 + bytes + body.len());
    out.push(VERSION);
    out.extend_from_slice(&status.to_be_bytes());
    let redacted = if redacted { REDACTED } else { 0 };
    out.push(kind | redacted | trace.map_or(0, |_| TRACED));
    if let Some(trace) = trace {
        out.extend_from_slice(&trace.to_bytes());
    }
    put_length(&mut out, headers.len());
    for part in headers.iter().flat_map(|(name, value)| [name, value]) {
        put_length(&mut out, part.len());
        out.extend_from_slice(part);
    }
    put_length(&mut out, body.len());
    out.extend_from_slice(body);
    EncodedRecording::with_checksum(out).shortened_by(without_body)
}

/// Encodes a response, within `limit` bytes of headers and body together: beyond it the body is
/// omitted, and the headers too if they alone exceed it. The trace takes 24 bytes more.
#[must_use]
pub fn encode_within(
    limit: usize,
    status: u16,
    headers: &[(&[u8], &[u8])],
    body: &RecordedBody,
    trace: Option<&TraceContext>,
) -> EncodedRecording {
    let bytes = headers.iter().map(|(name, value)| name.len().saturating_add(value.len()));
    let bytes = bytes.fold(0, usize::saturating_add);
    let fits = match body {
        RecordedBody::None | RecordedBody::Omitted => bytes <= limit,
        RecordedBody::Whole(body) => bytes.saturating_add(body.len()) <= limit,
    };
    let headers = if bytes > limit { &[] } else { headers };
    encode_marked(status, headers, if fits { body } else { &RecordedBody::Omitted }, false, trace)
}

/// The recording with only the status and headers of its response.
fn without_body(recording: &EncodedRecording) -> Option<EncodedRecording> {
    let recording = Recording::decode(recording).ok()?;
    Some(Recording { body: RecordedBody::Omitted, ..recording }.encode())
}

impl From<&Recording> for EncodedRecording {
    fn from(recording: &Recording) -> Self {
        recording.encode()
    }
}

impl Recording {
    /// Creates a recording. The header lines are (name, value), in order.
    #[must_use]
    pub const fn new(status: u16, headers: Vec<(Bytes, Bytes)>, body: RecordedBody) -> Self {
        Self { status, headers, body, redacted: false, trace: None }
    }

    /// Sets the trace of the request that was run.
    #[must_use]
    pub fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Encodes the recording: the version of the encoding, the parts with their lengths, and a
    /// CRC-32 of all of them.
    #[must_use]
    pub fn encode(&self) -> EncodedRecording {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (&name[..], &value[..])).collect();
        let trace = self.trace.as_ref();
        encode_marked(self.status, &headers, &self.body, self.redacted, trace)
    }

    /// Decodes the result of [`encode`](Self::encode). Headers and body are slices of the encoded
    /// bytes, not copies.
    ///
    /// # Errors
    /// Fails if the bytes were written by a later version of this library, or are the result of a
    /// job. The operation of such a record is neither run again nor replayed.
    pub fn decode(recording: &EncodedRecording) -> Result<Self, RecordingError> {
        let mut rest = recording.content();
        match rest.try_get_u8().map_err(damaged)? {
            VERSION => {}
            version => return Err(RecordingError::UnknownVersion { version }),
        }
        let status = rest.try_get_u16().map_err(damaged)?;
        let kind = rest.try_get_u8().map_err(damaged)?;
        let trace = if kind & TRACED == 0 { None } else { Some(TraceContext::take(&mut rest)?) };
        let count = take_length(&mut rest)?;
        let headers = (0..count)
            .map(|_| Ok((take(&mut rest)?, take(&mut rest)?)))
            .collect::<Result<_, RecordingError>>()?;
        let body = take(&mut rest)?;
        let redacted = kind & REDACTED != 0;
        let body = match kind & !(REDACTED | TRACED) {
            0 if body.is_empty() => RecordedBody::None,
            1 => RecordedBody::Whole(body),
            2 if body.is_empty() => RecordedBody::Omitted,
            _ => return Err(RecordingError::Damaged),
        };
        if rest.is_empty() {
            Ok(Self { status, headers, body, redacted, trace })
        } else {
            Err(RecordingError::Damaged)
        }
    }
}

/// Bytes of which `Debug` shows only the length, so that no log contains a response.
struct Length<'a>(&'a Bytes);

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
        let byte = rest.try_get_u8().map_err(damaged)?;
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

fn damaged(_: bytes::TryGetError) -> RecordingError {
    RecordingError::Damaged
}

#[cfg(test)]
mod tests;
