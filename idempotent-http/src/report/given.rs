//! The response that an operator gives to a held operation.

use bytes::Bytes;
use idempotent_core::EncodedRecording;

use crate::recording::{RecordedBody, encode, recorded_lines};

/// The response that an operator gives to a held operation: what its clients get from now on. It is
/// recorded as the response of a handler would be.
///
/// ```
/// use idempotent_http::report::{GivenResponse, RecordingView};
///
/// let mut response = GivenResponse::new(201)?;
/// response.add_line("Content-Type: application/json")?;
/// response.body = Some("{}".into());
/// let view = RecordingView::of(response.encode().as_bytes(), true);
/// assert_eq!((view.status, view.headers.len()), (Some(201), 1));
/// # Ok::<_, idempotent_http::report::InvalidResponse>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenResponse {
    status: u16,
    headers: Vec<(String, String)>,
    /// The body. `None` is a response without content.
    pub body: Option<Bytes>,
}

/// The error of a [`GivenResponse`] that cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// The status is not one of a final response.
    #[error("the status {0} is none of a final response: it is from 200 to 599")]
    Status(u16),
    /// The line is not that of a header.
    #[error("`{}` is no header line `Name: value`", .0.escape_debug())]
    Line(String),
    /// The header belongs to one connection, one moment or one client.
    #[error("the header `{0}` is never part of a recording")]
    NeverRecorded(String),
}

impl GivenResponse {
    /// Creates a response with this status, without headers and body.
    ///
    /// # Errors
    /// Fails unless the status is from 200 to 599.
    pub fn new(status: u16) -> Result<Self, InvalidResponse> {
        match status {
            200..=599 => Ok(Self { status, headers: Vec::new(), body: None }),
            _ => Err(InvalidResponse::Status(status)),
        }
    }

    /// Adds a header line, such as `Location: /v1/refunds/7`.
    ///
    /// # Errors
    /// Fails if the text is no header line, and if the header is never recorded, such as
    /// `Set-Cookie` and `Date`.
    pub fn add_line(&mut self, line: &str) -> Result<(), InvalidResponse> {
        let (name, value) = line.split_once(':').ok_or_else(|| not_a_line(line))?;
        self.add_header(name.trim(), value.trim())
    }

    /// Adds a header.
    ///
    /// # Errors
    /// As [`add_line`](Self::add_line).
    pub fn add_header(&mut self, name: &str, value: &str) -> Result<(), InvalidResponse> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || value.chars().any(char::is_control) {
            return Err(not_a_line(name));
        }
        let name = name.to_ascii_lowercase();
        if recorded_lines([(name.as_str(), value.as_bytes())], []).is_empty() {
            return Err(InvalidResponse::NeverRecorded(name));
        }
        self.headers.push((name, value.to_owned()));
        Ok(())
    }

    /// Encodes the response as a recording.
    #[must_use]
    pub fn encode(&self) -> EncodedRecording {
        let headers: Vec<(&[u8], &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let body = self.body.clone().map_or(RecordedBody::None, RecordedBody::Whole);
        encode(self.status, &headers, &body)
    }
}

fn not_a_line(line: &str) -> InvalidResponse {
    InvalidResponse::Line(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RecordingView;

    #[test]
    fn a_response_is_recorded_as_the_guard_would() {
        let mut response = GivenResponse::new(201).unwrap();
        for line in
            ["Content-Type: application/json", "Location:/v1/refunds/7", "link: <a>; rel=next "]
        {
            response.add_line(line).unwrap();
        }
        response.body = Some("{}".into());
        let view = RecordingView::of(response.encode().as_bytes(), true);
        let headers: Vec<_> =
            view.headers.iter().map(|header| (&*header.name, &*header.value)).collect();
        let expected = [
            ("content-type", "application/json"),
            ("location", "/v1/refunds/7"),
            ("link", "<a>; rel=next"),
        ];
        assert_eq!((view.status, headers), (Some(201), expected.to_vec()));
        assert_eq!(view.body.and_then(|body| body.text).as_deref(), Some("{}"));
    }

    #[test]
    fn a_response_without_a_body_has_none() {
        let response = GivenResponse::new(204).unwrap();
        assert_eq!(RecordingView::of(response.encode().as_bytes(), true).body, None);
    }

    #[test]
    fn what_is_never_recorded_and_what_is_no_header_are_refused() {
        let mut response = GivenResponse::new(200).unwrap();
        for line in ["Date: now", "Set-Cookie: a=b", "no header", ": x", "a b: c", "a: \u{7}"] {
            assert!(response.add_line(line).is_err(), "{line}");
        }
        for status in [0, 100, 199, 600] {
            assert_eq!(GivenResponse::new(status), Err(InvalidResponse::Status(status)));
        }
    }
}
