//! Digests of `multipart` bodies, in which the boundary does not count.

use memchr::memmem;
use sha2::{Digest, Sha256};

/// The media type of a `multipart` body.
#[derive(Clone, Debug)]
pub struct MultipartType {
    /// The media type without parameters, and each parameter except the boundary, such as
    /// `charset=utf-8`.
    pub parameters: Vec<String>,
    /// The boundary.
    pub boundary: String,
}

/// Computes the digest of a `multipart` body (RFC 2046 §5.1), in which the boundary does not count.
///
/// The boundary is ignored only in bodies of the usual form: they begin with a boundary, each
/// boundary except the last is followed by a line break, and at most a line break follows the last
/// one. If the body has anything that two parsers may interpret differently, all of its bytes count
/// as sent, including the boundary.
///
/// `encodings` and `content_types` are the lines of `Content-Encoding` and `Content-Type`; `media`
/// is the type that the latter name, unless there are several or it has several boundaries.
#[must_use]
pub fn multipart<'a>(
    encodings: impl IntoIterator<Item = &'a [u8]>,
    content_types: impl IntoIterator<Item = &'a [u8]>,
    media: Option<&MultipartType>,
    body: &[u8],
) -> [u8; 32] {
    let mut hasher = Sha256::new();
    encodings.into_iter().for_each(|encoding| add(&mut hasher, encoding));
    match media.and_then(|media| Some((media, parts(body, &media.boundary)?))) {
        Some((media, parts)) => {
            add(&mut hasher, b"parts");
            media.parameters.iter().for_each(|parameter| add(&mut hasher, parameter.as_bytes()));
            parts.iter().for_each(|part| add(&mut hasher, part));
        }
        None => {
            add(&mut hasher, b"as sent");
            content_types.into_iter().for_each(|content_type| add(&mut hasher, content_type));
            add(&mut hasher, body);
        }
    }
    hasher.finalize().into()
}

/// The parts of a body with their headers; `None` if another parser may find other parts.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let delimiter = ["--", boundary].concat().into_bytes();
    let finder = memmem::Finder::new(&delimiter);
    let mut rest = body.strip_prefix(&*delimiter).filter(|_| !boundary.is_empty())?;
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return matches!(end, b"" | b"\r\n").then_some(parts);
        }
        let content = rest.strip_prefix(b"\r\n")?;
        // What follows the boundary is verified above, and what precedes it below, so it occurs
        // nowhere else in the body.
        let next = finder.find(content)?;
        let part = content.get(..next)?.strip_suffix(b"\r\n")?;
        if states_its_length(part) {
            return None;
        }
        parts.push(part);
        rest = content.get(next.checked_add(delimiter.len())?..)?;
    }
}

/// Whether a part's headers may have a `Content-Length`, which some parsers use instead of the
/// boundary.
fn states_its_length(part: &[u8]) -> bool {
    let headers = memmem::find(part, b"\r\n\r\n").and_then(|end| part.get(..end)).unwrap_or(part);
    memmem::find(&headers.to_ascii_lowercase(), b"content-length").is_some()
}

fn add(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(bytes);
}
