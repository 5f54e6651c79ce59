//! Computes the digest of a request, which becomes its fingerprint once it is signed.

use actix_web::{
    HttpRequest,
    http::header::{self, HeaderValue},
};
use idempotent_core::{BodyForm, Digester, canonical_json};

use super::{RequestContent, body_buffer::BodyBuffer};

/// A digester that has hashed the head of the request.
pub(super) fn digester(request: &HttpRequest, form: BodyForm) -> Digester {
    let content_type =
        request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let encoding = request.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    // Without an encoding nothing is added, so that existing fingerprints stay valid.
    let joined = encoding.map(|encoding| [content_type, b"\0", encoding].concat());
    let content = joined.as_deref().unwrap_or(content_type);
    let path = path_values(request);
    Digester::new(request.method().as_str(), &path, request.query_string(), content, form)
}

/// What the path says beyond the pattern of its route: the values of the dynamic segments, what no
/// pattern has matched, and which characters are percent-encoded. The record id contains the
/// pattern, or else the operation's `name`, with which a route can be renamed while its requests
/// are sent again.
fn path_values(request: &HttpRequest) -> String {
    let path = request.match_info();
    let mut values = String::new();
    for (_, value) in path.iter() {
        values.extend([&*value.len().to_string(), ":", value]);
    }
    values.push_str(path.unprocessed());
    // The values are decoded in part.
    let raw = request.path();
    let encoded = raw.match_indices('%').filter_map(|(at, _)| raw.get(at..at.checked_add(3)?));
    values.extend(encoded);
    values
}

/// The content of a request whose body has been read. `raw` has hashed the body, if its bytes count
/// as sent.
pub(super) fn content(
    form: BodyForm,
    request: &HttpRequest,
    raw: Option<Digester>,
    body: &mut BodyBuffer,
) -> RequestContent {
    match (form, raw) {
        (_, Some(raw)) => RequestContent::Digest(raw.finish()),
        (BodyForm::Custom, None) => RequestContent::Body(body.joined()),
        (BodyForm::Ignored, None) => RequestContent::Digest(digester(request, form).finish()),
        (BodyForm::Json | BodyForm::Raw, None) => {
            let body = body.joined();
            let canonical = canonical_json(&body);
            let canonical = canonical.as_ref().map(|json| (BodyForm::Json, &**json));
            let (form, bytes) = canonical.unwrap_or((BodyForm::Raw, &*body));
            let mut digester = digester(request, form);
            digester.update(bytes);
            RequestContent::Digest(digester.finish())
        }
    }
}
