//! Fingerprints: which requests count as the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

mod json;
mod json_part;
mod keys;

pub use json::canonical_json;
pub use json_part::JsonPart;
pub use keys::{FingerprintKeyError, FingerprintKeys};

/// A digest of a request, and the id of the secret key that signed it, if any. Made by
/// [`FingerprintKeys::sign`].
///
/// Two requests count as the same if their fingerprints are equal. `Debug` shows only the id of the
/// key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    key_id: u32,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The length of a stored fingerprint in bytes.
    pub const BYTES: usize = 36;

    /// Creates the fingerprint from bytes that a store has kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let ([a, b, c, d], digest) = split(bytes);
        Self { key_id: u32::from_be_bytes([a, b, c, d]), digest }
    }

    /// Returns the bytes for a store to keep.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (key_id, digest) = bytes.split_at_mut(4);
        key_id.copy_from_slice(&self.key_id.to_be_bytes());
        digest.copy_from_slice(&self.digest);
        bytes
    }
}

fn split(bytes: [u8; Fingerprint::BYTES]) -> ([u8; 4], [u8; 32]) {
    let [a, b, c, d, digest @ ..] = bytes;
    ([a, b, c, d], digest)
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(key {})", self.key_id)
    }
}

/// A digest of a request before it is signed, computed by a [`Digester`]. It is never stored and
/// never leaves the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestDigest {
    hash: [u8; 32],
}

impl RequestDigest {
    /// The digest of a request that is not known, because its operation is resumed from its record.
    /// It matches no fingerprint.
    pub(crate) const fn unknown() -> Self {
        Self { hash: [0; 32] }
    }
}

impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestDigest")
    }
}

/// Computes the digest of a request incrementally, so that the whole body need not be in memory at
/// once.
///
/// The digest is SHA-256 over parts, each with its length, and a body. Which parts a request has is
/// for the caller to say: `idempotent-http` for an HTTP request, and a
/// [job](crate::job::Job) for its input.
#[derive(Clone, Debug)]
pub struct Digester {
    hasher: Sha256,
}

impl Digester {
    /// Starts a digest with all parts of the request except the body. Requests that can have one
    /// record have the same number of parts.
    #[must_use]
    pub fn new(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut hasher = Sha256::new_with_prefix("idem/fp/1");
        for part in parts {
            let part = part.as_ref();
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        Self { hasher }
    }

    /// Adds the next bytes of the body. It does not matter how the body is divided into calls.
    pub fn update(&mut self, body: &[u8]) {
        self.hasher.update(body);
    }

    /// Returns the digest.
    #[must_use]
    pub fn finish(self) -> RequestDigest {
        RequestDigest { hash: self.hasher.finalize().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: [&str; 2], body: &str) -> RequestDigest {
        let mut digester = Digester::new(parts);
        digester.update(body.as_bytes());
        digester.finish()
    }

    #[test]
    fn every_part_counts() {
        let one = digest(["ab", "c"], "d");
        assert_eq!(one, digest(["ab", "c"], "d"));
        for other in [digest(["a", "bc"], "d"), digest(["ab", ""], "cd"), digest(["ab", "c"], "e")]
        {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn pieces_make_the_same_digest_as_the_whole() {
        let mut digester = Digester::new(["ab", "c"]);
        digester.update(b"de");
        digester.update(b"f");
        assert_eq!(digester.finish(), digest(["ab", "c"], "def"));
    }

    #[test]
    fn the_digest_is_fixed_for_ever() {
        // Another value here would make every key in every store a mismatch.
        let mut digester = Digester::new(["", "job", "", "", "json"]);
        digester.update(br#"{"a":1}"#);
        let fingerprint = FingerprintKeys::none().sign(digester.finish());
        let digits = fingerprint.digest.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(digits, "8b8277fe9e38d8f11efd44cc702598fee50a4555d3a628fa3bb249415b30e4df");
    }

    #[test]
    fn a_rotated_key_is_recognised() {
        let (old, new) = ([1; 16], [2; 16]);
        let before = FingerprintKeys::none().with(1, &old).unwrap();
        let after = FingerprintKeys::none().with(2, &new).unwrap().with(1, &old).unwrap();
        let digest = digest(["POST", "/p"], "b");
        let recorded = before.sign(digest);
        assert_ne!(after.sign(digest), recorded);
        assert_eq!(after.sign_like(recorded, digest), Some(recorded));
        assert_eq!(
            after.sign_like(FingerprintKeys::none().sign(digest), digest).map(|f| f.key_id),
            Some(0)
        );
        assert_eq!(
            after.sign_like(after.sign(digest), digest),
            None,
            "the present key needs no second look"
        );
        assert_eq!(
            before.sign_like(after.sign(digest), digest),
            None,
            "an unknown key cannot be followed"
        );
    }

    #[test]
    fn the_first_key_is_recognized_before_it_signs() {
        let secret = [1; 16];
        let before = FingerprintKeys::none();
        let between = FingerprintKeys::none().recognizing(1, &secret).unwrap();
        let after = FingerprintKeys::none().with(1, &secret).unwrap();
        let digest = digest(["POST", "/p"], "b");
        assert_eq!(between.sign(digest), before.sign(digest));
        assert!(between.matches(after.sign(digest), digest));
        assert!(after.matches(between.sign(digest), digest));
        assert!(!before.matches(after.sign(digest), digest));
        // A key that only recognizes does not sign because it was added first.
        let rotating = between.with(2, &[2; 16]).unwrap();
        assert_eq!(rotating.sign(digest).key_id, 2);
        assert!(rotating.matches(after.sign(digest), digest));
    }

    #[test]
    fn unusable_keys_are_refused() {
        let keys = FingerprintKeys::none();
        assert_eq!(keys.clone().with(0, &[0; 16]).unwrap_err(), FingerprintKeyError::Id { id: 0 });
        assert_eq!(
            keys.clone().with(1, &[0; 15]).unwrap_err(),
            FingerprintKeyError::Short { length: 15 }
        );
        let one = keys.with(1, &[0; 16]).unwrap();
        assert_eq!(one.with(1, &[1; 16]).unwrap_err(), FingerprintKeyError::Id { id: 1 });
    }

    #[test]
    fn bytes_round_trip() {
        let fingerprint = Fingerprint { key_id: 0x0102_0304, digest: [7; 32] };
        assert_eq!(Fingerprint::from_bytes(fingerprint.to_bytes()), fingerprint);
    }
}
