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
    Digester::new(request.method().as_str(), request.path(), request.query_string(), content, form)
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
