//! The idempotency key that a client sends.

use std::fmt;

mod structured;

/// An idempotency key: 1 to 255 bytes of printable ASCII.
///
/// `"k"` (a Structured Field String, RFC 9651 §3.3.3, as
/// draft-ietf-httpapi-idempotency-key-header-07 §2 requires) and `k` (the form that most client
/// libraries send) are the same key.
///
/// A key may be a secret, so `Debug` shows only its length.
///
/// ```
/// use idempotent_core::Key;
///
/// assert_eq!(Key::parse(br#""k-1""#)?, Key::parse(b"k-1")?);
/// # Ok::<_, idempotent_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// The maximum length of a key in bytes, without quotes and escapes.
    pub const MAX_BYTES: usize = 255;

    /// Parses the value of one `Idempotency-Key` header line.
    ///
    /// A value that starts with `"` is a Structured Field String. Its parameters must be well
    /// formed and are ignored, as RFC 9651 §3.1.2 allows. Any other value is a bare token of
    /// visible ASCII, without `"` and `,`. Commas are refused because a proxy may join two header
    /// lines into one with a comma between them; the result would be two keys.
    ///
    /// Spaces and tabs around the value are ignored.
    ///
    /// # Errors
    /// Returns a [`KeyError`] that names the broken rule and does not repeat the value.
    pub fn parse(value: &[u8]) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        let key = if value.first() == Some(&b'"') {
            structured::parse_string_item(value).ok_or(KeyError::NotAString)?
        } else {
            parse_bare(value)?
        };
        Self::bounded(key)
    }

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
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            Self::bounded(text)
        } else {
            Err(KeyError::NotPrintableAscii)
        }
    }

    fn bounded(key: String) -> Result<Self, KeyError> {
        match key.len() {
            0 => Err(KeyError::Empty),
            length if length > Self::MAX_BYTES => Err(KeyError::TooLong { length }),
            _ => Ok(Self(key.into())),
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

fn parse_bare(value: &[u8]) -> Result<String, KeyError> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b',';
    // Without an early exit, several bytes are tested at a time.
    let all_allowed = value.iter().fold(true, |all, byte| all & allowed(*byte));
    match std::str::from_utf8(value) {
        Ok(token) if all_allowed => Ok(token.to_owned()),
        _ => Err(KeyError::NotVisibleAscii),
    }
}

/// The reason why a value is not a key. The messages may be shown to the client.
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
    /// The value starts with a quote and is not a Structured Field String.
    #[error("the key starts with a quote but is not a valid RFC 9651 string")]
    NotAString,
    /// The value has no quotes and contains a quote, a comma, or a byte that is not visible ASCII.
    #[error(
        "an unquoted key may contain only visible ASCII characters except the quote and the comma"
    )]
    NotVisibleAscii,
    /// The text of the key contains a character that is not printable ASCII.
    #[error("the key may contain only printable ASCII characters")]
    NotPrintableAscii,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Result<String, KeyError> {
        Key::parse(value.as_bytes()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
        assert_eq!(key(uuid), Ok(uuid.into()));
        assert_eq!(key(&format!("\"{uuid}\"")), Ok(uuid.into()));
        assert_eq!(key("\"12345678901234567890\""), Ok("12345678901234567890".into()));
    }

    #[test]
    fn escapes_and_parameters_are_read_as_rfc_9651_says() {
        assert_eq!(key(r#""a\"b\\c""#), Ok(r#"a"b\c"#.into()));
        assert_eq!(key(r#""k";v=1"#), Ok("k".into()));
        assert_eq!(key("  k  "), Ok("k".into()));
        assert_eq!(key("\t\"k\"\t"), Ok("k".into()));
    }

    #[test]
    fn malformed_values_are_refused() {
        assert_eq!(key(""), Err(KeyError::Empty));
        assert_eq!(key("\"\""), Err(KeyError::Empty));
        assert_eq!(key("\"open"), Err(KeyError::NotAString));
        assert_eq!(key("\"a\" \"b\""), Err(KeyError::NotAString));
        assert_eq!(key("\"a\", \"b\""), Err(KeyError::NotAString));
        assert_eq!(key("\"a\";p, \"b\""), Err(KeyError::NotAString));
        assert_eq!(key("\"a\u{e9}\""), Err(KeyError::NotAString));
        for bare in ["a b", "a,b", "a\"b", "a\tb", "a\u{7f}", "\u{e9}"] {
            assert_eq!(key(bare), Err(KeyError::NotVisibleAscii), "{bare:?}");
        }
        assert_eq!(Key::parse(&[0xff]), Err(KeyError::NotVisibleAscii));
    }

    #[test]
    fn the_length_is_that_of_the_key_itself() {
        assert!(key(&"k".repeat(255)).is_ok());
        assert!(key(&format!("\"{}\"", "k".repeat(255))).is_ok());
        assert!(key(&format!("\"{}\";{}", "k".repeat(255), "p".repeat(255))).is_ok());
        assert_eq!(key(&"k".repeat(256)), Err(KeyError::TooLong { length: 256 }));
    }

    #[test]
    fn a_text_is_the_key_as_it_is() {
        let text = |text: &str| Key::from_text(text).map(|key| key.as_str().to_owned());
        for same in ["evt_1", "\"k\"", "\"open", "a b", " a ", "a,b", "k;v=1", &"k".repeat(255)] {
            assert_eq!(text(same), Ok(same.into()));
        }
        assert_eq!(Key::from_text("a\"b\\c"), Key::parse(br#""a\"b\\c""#));
        assert_eq!(text(""), Err(KeyError::Empty));
        assert_eq!(text(&"k".repeat(256)), Err(KeyError::TooLong { length: 256 }));
        for other in ["\u{e9}", "a\tb", "a\n", "\u{7f}", "\0"] {
            assert_eq!(text(other), Err(KeyError::NotPrintableAscii), "{other:?}");
        }
    }

    #[test]
    fn debug_does_not_show_the_key() {
        assert_eq!(format!("{:?}", Key::parse(b"secret").unwrap()), "Key(6 bytes)");
    }
}
