//! Fingerprint functions, to name in `fingerprint = "…"`.
//!
//! A fingerprint function takes the request and its body, and returns the bytes that say what the request means. Method, path and query
//! are always part of the fingerprint; with a function of your own, `Content-Type` and `Content-Encoding` are not, unless it returns
//! them.
//!
//! ```
//! use actix_web::{HttpRequest, HttpResponse, post};
//! use idempotent_actix::{idempotent, scope};
//!
//! /// Trailing white space does not count.
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

#[cfg(feature = "multipart")]
use std::convert::Infallible;

#[cfg(feature = "multipart")]
use actix_web::{HttpRequest, http::header};
#[cfg(feature = "multipart")]
use bytes::Bytes;
#[cfg(feature = "multipart")]
use futures_util::{FutureExt, stream};
#[cfg(feature = "multipart")]
use sha2::{Digest, Sha256};

/// The parts of a `multipart/form-data` body (RFC 7578): the headers and the content of each, in order. The boundary does not count,
/// since most clients draw a new one for each try.
///
/// A body that is not well-formed multipart counts as it was sent, together with its `Content-Type`.
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
#[cfg(feature = "multipart")]
#[must_use]
pub fn multipart(request: &HttpRequest, body: &[u8]) -> [u8; 32] {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let boundary = content_type.and_then(|value| multer::parse_boundary(value.to_str().ok()?).ok());
    // All of the body is there, so nothing is ever waited for.
    let parts =
        boundary.and_then(|boundary| digest_of_parts(Bytes::copy_from_slice(body), boundary).now_or_never()?.ok());
    parts.unwrap_or_else(|| {
        let mut hasher = Sha256::new_with_prefix("as sent");
        add(&mut hasher, content_type.map_or(&b""[..], |value| value.as_bytes()));
        add(&mut hasher, body);
        hasher.finalize().into()
    })
}

#[cfg(feature = "multipart")]
async fn digest_of_parts(body: Bytes, boundary: String) -> Result<[u8; 32], multer::Error> {
    let body = stream::iter([Ok::<_, Infallible>(body)]);
    let mut parts = multer::Multipart::new(body, boundary);
    let mut hasher = Sha256::new_with_prefix("parts");
    while let Some(mut part) = parts.next_field().await? {
        for (name, value) in part.headers() {
            add(&mut hasher, name.as_str().as_bytes());
            add(&mut hasher, value.as_bytes());
        }
        // Its length is not known before its end; a digest has always the same.
        let mut content = Sha256::new();
        while let Some(chunk) = part.chunk().await? {
            content.update(&chunk);
        }
        hasher.update([0; 8]);
        hasher.update(content.finalize());
    }
    Ok(hasher.finalize().into())
}

#[cfg(feature = "multipart")]
fn add(hasher: &mut Sha256, part: &[u8]) {
    hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(part);
}

#[cfg(all(test, feature = "multipart"))]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn fingerprint(boundary: &str, body: &str) -> [u8; 32] {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let request = TestRequest::post().insert_header((header::CONTENT_TYPE, content_type)).to_http_request();
        multipart(&request, body.replace("BOUNDARY", boundary).as_bytes())
    }

    fn form(fields: &[(&str, &str)]) -> String {
        let part = |(name, value): &(&str, &str)| {
            format!("--BOUNDARY\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        fields.iter().map(part).chain(["--BOUNDARY--\r\n".to_owned()]).collect()
    }

    #[test]
    fn the_boundary_does_not_count_and_each_part_does() {
        let one = form(&[("amount", "10"), ("to", "bob")]);
        assert_eq!(fingerprint("a1", &one), fingerprint("b2", &one));
        for other in [
            form(&[("amount", "11"), ("to", "bob")]),
            form(&[("amount", "10"), ("from", "bob")]),
            form(&[("to", "bob"), ("amount", "10")]),
            form(&[("amount", "10")]),
            form(&[("amount", "10to"), ("", "bob")]),
        ] {
            assert_ne!(fingerprint("a1", &one), fingerprint("a1", &other), "{other}");
        }
    }

    #[test]
    fn what_is_not_well_formed_counts_as_it_was_sent() {
        for broken in ["", "no parts", "--BOUNDARY\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ncut off"] {
            assert_eq!(fingerprint("a1", broken), fingerprint("a1", broken));
            assert_ne!(fingerprint("a1", broken), fingerprint("b2", broken), "{broken}");
        }
        let plain = TestRequest::post().to_http_request();
        assert_ne!(multipart(&plain, b"a"), multipart(&plain, b"b"));
    }
}
