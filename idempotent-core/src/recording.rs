//! Encoded recordings of outcomes, as stores keep them.

use std::fmt;

use bytes::Bytes;

/// A recorded outcome, encoded: the version of the encoding, the outcome, and a CRC-32 of both.
///
/// The protocol does not interpret the outcome. The caller that completes an attempt encodes it,
/// such as `idempotent-http` the response to a request, and decodes it when it is replayed.
///
/// The checksum was verified or added by this type. `Debug` shows only the length.
#[derive(Clone)]
pub struct EncodedRecording {
    bytes: Bytes,
    shorten: fn(&Self) -> Option<Self>,
}

impl EncodedRecording {
    /// The version of recordings whose next two bytes are a status, big-endian: that of an HTTP
    /// response. Stores keep it in a column. Recordings of other versions have no status.
    pub const WITH_STATUS: u8 = 1;

    /// The version of recordings that a runtime with a keyring has sealed. The next two bytes are
    /// the status of the response, big-endian, or 0 if it has none; only the keyring reads the
    /// rest.
    pub const SEALED: u8 = 0x81;

    /// Adds the checksum to a version and an outcome. A recording that is kept must have a version
    /// that no other encoding uses; 1 is that of a response, and 2 that of the result of a
    /// [job](crate::job::Job).
    ///
    /// The checksum takes 4 bytes; with that capacity left, nothing is copied.
    #[must_use]
    pub fn with_checksum(mut content: Vec<u8>) -> Self {
        let checksum = crc32fast::hash(&content);
        content.extend_from_slice(&checksum.to_be_bytes());
        Self { bytes: content.into(), shorten: |_| None }
    }

    /// Sets how the recording is shortened if there is no room for it while the store fails:
    /// `shorten` returns a recording with the same outcome that omits its largest part.
    #[must_use]
    pub fn shortened_by(self, shorten: fn(&Self) -> Option<Self>) -> Self {
        Self { shorten, ..self }
    }

    /// Verifies the checksum of bytes that a store has kept.
    ///
    /// # Errors
    /// Fails with [`RecordingError::Damaged`] if the bytes were changed or cut, and with
    /// [`RecordingError::Sealed`] if they are still [sealed](Self::SEALED).
    pub fn verify(bytes: Bytes) -> Result<Self, RecordingError> {
        if bytes.first() == Some(&Self::SEALED) {
            return Err(RecordingError::Sealed);
        }
        match bytes.split_last_chunk::<4>() {
            Some((content, checksum))
                if !content.is_empty()
                    && crc32fast::hash(content) == u32::from_be_bytes(*checksum) =>
            {
                Ok(Self { bytes, shorten: |_| None })
            }
            Some(_) | None => Err(RecordingError::Damaged),
        }
    }

    /// Returns the version and the outcome, without the checksum. Nothing is copied.
    #[must_use]
    pub fn content(&self) -> Bytes {
        self.bytes.slice(..self.bytes.len().saturating_sub(4))
    }

    /// Returns the bytes for a store to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads the status of an encoded recording; `None` if it has none, also because its bytes are
    /// damaged: a status is from 100 to 999. A store may keep it for operators.
    #[must_use]
    pub fn status_of(encoded: &[u8]) -> Option<u16> {
        let [Self::WITH_STATUS | Self::SEALED, high, low, ..] = encoded else { return None };
        Some(u16::from_be_bytes([*high, *low])).filter(|status| (100..1_000).contains(status))
    }

    /// The recording without its largest part, if it has one.
    pub(crate) fn shortened(&self) -> Option<Self> {
        (self.shorten)(self)
    }
}

impl PartialEq for EncodedRecording {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for EncodedRecording {}

impl From<EncodedRecording> for Bytes {
    fn from(EncodedRecording { bytes, .. }: EncodedRecording) -> Self {
        bytes
    }
}

/// Clones the recording, without copying its bytes.
impl From<&EncodedRecording> for EncodedRecording {
    fn from(recording: &EncodedRecording) -> Self {
        recording.clone()
    }
}

impl fmt::Debug for EncodedRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EncodedRecording").field(&Length(&self.bytes)).finish()
    }
}

/// Bytes of which `Debug` shows only the length, so that no log contains a response.
pub(crate) struct Length<'a>(pub(crate) &'a Bytes);

impl fmt::Debug for Length<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The reason why a recording cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Bytes were changed or lost.
    #[error("the recording is damaged")]
    Damaged,
    /// A later version of this library wrote the recording, or it is of an outcome of another kind.
    #[error("the recording has the unknown version {version}")]
    UnknownVersion {
        /// The version of the encoding.
        version: u8,
    },
    /// The recording is sealed, and this runtime has no keyring, or one that does not open it.
    #[error(
        "the recording is sealed with a key that this program does not have; set the keyring that \
         sealed it with `encrypt` (`RuntimeOptions::keyring`)"
    )]
    Sealed,
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn a_recording_is_verified(content in vec(any::<u8>(), 1..100)) {
            prop_assume!(content[0] != EncodedRecording::SEALED);
            let encoded = EncodedRecording::with_checksum(content.clone());
            let verified = EncodedRecording::verify(encoded.as_bytes().clone());
            prop_assert_eq!(verified.as_ref(), Ok(&encoded));
            prop_assert_eq!(encoded.content(), content);
        }

        #[test]
        fn a_changed_or_cut_recording_is_damaged(
            content in vec(any::<u8>(), 1..100),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let whole = EncodedRecording::with_checksum(content).as_bytes().clone();
            let at = at.index(whole.len());
            let mut changed = whole.to_vec();
            changed[at] ^= 1u8 << bit;
            prop_assert!(EncodedRecording::verify(changed.into()).is_err());
            prop_assert!(EncodedRecording::verify(whole.slice(..at)).is_err());
        }
    }

    #[test]
    fn responses_have_a_status_also_if_they_are_sealed() {
        let status = |content: &[u8]| {
            EncodedRecording::status_of(
                EncodedRecording::with_checksum(content.to_vec()).as_bytes(),
            )
        };
        assert_eq!(status(&[1, 0, 201, 0]), Some(201));
        assert_eq!(status(&[2, 0, 201, 0]), None);
        assert_eq!(status(&[EncodedRecording::SEALED, 0, 201, 0]), Some(201));
        for no_status in [[0, 0], [0, 99], [3, 232], [255, 255]] {
            for version in [1, EncodedRecording::SEALED] {
                assert_eq!(status(&[version, no_status[0], no_status[1], 0]), None);
            }
        }
        assert_eq!(EncodedRecording::status_of(&[1, 0]), None);
    }

    #[test]
    fn a_sealed_recording_is_not_read() {
        let encoded = EncodedRecording::with_checksum(vec![EncodedRecording::SEALED, 0, 201]);
        let sealed = Err(RecordingError::Sealed);
        assert_eq!(EncodedRecording::verify(encoded.as_bytes().clone()), sealed);
    }
}
