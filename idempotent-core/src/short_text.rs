//! Short texts that a record shows.

use std::{fmt, ops::Deref, sync::Arc};

/// A text of at most 255 bytes that a record shows: the name of an operation, a reference, or a
/// progress. Clones share the text.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortText(Option<Arc<str>>);

impl ShortText {
    /// The maximum length in bytes.
    pub const MAX_BYTES: usize = 255;

    /// The text without a character.
    pub const EMPTY: Self = Self(None);

    /// Creates a text.
    ///
    /// # Errors
    /// Fails if the text has more than 255 bytes, or contains a control character.
    pub fn new(text: &str) -> Result<Self, ShortTextError> {
        if text.len() > Self::MAX_BYTES {
            return Err(ShortTextError::TooLong { length: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(ShortTextError::ControlCharacter);
        }
        Ok(Self::shared(text))
    }

    /// Creates a text from the first 255 bytes of `text`, up to the end of a character. Control
    /// characters are replaced with U+FFFD.
    #[must_use]
    pub fn truncated(text: &str) -> Self {
        Self::new(text).unwrap_or_else(|_| {
            let mut short = String::with_capacity(Self::MAX_BYTES);
            for each in text.chars() {
                let each = if each.is_control() { char::REPLACEMENT_CHARACTER } else { each };
                if short.len() + each.len_utf8() > Self::MAX_BYTES {
                    break;
                }
                short.push(each);
            }
            Self::shared(&short)
        })
    }

    fn shared(text: &str) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl TryFrom<&str> for ShortText {
    type Error = ShortTextError;

    fn try_from(text: &str) -> Result<Self, ShortTextError> {
        Self::new(text)
    }
}

/// The reason why a text cannot be a [`ShortText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShortTextError {
    /// The text has more than 255 bytes.
    #[error("the text has {length} bytes; at most {max} are allowed", max = ShortText::MAX_BYTES)]
    TooLong {
        /// The length of the text in bytes.
        length: usize,
    },
    /// The text contains a control character.
    #[error("the text contains a control character")]
    ControlCharacter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_at_most_255_bytes_and_no_control_character() {
        assert_eq!(ShortText::new(&"a".repeat(255)).unwrap().len(), 255);
        let refused = ShortText::new(&"ä".repeat(128)).unwrap_err();
        assert_eq!(refused, ShortTextError::TooLong { length: 256 });
        assert_eq!(ShortText::new("a\nb"), Err(ShortTextError::ControlCharacter));
        assert_eq!(ShortText::new("").unwrap(), ShortText::EMPTY);
    }

    #[test]
    fn a_long_text_is_truncated_at_the_end_of_a_character() {
        assert_eq!(ShortText::truncated(&"ä".repeat(200)).as_str(), "ä".repeat(127));
        assert_eq!(ShortText::truncated("POST /a\0").as_str(), "POST /a\u{fffd}");
    }
}
