//! Fingerprints: which requests count as the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

mod json;
mod keys;

pub use json::canonical_json;
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
///
/// The digest is SHA-256 over method, path, query, content type and [`BodyForm`], each with its
/// length, and the body. The path is the part of it that distinguishes requests of one operation.
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

/// How the body contributes to the fingerprint. Equal bytes in different forms have different
/// digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The bytes as sent.
    Raw,
    /// The canonical JSON form ([RFC 8785](canonical_json)).
    Json,
    /// Neither the body nor the content type contributes.
    Ignored,
    /// Bytes that the application has derived from the request. The content type does not
    /// contribute.
    Custom,
}

/// Computes the digest of a request incrementally, so that the whole body need not be in memory at
/// once.
#[derive(Clone, Debug)]
pub struct Digester {
    hasher: Sha256,
}

impl Digester {
    /// Starts a digest with all parts of the request except the body. `path` is what the name of
    /// the operation does not determine, such as the values of dynamic segments: with the literal
    /// path, a route could not be renamed while requests are retried. `content_type` is ignored if
    /// `form` is [`BodyForm::Ignored`] or [`BodyForm::Custom`].
    #[must_use]
    pub fn new(method: &str, path: &str, query: &str, content_type: &[u8], form: BodyForm) -> Self {
        let tag: &[u8] = match form {
            BodyForm::Raw => b"raw",
            BodyForm::Json => b"json",
            BodyForm::Ignored => b"nothing",
            BodyForm::Custom => b"custom",
        };
        let content_type =
            if matches!(form, BodyForm::Ignored | BodyForm::Custom) { b"" } else { content_type };
        let mut hasher = Sha256::new_with_prefix("idem/fp/1");
        for part in [method.as_bytes(), path.as_bytes(), query.as_bytes(), content_type, tag] {
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

    fn digest(parts: [&str; 4], form: BodyForm, body: &str) -> RequestDigest {
        let [method, path, query, content_type] = parts;
        let mut digester = Digester::new(method, path, query, content_type.as_bytes(), form);
        digester.update(body.as_bytes());
        digester.finish()
    }

    const PARTS: [&str; 4] = ["POST", "/p", "q=1", "text/plain"];

    #[test]
    fn every_part_counts() {
        let one = digest(PARTS, BodyForm::Raw, "b");
        assert_eq!(one, digest(PARTS, BodyForm::Raw, "b"));
        for other in [
            digest(["PUT", "/p", "q=1", "text/plain"], BodyForm::Raw, "b"),
            digest(["POST", "/pq", "=1", "text/plain"], BodyForm::Raw, "b"),
            digest(["POST", "/p", "q=2", "text/plain"], BodyForm::Raw, "b"),
            digest(["POST", "/p", "q=1", "text/html"], BodyForm::Raw, "b"),
            digest(PARTS, BodyForm::Json, "b"),
            digest(PARTS, BodyForm::Raw, "c"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn pieces_make_the_same_digest_as_the_whole() {
        let mut digester = Digester::new("POST", "/p", "q=1", b"text/plain", BodyForm::Raw);
        digester.update(b"ab");
        digester.update(b"c");
        assert_eq!(digester.finish(), digest(PARTS, BodyForm::Raw, "abc"));
    }

    #[test]
    fn a_body_that_does_not_count_takes_its_content_type_along() {
        let none = digest(PARTS, BodyForm::Ignored, "");
        assert_eq!(none, digest(["POST", "/p", "q=1", "text/html"], BodyForm::Ignored, ""));
    }

    #[test]
    fn a_rotated_key_is_recognised() {
        let (old, new) = ([1; 16], [2; 16]);
        let before = FingerprintKeys::none().with(1, &old).unwrap();
        let after = FingerprintKeys::none().with(2, &new).unwrap().with(1, &old).unwrap();
        let digest = digest(PARTS, BodyForm::Raw, "b");
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
        let digest = digest(PARTS, BodyForm::Raw, "b");
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
