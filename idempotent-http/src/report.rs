//! What people and programs are shown of recordings: beside the views of
//! [`idempotent_core::report`], which know no HTTP.

use bytes::Bytes;
use idempotent_core::{EncodedRecording, Record, RecordState, RecordingError};
use serde::Serialize;

use crate::recording::{RecordedBody, Recording};

mod given;

pub use self::given::{GivenResponse, InvalidResponse};

/// What is shown of a recording. Its body is shown only if that is asked for.
///
/// ```
/// use bytes::Bytes;
/// use idempotent_http::{
///     recording::{RecordedBody, encode},
///     report::RecordingView,
/// };
///
/// let body = RecordedBody::Whole(Bytes::from_static(b"{}"));
/// let recording = encode(201, &[(b"content-type", b"application/json")], &body);
/// let view = RecordingView::of(recording.as_bytes(), false);
/// assert_eq!(view.status, Some(201));
/// assert_eq!(view.body.map(|body| (body.bytes, body.text)), Some((2, None)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordingView {
    /// What is recorded.
    pub kind: RecordingKind,
    /// The length of the encoded recording.
    pub bytes: u64,
    /// The status of the response.
    pub status: Option<u16>,
    /// Its header lines, in order.
    pub headers: Vec<HeaderView>,
    /// Its body. `None` if it had none.
    pub body: Option<BodyView>,
}

/// What a recording is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordingKind {
    /// A response.
    Response,
    /// The result of a job, or of another encoding than that of responses.
    Other,
    /// Nothing that this program can read: it is sealed, and there is no keyring, or one that does
    /// not open it.
    Sealed,
    /// Nothing that can be read: the bytes are damaged. It is never replayed.
    Damaged,
}

/// A header line. Bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeaderView {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// The body of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BodyView {
    /// Its length; 0 if it is omitted.
    pub bytes: u64,
    /// Whether it was not recorded, because it exceeded a limit.
    pub is_omitted: bool,
    /// The body, if it is asked for and is UTF-8.
    pub text: Option<String>,
    /// The body in hexadecimal digits, if it is asked for and is not UTF-8.
    pub hex: Option<String>,
}

impl RecordingView {
    /// The view of an encoded recording, with its body if `shows_body` is true.
    #[must_use]
    pub fn of(encoded: &Bytes, shows_body: bool) -> Self {
        let view = |kind| Self {
            kind,
            bytes: length(encoded),
            status: None,
            headers: Vec::new(),
            body: None,
        };
        let recording = match EncodedRecording::verify(encoded.clone()) {
            Ok(recording) => recording,
            Err(RecordingError::Sealed) => return view(RecordingKind::Sealed),
            Err(_) => return view(RecordingKind::Damaged),
        };
        let Ok(Recording { status, headers, body, .. }) = Recording::decode(&recording) else {
            let content = recording.content();
            // After the version and, in the result of a job, its outcome.
            let result = content.get(2..).filter(|_| content.first() == Some(&RESULT));
            let body = result.map(|result| BodyView::of(result, shows_body));
            return Self { body, ..view(RecordingKind::Other) };
        };
        let headers = headers.iter().map(|(name, value)| HeaderView {
            name: String::from_utf8_lossy(name).into_owned(),
            value: String::from_utf8_lossy(value).into_owned(),
        });
        let body = match &body {
            RecordedBody::None => None,
            RecordedBody::Whole(body) => Some(BodyView::of(body, shows_body)),
            RecordedBody::Omitted => {
                Some(BodyView { is_omitted: true, ..BodyView::of(&[], false) })
            }
        };
        Self {
            status: Some(status),
            headers: headers.collect(),
            body,
            ..view(RecordingKind::Response)
        }
    }

    /// The view of the recording of a record; `None` if the operation is not completed.
    #[must_use]
    pub fn of_record(record: &Record, shows_body: bool) -> Option<Self> {
        match &record.state {
            RecordState::Completed(recording) => Some(Self::of(recording, shows_body)),
            RecordState::InFlight | RecordState::Held => None,
        }
    }
}

/// The version of the recording of a job's result.
const RESULT: u8 = 2;

impl BodyView {
    fn of(body: &[u8], is_shown: bool) -> Self {
        let text = std::str::from_utf8(body).ok();
        let hex = || body.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            bytes: length(body),
            is_omitted: false,
            text: text.filter(|_| is_shown).map(str::to_owned),
            hex: (is_shown && text.is_none()).then(hex),
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recording::encode;

    fn whole(body: &'static [u8]) -> EncodedRecording {
        encode(201, &[(b"content-type", b"text/plain")], &RecordedBody::Whole(body.into()))
    }

    #[test]
    fn a_body_is_shown_only_if_it_is_asked_for() {
        let recording = whole(b"secret");
        let view = |shows_body| RecordingView::of(recording.as_bytes(), shows_body);
        let mut expected = json!({
            "kind": "response",
            "bytes": recording.as_bytes().len(),
            "status": 201,
            "headers": [{ "name": "content-type", "value": "text/plain" }],
            "body": { "bytes": 6, "is_omitted": false, "text": null, "hex": null },
        });
        assert_eq!(serde_json::to_value(view(false)).unwrap(), expected);
        assert!(!format!("{:?}", view(false)).contains("secret"));
        expected["body"]["text"] = "secret".into();
        assert_eq!(serde_json::to_value(view(true)).unwrap(), expected);
        let binary = RecordingView::of(whole(b"\xff\0").as_bytes(), true).body.unwrap();
        assert_eq!((binary.text, binary.hex), (None, Some("ff00".into())));
    }

    #[test]
    fn an_omitted_body_and_none_are_told_apart() {
        let body = |body| RecordingView::of(encode(200, &[], &body).as_bytes(), true).body;
        assert_eq!(body(RecordedBody::None), None);
        assert!(body(RecordedBody::Omitted).unwrap().is_omitted);
    }

    #[test]
    fn what_is_no_response_is_named() {
        let kind = |bytes: &Bytes| RecordingView::of(bytes, false).kind;
        assert_eq!(kind(&Bytes::from_static(b"damaged")), RecordingKind::Damaged);
        let sealed = [EncodedRecording::SEALED, 0, 201, 7];
        assert_eq!(kind(&Bytes::copy_from_slice(&sealed)), RecordingKind::Sealed);
        assert_eq!(
            kind(EncodedRecording::with_checksum(vec![9, 9]).as_bytes()),
            RecordingKind::Other
        );
        let result = idempotent_core::job::recording_of::<_, ()>(Ok(&7)).unwrap();
        let view = RecordingView::of(result.as_bytes(), true);
        let body = view.body.and_then(|body| body.text);
        assert_eq!((view.kind, body.as_deref()), (RecordingKind::Other, Some("7")));
    }
}
