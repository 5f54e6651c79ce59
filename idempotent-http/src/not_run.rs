//! The mark that proves to a client that its request was not run.

use idempotent_core::Key;
use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"idempotency-not-run\0";

/// Returns the value of the header [`NOT_RUN`](crate::header_names::NOT_RUN) for a request with
/// this key: the first eight bytes of a digest, in hexadecimal digits.
///
/// The value belongs to the key. So the mark proves nothing to the client of another service that
/// passes a response on, and it does not show the key.
#[must_use]
pub fn not_run_mark(key: &Key) -> String {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(key.as_str()).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_key_is_fixed_for_ever() {
        assert_eq!(not_run_mark(&Key::from_text("order-17").unwrap()), "0e00a7ee36527ee8");
    }
}
