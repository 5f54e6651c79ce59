//! The secret keys that sign fingerprints.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Fingerprint, RequestDigest};
use crate::scope::Principal;

/// Secret keys that sign fingerprints (HMAC-SHA-256), so that a stolen record cannot be used to
/// guess a body such as a PIN or a card number. Without any key, fingerprints are plain digests.
///
/// The key that was first added with [`with`](Self::with) signs new fingerprints. The others are
/// only used to recognize fingerprints that they have signed; plain digests are always recognized.
/// To rotate the secret, add the new key first and keep the old one for as long as the longest ttl.
/// Without the old key, retries of the requests that it signed are a mismatch (422).
///
/// If several instances share a store, all of them have to recognize a key before one of them signs
/// with it. First deploy a new key after the old one, or the very first key with
/// [`recognizing`](Self::recognizing):
///
/// ```
/// use idempotent_core::FingerprintKeys;
/// # let secret = b"0123456789abcdef";
///
/// let first_deployment = FingerprintKeys::none().recognizing(1, secret)?;
/// let second_deployment = FingerprintKeys::none().with(1, secret)?;
/// # Ok::<_, idempotent_core::FingerprintKeyError>(())
/// ```
///
/// `Debug` shows only the ids of the keys.
#[derive(Clone, Default)]
pub struct FingerprintKeys {
    keys: Vec<(u32, Hmac<Sha256>)>,
    /// The index of the key that signs.
    signing: Option<usize>,
}

impl FingerprintKeys {
    /// Creates an empty set of keys: fingerprints are plain digests.
    #[must_use]
    pub const fn none() -> Self {
        Self { keys: Vec::new(), signing: None }
    }

    /// Adds a key under an id. The id is stored with each fingerprint: never use it for another
    /// secret. Id 0 is reserved for plain digests.
    ///
    /// # Errors
    /// Fails if the id is 0 or already used, or the secret has fewer than 16 bytes.
    pub fn with(mut self, id: u32, secret: &[u8]) -> Result<Self, FingerprintKeyError> {
        self.signing.get_or_insert(self.keys.len());
        self.recognizing(id, secret)
    }

    /// Adds a key, like [`with`](Self::with), that signs no fingerprints, not even as the only key.
    ///
    /// # Errors
    /// Fails if the id is 0 or already used, or the secret has fewer than 16 bytes.
    pub fn recognizing(mut self, id: u32, secret: &[u8]) -> Result<Self, FingerprintKeyError> {
        if id == 0 || self.keys.iter().any(|(taken, _)| *taken == id) {
            return Err(FingerprintKeyError::Id { id });
        }
        let mac = Hmac::new_from_slice(secret).ok().filter(|_| secret.len() >= 16);
        self.keys.push((id, mac.ok_or(FingerprintKeyError::Short { length: secret.len() })?));
        Ok(self)
    }

    /// The key that signs new fingerprints.
    fn signing(&self) -> Option<&(u32, Hmac<Sha256>)> {
        self.keys.get(self.signing?)
    }

    /// Signs a digest. Without a key that signs, the fingerprint is the plain digest.
    #[must_use]
    pub fn sign(&self, digest: RequestDigest) -> Fingerprint {
        match self.signing() {
            Some((id, mac)) => signed(*id, mac, digest),
            None => Fingerprint { key_id: 0, digest: digest.hash },
        }
    }

    /// Signs a digest with the key that signed `recorded`, to find out whether a record from before
    /// a rotation is of the same request. Returns `None` if that is the key that signs, whose
    /// signature [`sign`](Self::sign) returns, or a key that is not in this set.
    #[must_use]
    pub fn sign_like(&self, recorded: Fingerprint, digest: RequestDigest) -> Option<Fingerprint> {
        if self.signing().map_or(0, |(id, _)| *id) == recorded.key_id {
            return None;
        }
        match recorded.key_id {
            0 => Some(Fingerprint { key_id: 0, digest: digest.hash }),
            key_id => self
                .keys
                .iter()
                .find(|(id, _)| *id == key_id)
                .map(|(id, mac)| signed(*id, mac, digest)),
        }
    }

    /// Returns whether `recorded` is a fingerprint of this request, whichever key of this set
    /// signed it.
    pub(crate) fn matches(&self, recorded: Fingerprint, digest: RequestDigest) -> bool {
        recorded == self.sign(digest) || self.sign_like(recorded, digest) == Some(recorded)
    }
}

impl FingerprintKeys {
    /// Signs the digest of a principal, so that a stolen record cannot be used
    /// to guess who it belongs to. Without a key that signs, the digest stays as it is.
    #[must_use]
    pub fn sign_principal(&self, principal: Principal) -> Principal {
        self.signing().map_or(principal, |(_, mac)| signed_principal(mac, principal))
    }

    /// Returns every digest under which records may have a principal: signed with each key of this
    /// set, and unsigned.
    #[must_use]
    pub fn all_signed(&self, principal: Principal) -> Vec<Principal> {
        let signed = self.keys.iter().map(|(_, mac)| signed_principal(mac, principal));
        signed.chain([principal]).collect()
    }
}

fn signed_principal(mac: &Hmac<Sha256>, principal: Principal) -> Principal {
    let mut mac = mac.clone();
    mac.update(b"idem/principal/1");
    mac.update(principal.as_bytes());
    let mut signed = [0; 16];
    signed.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(to, from)| *to = from);
    Principal::from_bytes(signed)
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

/// The reason why a key cannot sign fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintKeyError {
    /// The id is 0 or already used.
    #[error("the fingerprint key id {id} is 0 or already used")]
    Id {
        /// The id.
        id: u32,
    },
    /// The secret has fewer than 16 bytes.
    #[error("the fingerprint secret has {length} bytes; it needs at least 16")]
    Short {
        /// The length of the secret in bytes.
        length: usize,
    },
}
