//! The secret keys that seal what stores keep.

use std::fmt;

use bytes::Bytes;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

pub(crate) use self::envelope::{Field, OpenError, SealError};
use crate::record_id::RecordId;

mod envelope;

/// The length of a key in bytes.
const KEY: usize = 32;

/// Secret keys that seal what a store keeps of responses, results, steps and inputs, so that
/// somebody who has only the store's database can neither read nor change them. Set it with
/// [`RuntimeOptions::keyring`](crate::runtime::RuntimeOptions::keyring).
///
/// The key that was first added with [`with`](Self::with) seals. The others only open what they
/// have sealed. To rotate the key, add the new one first, and keep the old one for as long as the
/// longest ttl, or until [`reseal`](crate::runtime::Administrator::reseal) has sealed everything
/// with the new one. What cannot be opened is unreadable: it is neither replayed nor run again.
///
/// If several instances share a store, all of them have to open a key before one of them seals
/// with it. First deploy a new key with [`opening`](Self::opening), also the very first one:
///
/// ```
/// use idempotent_core::Keyring;
/// # let key = [7; 32];
///
/// let first_deployment = Keyring::none().opening(1, &key)?;
/// let second_deployment = Keyring::none().with(1, &key)?;
/// # Ok::<_, idempotent_core::KeyringError>(())
/// ```
///
/// # What a thief of the database learns
/// The status, the length and the times of each response, the lengths of steps and inputs, the
/// number of steps, and everything else that the record has: the name of the operation, the
/// digests of the key, the principal and the request, the reference, the progress, and the history.
/// These stay readable because operators search for them. Nothing of headers, bodies, results of
/// runs, names and results of steps, and inputs.
///
/// Each sealed value is bound to its record and its field. Somebody who can also *write* to the
/// database cannot forge one, nor move it to another record or field. They can delete a record or a
/// step, which then runs again, and can put back an older value of the same record and field.
/// Unless the keyring is [strict](Self::refusing_unsealed), they can also replace a value by one
/// that is not sealed.
///
/// # The cipher
/// XChaCha20-Poly1305, with a random nonce of 192 bits for each value. A key may seal 2⁸⁰ values
/// before two of them have the same nonce with a probability of 2⁻³².
///
/// `Debug` shows only the ids of the keys. The keys are overwritten in memory when the keyring is
/// dropped.
#[derive(Clone, Default)]
pub struct Keyring {
    keys: Vec<(u32, XChaCha20Poly1305)>,
    /// The index of the key that seals.
    sealing: Option<usize>,
    refuses_unsealed: bool,
}

impl Keyring {
    /// Creates an empty keyring: nothing is sealed.
    #[must_use]
    pub const fn none() -> Self {
        Self { keys: Vec::new(), sealing: None, refuses_unsealed: false }
    }

    /// Adds a key of 32 random bytes under an id, which is stored with everything that the key
    /// seals: never use it for another key.
    ///
    /// # Errors
    /// Fails if the id is already used, or the key does not have 32 bytes.
    pub fn with(mut self, id: u32, key: &[u8]) -> Result<Self, KeyringError> {
        self.sealing.get_or_insert(self.keys.len());
        self.opening(id, key)
    }

    /// Adds a key, like [`with`](Self::with), that seals nothing, not even as the only key.
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn opening(mut self, id: u32, key: &[u8]) -> Result<Self, KeyringError> {
        if self.keys.iter().any(|(taken, _)| *taken == id) {
            return Err(KeyringError::Id { id });
        }
        let Ok(cipher) = XChaCha20Poly1305::new_from_slice(key) else {
            return Err(KeyringError::Length { id, length: key.len() });
        };
        self.keys.push((id, cipher));
        Ok(self)
    }

    /// Makes what is not sealed unreadable, too. By default it is read, because it is from before
    /// the first keyring. Call this once everything was
    /// [resealed](crate::runtime::Administrator::reseal), or has expired: then nobody can replace a
    /// sealed value by one that is not.
    #[must_use]
    pub fn refusing_unsealed(self) -> Self {
        Self { refuses_unsealed: true, ..self }
    }

    /// Whether there is nothing to seal, to open, or to refuse.
    pub(crate) fn is_none(&self) -> bool {
        self.keys.is_empty() && !self.refuses_unsealed
    }

    /// Whether a key seals.
    pub(crate) fn seals(&self) -> bool {
        self.sealing.is_some()
    }

    /// Seals a value. Without a key that seals, the value stays as it is.
    pub(crate) fn seal(
        &self,
        id: &RecordId,
        field: Field,
        plain: &Bytes,
    ) -> Result<Bytes, SealError> {
        match self.sealing.and_then(|index| self.keys.get(index)) {
            Some((key_id, cipher)) => envelope::seal(*key_id, cipher, id, field, plain),
            None => Ok(plain.clone()),
        }
    }

    /// Opens a value, whichever key has sealed it. A value that is not sealed stays as it is,
    /// unless the keyring refuses it.
    pub(crate) fn open(
        &self,
        id: &RecordId,
        field: Field,
        value: &Bytes,
    ) -> Result<Bytes, OpenError> {
        if !is_sealed(value) {
            return if self.refuses_unsealed {
                Err(OpenError::Unsealed)
            } else {
                Ok(value.clone())
            };
        }
        let key_id = envelope::key_id(value).ok_or(OpenError::Cut)?;
        let key = self.keys.iter().find(|(id, _)| *id == key_id);
        let (_, cipher) = key.ok_or(OpenError::UnknownKey { key_id })?;
        envelope::open(key_id, cipher, id, field, value)
    }

    /// Whether a value is sealed with the key that seals.
    pub(crate) fn is_current(&self, value: &[u8]) -> bool {
        let sealing = self.sealing.and_then(|index| self.keys.get(index));
        is_sealed(value) && sealing.map(|(id, _)| *id) == envelope::key_id(value)
    }
}

/// Whether a value is sealed, with any key.
pub(crate) fn is_sealed(value: &[u8]) -> bool {
    value.first() == Some(&envelope::VERSION)
}

/// Takes a sealed value from the front of several values.
pub(crate) fn take_sealed(rest: &mut Bytes) -> Option<Bytes> {
    let length = envelope::length(rest).filter(|length| *length <= rest.len())?;
    Some(rest.split_to(length))
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

/// The reason why a key cannot be added to a [`Keyring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// The id is already used.
    #[error("the keyring has two keys with the id {id}")]
    Id {
        /// The id.
        id: u32,
    },
    /// The key does not have 32 bytes.
    #[error("the key {id} of the keyring has {length} bytes; it needs exactly {KEY}")]
    Length {
        /// The id of the key.
        id: u32,
        /// The length of the key in bytes.
        length: usize,
    },
}

#[cfg(test)]
mod tests;
