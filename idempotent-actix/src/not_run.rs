//! The mark that proves to a client that its request was not run.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue},
};
use idempotent_http::{header_names, key::parse_key, not_run_mark};

/// The header of the mark. Only the guard sets it: it is removed from the responses of handlers.
pub(crate) const NOT_RUN: HeaderName = HeaderName::from_static(header_names::NOT_RUN);

/// Marks the refusal of a request that was not run, if the request has a key in this header.
///
/// The value is a digest of the key. So the mark proves nothing to the client of another service
/// that passes this response on, and it does not show the key.
pub(crate) fn mark(
    mut response: HttpResponse,
    request: &HttpRequest,
    header: &HeaderName,
) -> HttpResponse {
    let mut lines = request.headers().get_all(header);
    let (Some(line), None) = (lines.next(), lines.next()) else { return response };
    let key = parse_key(line.as_bytes()).ok();
    if let Some(value) = key.and_then(|key| HeaderValue::try_from(not_run_mark(&key)).ok()) {
        response.headers_mut().insert(NOT_RUN, value);
    }
    response
}
