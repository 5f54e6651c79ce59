//! Idempotency keys.

use std::{fmt, str::FromStr};

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The usual name of the header (draft-ietf-httpapi-idempotency-key-header-07 §2.1).
pub(crate) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of one operation: 1 to 255 visible ASCII characters, without quotes and commas.
///
/// It is written to the header as it is: a UUID without quotes, as the SDKs of most APIs do.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// An idempotency key must have 1 to 255 visible ASCII characters, without quotes and commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key must have 1 to 255 visible ASCII characters, no quote and no comma")]
#[non_exhaustive]
pub struct InvalidKey;

impl Key {
    /// Creates a random key: a UUID of version 4, with 122 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn to_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.0).ok()
    }
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for Key {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        let is_valid = |byte: u8| byte.is_ascii_graphic() && !b"\",".contains(&byte);
        let valid = (1..=255).contains(&text.len()) && text.bytes().all(is_valid);
        if valid { Ok(Self(text)) } else { Err(InvalidKey) }
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

/// Shows at most eight characters: a key gives access to a response.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}…)", self.short())
    }
}

impl Key {
    /// The first characters, for logs and errors; none of a short key.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..8).filter(|_| self.0.len() >= 16).unwrap_or_default()
    }
}

/// The derived key of a step, as text.
#[cfg(feature = "steps")]
impl From<idempotent_core::DerivedKey> for Key {
    fn from(key: idempotent_core::DerivedKey) -> Self {
        Self(key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_keys_are_uuids_of_version_4_and_differ() {
        let keys: std::collections::HashSet<_> = (0..1000).map(|_| Key::random()).collect();
        assert_eq!(keys.len(), 1000);
        let uuid = Uuid::parse_str(Key::random().as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
    }

    #[test]
    fn a_key_has_1_to_255_visible_ascii_characters() {
        for valid in ["k", "order-17", &"k".repeat(255)] {
            assert_eq!(valid.parse::<Key>().unwrap().as_str(), valid);
        }
        for invalid in ["", "a b", "ü", "a\n", "\"k\"", "a,b", &"k".repeat(256)] {
            assert_eq!(invalid.parse::<Key>(), Err(InvalidKey), "{invalid:?}");
        }
    }

    #[test]
    fn debug_output_does_not_show_the_whole_key() {
        let debug = |key: &str| format!("{:?}", key.parse::<Key>().unwrap());
        assert_eq!(debug("0123456789abcdef"), "Key(01234567…)");
        assert_eq!(debug("order-17"), "Key(…)");
    }
}
