//! What the client sent to name its operation.

use std::fmt;

/// An idempotency key: 1 to 255 bytes of printable ASCII.
///
/// `"k"` (a Structured Field String, RFC 9651 §3.3.3, as draft-ietf-httpapi-idempotency-key-header-07 §2 asks for) and `k` (what
/// most client libraries send) are the same key.
///
/// A key can be a secret, so `Debug` does not show it.
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
    /// The most bytes that a key may have, quotes and escapes not counted.
    pub const MAX_BYTES: usize = 255;

    /// Reads the value of one `Idempotency-Key` header line.
    ///
    /// A value that starts with `"` is a Structured Field String; its parameters are ignored, as RFC 9651 §3.1.2 lets us. Anything
    /// else is a bare token of visible ASCII. A bare token may hold neither `"` nor `,`: a comma is what a proxy leaves behind when it
    /// joins two header lines into one, and two keys are no key.
    ///
    /// # Errors
    /// [`KeyError`] says which rule the value breaks; it does not repeat the value.
    pub fn parse(value: &[u8]) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        let key = if value.first() == Some(&b'"') { structured(value)? } else { bare(value)? };
        match key.len() {
            0 => Err(KeyError::Empty),
            length if length > Self::MAX_BYTES => Err(KeyError::TooLong { length }),
            _ => Ok(Self(key.into())),
        }
    }

    /// The key without quotes and escapes. It may be a secret: keep it out of logs.
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

fn structured(value: &[u8]) -> Result<String, KeyError> {
    let item: sfv::Item = sfv::Parser::new(value).parse().map_err(|_| KeyError::NotAString)?;
    if let sfv::BareItem::String(string) = item.bare_item { Ok(string.into()) } else { Err(KeyError::NotAString) }
}

fn bare(value: &[u8]) -> Result<String, KeyError> {
    match std::str::from_utf8(value) {
        Ok(token) if token.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b',') => Ok(token.to_owned()),
        _ => Err(KeyError::NotVisibleAscii),
    }
}

/// Why a header value is not a key. The texts may be shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There is nothing in it.
    Empty,
    /// It is longer than [`Key::MAX_BYTES`].
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It starts with a quote, but is not a Structured Field String.
    NotAString,
    /// It is not quoted, and holds something else than visible ASCII, or a quote, or a comma.
    NotVisibleAscii,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key is empty"),
            Self::TooLong { length } => write!(f, "the key has {length} bytes; the most is {}", Key::MAX_BYTES),
            Self::NotAString => f.write_str("the key starts with a quote, but is not a string as RFC 9651 defines it"),
            Self::NotVisibleAscii => {
                f.write_str("an unquoted key is made of visible ASCII characters other than the quote and the comma")
            }
        }
    }
}

impl std::error::Error for KeyError {}

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
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(key(""), Err(KeyError::Empty));
        assert_eq!(key("\"\""), Err(KeyError::Empty));
        assert_eq!(key("\"open"), Err(KeyError::NotAString));
        assert_eq!(key("\"a\" \"b\""), Err(KeyError::NotAString));
        assert_eq!(key("\"a\", \"b\""), Err(KeyError::NotAString));
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
        assert_eq!(key(&"k".repeat(256)), Err(KeyError::TooLong { length: 256 }));
    }

    #[test]
    fn debug_does_not_show_the_key() {
        assert_eq!(format!("{:?}", Key::parse(b"secret").unwrap()), "Key(6 bytes)");
    }
}
