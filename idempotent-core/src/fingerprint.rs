//! What "the same request" means.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};

use crate::scope::Principal;

mod json;

pub use json::canonical_json;

/// A digest of a request, with the key that signed it, if any.
///
/// Two requests are the same if their fingerprints are equal. `Debug` shows the key's id only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    key_id: u32,
    digest: [u8; 32],
}

impl Fingerprint {
    /// How many bytes a store keeps for it.
    pub const BYTES: usize = 36;

    /// The fingerprint that a store has kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let ([a, b, c, d], digest) = split(bytes);
        Self { key_id: u32::from_be_bytes([a, b, c, d]), digest }
    }

    /// The bytes for a store to keep.
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

/// A digest of a request before it is signed; it never leaves the process.
///
/// It is SHA-256 over method, path, query and content type, each with its length, and the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestDigest {
    hash: [u8; 32],
    principal: Option<Principal>,
}

impl RequestDigest {
    /// Says whose request it is, for stores that limit the share of one principal. It is no part of the fingerprint.
    #[must_use]
    pub const fn of(self, principal: Principal) -> Self {
        Self { principal: Some(principal), ..self }
    }

    pub(crate) const fn principal(self) -> Option<Principal> {
        self.principal
    }
}

impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestDigest")
    }
}

/// How the body counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The bytes as sent.
    Raw,
    /// Its canonical JSON form.
    Json,
    /// Not at all; neither does the content type.
    Nothing,
    /// What the application made of it. The content type does not count.
    Custom,
}

/// Takes a request in, piece by piece, so that no body has to be in memory at once.
#[derive(Clone, Debug)]
pub struct Digester {
    hasher: Sha256,
}

impl Digester {
    /// Starts with the parts that are always counted.
    #[must_use]
    pub fn new(method: &str, path: &str, query: &str, content_type: &[u8], form: BodyForm) -> Self {
        let tag: &[u8] = match form {
            BodyForm::Raw => b"raw",
            BodyForm::Json => b"json",
            BodyForm::Nothing => b"nothing",
            BodyForm::Custom => b"custom",
        };
        let content_type = if matches!(form, BodyForm::Nothing | BodyForm::Custom) { b"" } else { content_type };
        let mut hasher = Sha256::new_with_prefix("idem/fp/1");
        for part in [method.as_bytes(), path.as_bytes(), query.as_bytes(), content_type, tag] {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        Self { hasher }
    }

    /// Adds the next bytes of the body. It comes last, so it needs no length.
    pub fn update(&mut self, body: &[u8]) {
        self.hasher.update(body);
    }

    /// The digest of all that was taken in.
    #[must_use]
    pub fn finish(self) -> RequestDigest {
        RequestDigest { hash: self.hasher.finalize().into(), principal: None }
    }
}

/// Secrets that sign fingerprints, so that a stolen record cannot be used to guess a body (a PIN, a card number).
///
/// The first key signs. The others are only recognised: after a rotation keep the old key for as long as the longest ttl, or
/// requests that it signed are taken for other ones (422).
///
/// Without a key, fingerprints are plain digests.
#[derive(Clone, Default)]
pub struct FingerprintKeys {
    keys: Vec<(u32, Hmac<Sha256>)>,
}

impl FingerprintKeys {
    /// No keys: plain digests.
    #[must_use]
    pub const fn none() -> Self {
        Self { keys: Vec::new() }
    }

    /// Adds a key under an id that is never used for another; id 0 stands for plain digests.
    ///
    /// # Errors
    /// When the id is 0 or taken, or the secret has fewer than 16 bytes.
    pub fn with(mut self, id: u32, secret: &[u8]) -> Result<Self, FingerprintKeyError> {
        if id == 0 || self.keys.iter().any(|(taken, _)| *taken == id) {
            return Err(FingerprintKeyError::Id { id });
        }
        let mac = Hmac::new_from_slice(secret).ok().filter(|_| secret.len() >= 16);
        self.keys.push((id, mac.ok_or(FingerprintKeyError::Short { length: secret.len() })?));
        Ok(self)
    }

    /// Signs a digest with the first key.
    #[must_use]
    pub fn sign(&self, digest: RequestDigest) -> Fingerprint {
        match self.keys.first() {
            Some((id, mac)) => signed(*id, mac, digest),
            None => Fingerprint { key_id: 0, digest: digest.hash },
        }
    }

    /// Signs a digest as `recorded` was signed, if that was with another key than the first and we have it.
    #[must_use]
    pub fn sign_like(&self, recorded: Fingerprint, digest: RequestDigest) -> Option<Fingerprint> {
        if self.keys.first().map_or(0, |(id, _)| *id) == recorded.key_id {
            return None;
        }
        match recorded.key_id {
            0 => Some(Fingerprint { key_id: 0, digest: digest.hash }),
            key_id => self.keys.iter().find(|(id, _)| *id == key_id).map(|(id, mac)| signed(*id, mac, digest)),
        }
    }
}

fn signed(key_id: u32, mac: &Hmac<Sha256>, digest: RequestDigest) -> Fingerprint {
    let mut mac = mac.clone();
    mac.update(&digest.hash);
    Fingerprint { key_id, digest: mac.finalize().into_bytes().into() }
}

impl fmt::Debug for FingerprintKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

/// Why a key cannot sign fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FingerprintKeyError {
    /// The id is 0 or taken.
    Id {
        /// The id.
        id: u32,
    },
    /// The secret has fewer than 16 bytes.
    Short {
        /// How many it has.
        length: usize,
    },
}

impl fmt::Display for FingerprintKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id { id } => write!(f, "the fingerprint key id {id} is 0 or taken"),
            Self::Short { length } => write!(f, "the fingerprint secret has {length} bytes; it needs 16 or more"),
        }
    }
}

impl std::error::Error for FingerprintKeyError {}

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
        let none = digest(PARTS, BodyForm::Nothing, "");
        assert_eq!(none, digest(["POST", "/p", "q=1", "text/html"], BodyForm::Nothing, ""));
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
        assert_eq!(after.sign_like(FingerprintKeys::none().sign(digest), digest).map(|f| f.key_id), Some(0));
        assert_eq!(after.sign_like(after.sign(digest), digest), None, "the present key needs no second look");
        assert_eq!(before.sign_like(after.sign(digest), digest), None, "an unknown key cannot be followed");
    }

    #[test]
    fn unusable_keys_are_refused() {
        let keys = FingerprintKeys::none();
        assert_eq!(keys.clone().with(0, &[0; 16]).unwrap_err(), FingerprintKeyError::Id { id: 0 });
        assert_eq!(keys.clone().with(1, &[0; 15]).unwrap_err(), FingerprintKeyError::Short { length: 15 });
        let one = keys.with(1, &[0; 16]).unwrap();
        assert_eq!(one.with(1, &[1; 16]).unwrap_err(), FingerprintKeyError::Id { id: 1 });
    }

    #[test]
    fn bytes_round_trip() {
        let fingerprint = Fingerprint { key_id: 0x0102_0304, digest: [7; 32] };
        assert_eq!(Fingerprint::from_bytes(fingerprint.to_bytes()), fingerprint);
    }
}
