//! The mark with which the guard of a server proves that a request was not run.

use http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::key::Key;

/// The header of `idempotent-actix`. Its guard sets it, and removes it from what handlers return.
const NOT_RUN: &str = "idempotency-not-run";
const DOMAIN: &[u8] = b"idempotency-not-run\0";

/// Whether the server has proved that the request with this key was not run.
///
/// The mark contains a digest of the key: that of another service, whose response was passed on,
/// belongs to another key.
pub(crate) fn is_not_run(headers: &HeaderMap, key: &Key) -> bool {
    headers.get(NOT_RUN).is_some_and(|value| value.as_bytes() == digest(key).as_bytes())
}

/// The first eight bytes of the digest, in hexadecimal digits.
pub(crate) fn digest(key: &Key) -> String {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(key.as_str()).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_server() {
        // `idempotent-actix` has the same test.
        assert_eq!(digest(&"order-17".parse().unwrap()), "0e00a7ee36527ee8");
    }
}
