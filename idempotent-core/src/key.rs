//! The idempotency key that a client sends.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An idempotency key: 1 to 255 bytes of printable ASCII.
///
/// A key may be a secret, so `Debug` shows only its length.
///
/// ```
/// use idempotent_core::Key;
///
/// let key = Key::from_text("order-17")?;
/// assert_eq!(key.as_str(), "order-17");
/// # Ok::<_, idempotent_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Box<str>);

impl Key {
    /// The maximum length of a key in bytes, without quotes and escapes.
    pub const MAX_BYTES: usize = 255;

    /// Makes a key of a text that is the key itself, such as a field of a form or the id of an
    /// event.
    ///
    /// Nothing is unquoted or trimmed, so the key can be any text that a Structured Field String
    /// can be: printable ASCII, including spaces, quotes and commas.
    ///
    /// # Errors
    /// Returns a [`KeyError`] that names the broken rule and does not repeat the text.
    pub fn from_text(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        // Without an early exit, several bytes are tested at a time.
        if !text.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~')) {
            return Err(KeyError::NotPrintableAscii);
        }
        match text.len() {
            0 => Err(KeyError::Empty),
            length if length > Self::MAX_BYTES => Err(KeyError::TooLong { length }),
            _ => Ok(Self(text.into())),
        }
    }

    /// Returns the key without quotes and escapes. It may be a secret: keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// As [`Key::from_text`].
impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_text(text)
    }
}

/// As [`Key::from_text`].
impl TryFrom<String> for Key {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::from_text(text)
    }
}

impl From<Key> for String {
    fn from(Key(key): Key) -> Self {
        key.into()
    }
}

/// The UUID in its usual form of 36 characters.
impl From<Uuid> for Key {
    fn from(key: Uuid) -> Self {
        Self(key.to_string().into())
    }
}

/// The reason why a text is not a key. The messages may be shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key has no bytes.
    #[error("the key is empty")]
    Empty,
    /// The key is longer than [`Key::MAX_BYTES`].
    #[error("the key has {length} bytes; the limit is {}", Key::MAX_BYTES)]
    TooLong {
        /// The length of the key in bytes.
        length: usize,
    },
    /// The text of the key contains a character that is not printable ASCII.
    #[error("the key may contain only printable ASCII characters")]
    NotPrintableAscii,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_key_as_it_is() {
        let text = |text: &str| Key::from_text(text).map(|key| key.as_str().to_owned());
        for same in ["evt_1", "\"k\"", "\"open", "a b", " a ", "a,b", "k;v=1", &"k".repeat(255)] {
            assert_eq!(text(same), Ok(same.into()));
        }
        assert_eq!(text(""), Err(KeyError::Empty));
        assert_eq!(text(&"k".repeat(256)), Err(KeyError::TooLong { length: 256 }));
        for other in ["\u{e9}", "a\tb", "a\n", "\u{7f}", "\0"] {
            assert_eq!(text(other), Err(KeyError::NotPrintableAscii), "{other:?}");
        }
    }

    #[test]
    fn debug_does_not_show_the_key() {
        assert_eq!(format!("{:?}", Key::from_text("secret").unwrap()), "Key(6 bytes)");
    }
}
