//! The key of a request: the grammar of its header, and the other places where it may be.

use std::borrow::Cow;

use idempotent_core::{Key, KeyError};

mod fault;
mod form;
mod json;
mod key_rule;
mod place;
mod structured;

pub use self::{fault::KeyFault, key_rule::KeyRule, place::KeyPlace};

/// The syntax of the header's value, in the words of the specification.
pub const SYNTAX: &str = "a Structured Field String (RFC 9651), or a bare token of visible ASCII \
                          without quote and comma";

/// Parses the value of one line of the key header.
///
/// `"k"` (a Structured Field String, RFC 9651 §3.3.3, as
/// draft-ietf-httpapi-idempotency-key-header-07 §2 requires) and `k` (the form that most client
/// libraries send) are the same key.
///
/// A value that starts with `"` is a Structured Field String. Its parameters must be well formed
/// and are ignored, as RFC 9651 §3.1.2 allows. Any other value is a bare token of visible ASCII,
/// without `"` and `,`. Commas are refused because a proxy may join two header lines into one with
/// a comma between them; the result would be two keys.
///
/// Spaces and tabs around the value are ignored.
///
/// ```
/// use idempotent_http::key::parse_key;
///
/// assert_eq!(parse_key(br#""k-1""#)?, parse_key(b"k-1")?);
/// # Ok::<_, idempotent_http::key::KeyHeaderError>(())
/// ```
///
/// # Errors
/// Returns a [`KeyHeaderError`] that names the broken rule and does not repeat the value.
pub fn parse_key(value: &[u8]) -> Result<Key, KeyHeaderError> {
    let value = value.trim_ascii();
    let key = if value.first() == Some(&b'"') {
        structured::parse_string_item(value).ok_or(KeyHeaderError::NotAString)?
    } else {
        parse_bare(value)?
    };
    Ok(Key::from_text(key)?)
}

fn parse_bare(value: &[u8]) -> Result<String, KeyHeaderError> {
    // Without an early exit, several bytes are tested at a time.
    let all_allowed = value.iter().fold(true, |all, byte| all & is_bare(*byte));
    match std::str::from_utf8(value) {
        Ok(token) if all_allowed => Ok(token.to_owned()),
        _ => Err(KeyHeaderError::NotVisibleAscii),
    }
}

/// Whether a key with this byte can be sent without quotes.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' && byte != b','
}

/// Writes the value of the key header: the bare key, as the SDKs of most APIs send it, or a
/// Structured Field String if the key has a space, a quote or a comma.
#[must_use]
pub fn header_value(key: &Key) -> Cow<'_, str> {
    let key = key.as_str();
    if key.bytes().all(is_bare) {
        return key.into();
    }
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")).into()
}

/// The reason why the value of a header is not a key. The messages may be shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyHeaderError {
    /// The value starts with a quote and is not a Structured Field String.
    #[error("the key starts with a quote but is not a valid RFC 9651 string")]
    NotAString,
    /// The value has no quotes and contains a quote, a comma, or a byte that is not visible ASCII.
    #[error(
        "an unquoted key may contain only visible ASCII characters except the quote and the comma"
    )]
    NotVisibleAscii,
    /// The value is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Result<String, KeyHeaderError> {
        parse_key(value.as_bytes()).map(|key| key.as_str().to_owned())
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
        assert_eq!(key(""), Err(KeyError::Empty.into()));
        assert_eq!(key("\"\""), Err(KeyError::Empty.into()));
        assert_eq!(key("\"open"), Err(KeyHeaderError::NotAString));
        assert_eq!(key("\"a\" \"b\""), Err(KeyHeaderError::NotAString));
        assert_eq!(key("\"a\", \"b\""), Err(KeyHeaderError::NotAString));
        assert_eq!(key("\"a\";p, \"b\""), Err(KeyHeaderError::NotAString));
        assert_eq!(key("\"a\u{e9}\""), Err(KeyHeaderError::NotAString));
        for bare in ["a b", "a,b", "a\"b", "a\tb", "a\u{7f}", "\u{e9}"] {
            assert_eq!(key(bare), Err(KeyHeaderError::NotVisibleAscii), "{bare:?}");
        }
        assert_eq!(parse_key(&[0xff]), Err(KeyHeaderError::NotVisibleAscii));
    }

    #[test]
    fn the_length_is_that_of_the_key_itself() {
        assert!(key(&"k".repeat(255)).is_ok());
        assert!(key(&format!("\"{}\"", "k".repeat(255))).is_ok());
        assert!(key(&format!("\"{}\";{}", "k".repeat(255), "p".repeat(255))).is_ok());
        assert_eq!(key(&"k".repeat(256)), Err(KeyError::TooLong { length: 256 }.into()));
    }

    #[test]
    fn a_text_is_the_key_as_it_is() {
        assert_eq!(Key::from_text("a\"b\\c").ok(), parse_key(br#""a\"b\\c""#).ok());
    }

    #[test]
    fn a_written_key_is_read_again() {
        for (text, written) in [
            ("order-17", "order-17"),
            ("k;v=1\\", "k;v=1\\"),
            ("a b", "\"a b\""),
            ("a,b", "\"a,b\""),
            ("a\"b\\c", r#""a\"b\\c""#),
        ] {
            let key = Key::from_text(text).unwrap();
            assert_eq!(header_value(&key), written);
            assert_eq!(parse_key(written.as_bytes()), Ok(key));
        }
    }
}
