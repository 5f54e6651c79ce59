//! Fingerprints: which requests count as the same.
//!
//! The guard stores a fingerprint of the first request with a key. A later request with the same
//! key and another fingerprint gets 422 (`key_reused`). The attribute's `fingerprint` chooses what
//! counts: the body's bytes, its canonical JSON, nothing of it, or the result of a function.
//!
//! A fingerprint function takes the request and its body, and returns bytes that are equal for
//! equal requests. Method, query and the values of the dynamic segments of the path are always part
//! of the fingerprint; the pattern of the route, or else the operation's `name`, is part of the
//! record id. `Content-Type` and
//! `Content-Encoding` are not part of it if a function is used, unless the function returns them.
//! If the function panics, the request gets 500 (`misconfigured`) and its handler does not run.
//!
//! [`FingerprintKeys`] sign the stored fingerprints, so that a stolen record cannot be used to
//! guess a body.
//!
//! # Examples
//!
//! ```
//! use actix_web::{HttpRequest, HttpResponse, post};
//! use idempotent_actix::{idempotent, scope};
//!
//! /// Ignores trailing white space.
//! fn trimmed<'a>(_: &HttpRequest, body: &'a [u8]) -> &'a [u8] {
//!     body.trim_ascii_end()
//! }
//!
//! #[idempotent(scope = "scope::bearer_token", fingerprint = "trimmed")]
//! #[post("/v1/notes")]
//! async fn create_note(body: String) -> HttpResponse {
//!     HttpResponse::Created().body(body)
//! }
//! ```

use actix_web::{HttpMessage, HttpRequest, http::header};
pub use idempotent_core::{FingerprintKeyError, FingerprintKeys};
use idempotent_http::digest::{self, MultipartType};

/// A fingerprint function for `multipart` bodies (RFC 2046 §5.1), such as forms with files (RFC
/// 7578), to name in `fingerprint = "…"`.
///
/// The boundary does not count, because most clients generate a new one for each request. All other
/// bytes of the parts count, and so do the media type, its other parameters and `Content-Encoding`.
///
/// The boundary is ignored only in bodies of the usual form: they begin with a boundary, each
/// boundary except the last is followed by a line break, and at most a line break follows the last
/// one. If the body has anything that two parsers may interpret differently (the boundary within a
/// part, a preamble, a `Content-Length` in a part), all of its bytes count as sent, including the
/// boundary.
///
/// ```
/// use actix_web::{HttpResponse, post};
/// use idempotent_actix::{fingerprint, idempotent, scope};
///
/// #[idempotent(scope = "scope::bearer_token", fingerprint = "fingerprint::multipart")]
/// #[post("/v1/files")]
/// async fn upload(body: actix_web::web::Bytes) -> HttpResponse {
///     HttpResponse::Created().body(body.len().to_string())
/// }
/// ```
#[must_use]
pub fn multipart(request: &HttpRequest, body: &[u8]) -> [u8; 32] {
    let lines = |name| request.headers().get_all(name).map(|value| value.as_bytes());
    let media = media_type(request);
    let (encodings, types) = (lines(header::CONTENT_ENCODING), lines(header::CONTENT_TYPE));
    digest::multipart(encodings, types, media.as_ref(), body)
}

/// The media type of the request; `None` if the request has several, or several boundaries.
fn media_type(request: &HttpRequest) -> Option<MultipartType> {
    if request.headers().get_all(header::CONTENT_TYPE).count() != 1 {
        return None;
    }
    let mime = request.mime_type().ok()??;
    let mut boundaries = mime.params().filter(|(name, _)| *name == "boundary");
    let (Some((_, boundary)), None) = (boundaries.next(), boundaries.next()) else { return None };
    let parameters = mime.params().filter(|(name, _)| *name != "boundary");
    let parameters = parameters.map(|(name, value)| format!("{name}={value}"));
    let parameters = std::iter::once(mime.essence_str().to_owned()).chain(parameters).collect();
    Some(MultipartType { parameters, boundary: boundary.as_str().to_owned() })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn fingerprint(content_type: &str, body: &str) -> [u8; 32] {
        let request =
            TestRequest::post().insert_header(("Content-Type", content_type)).to_http_request();
        multipart(&request, body.as_bytes())
    }

    /// The same body under two boundaries of different lengths.
    fn under_both(body: &str) -> [[u8; 32]; 2] {
        ["B", "----another"].map(|boundary| {
            let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
            fingerprint(&content_type, &body.replace("BOUNDARY", boundary))
        })
    }

    fn form(fields: &[(&str, &str)]) -> String {
        let part = |(name, value): &(&str, &str)| {
            format!(
                "--BOUNDARY\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
        };
        fields.iter().map(part).chain(["--BOUNDARY--\r\n".to_owned()]).collect()
    }

    #[test]
    fn the_boundary_does_not_count_and_every_other_byte_does() {
        let [one, renamed] = under_both(&form(&[("amount", "10"), ("to", "bob")]));
        assert_eq!(one, renamed);
        for other in [
            form(&[("amount", "11"), ("to", "bob")]),
            form(&[("amount", "10"), ("from", "bob")]),
            form(&[("to", "bob"), ("amount", "10")]),
            form(&[("amount", "10")]),
            form(&[("amount", "10to"), ("", "bob")]),
            form(&[("amount", "10"), ("to", "bob"), ("to", "bob")]),
        ] {
            let [first, second] = under_both(&other);
            assert_eq!(first, second);
            assert_ne!(first, one, "{other}");
        }
    }

    #[test]
    fn the_media_type_and_its_other_parameters_count() {
        let body = form(&[("amount", "10")]).replace("BOUNDARY", "B");
        let types =
            ["multipart/form-data", "multipart/mixed", "multipart/form-data; charset=utf-8"];
        let [form, mixed, charset] =
            types.map(|start| fingerprint(&format!("{start}; boundary=B"), &body));
        assert!(form != mixed && form != charset);
    }

    #[test]
    fn a_body_that_two_parsers_may_read_differently_counts_as_it_was_sent() {
        let part = "Content-Disposition: form-data; name=\"a\"\r\n\r\n1";
        for body in [
            String::new(),
            "no parts".into(),
            format!("--BOUNDARY\r\n{part}"),
            format!("\r\n--BOUNDARY\r\n{part}\r\n--BOUNDARY--\r\n"),
            format!("x--BOUNDARY--\r\n--BOUNDARY\r\n{part}\r\n--BOUNDARY--\r\n"),
            format!("--BOUNDARY\r\n{part}\r\n--BOUNDARY--\r\nepilogue"),
            format!("--BOUNDARY \r\n{part}\r\n--BOUNDARY--\r\n"),
            format!("--BOUNDARY\n{part}\n--BOUNDARY--\n"),
            format!("--BOUNDARY\r\n{part}\r--BOUNDARY\r\n{part}\r\n--BOUNDARY--\r\n"),
            format!("--BOUNDARY\r\n{part} --BOUNDARY\r\n--BOUNDARY--\r\n"),
            format!("--BOUNDARY\r\nContent-length : 1\r\n{part}\r\n--BOUNDARY--\r\n"),
            "--BOUNDARY\r\nContent-Length: 1\r\n--BOUNDARY--\r\n".into(),
        ] {
            let [one, renamed] = under_both(&body);
            assert_ne!(one, renamed, "{body}");
        }
        let two =
            TestRequest::post().insert_header(("Content-Type", "multipart/form-data; boundary=B"));
        let two = two.append_header(("Content-Type", "text/plain")).to_http_request();
        let body = form(&[("amount", "10")]).replace("BOUNDARY", "B");
        assert_ne!(
            multipart(&two, body.as_bytes()),
            fingerprint("multipart/form-data; boundary=B", &body)
        );
        let plain = TestRequest::post().to_http_request();
        assert_ne!(multipart(&plain, b"a"), multipart(&plain, b"b"));
    }
}
