//! The mark that proves to a client that its request was not run.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue},
};
use idempotent_core::Key;
use idempotent_http::key::parse_key;
use sha2::{Digest, Sha256};

/// The header of the mark. Only the guard sets it: it is removed from the responses of handlers.
pub(crate) const NOT_RUN: HeaderName = HeaderName::from_static("idempotency-not-run");
const DOMAIN: &[u8] = b"idempotency-not-run\0";

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
    if let Some(value) = key.and_then(|key| HeaderValue::try_from(digest(&key)).ok()) {
        response.headers_mut().insert(NOT_RUN, value);
    }
    response
}

/// The first eight bytes of the digest, in hexadecimal digits.
fn digest(key: &Key) -> String {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(key.as_str()).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_client() {
        // `idempotent-client` has the same test.
        assert_eq!(digest(&parse_key(b"order-17").unwrap()), "0e00a7ee36527ee8");
        assert_eq!(digest(&parse_key(b"\"order-17\"").unwrap()), "0e00a7ee36527ee8");
    }
}
