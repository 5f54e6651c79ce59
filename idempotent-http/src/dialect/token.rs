//! Names and values of headers.

use std::{borrow::Cow, fmt};

/// A token (RFC 9110 §5.6.2): the name of a header, or a simple value such as `true`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token(Cow<'static, str>);

/// The text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name or the value of a header has a character that a token cannot have, or none")]
pub struct InvalidToken;

impl Token {
    /// Creates a token of a constant.
    ///
    /// # Panics
    /// Panics if the text is not a token; in a `const`, that is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn from_static(text: &'static str) -> Self {
        assert!(is_token(text.as_bytes()), "this is not a token (RFC 9110 section 5.6.2)");
        Self(Cow::Borrowed(text))
    }

    /// Creates a token.
    ///
    /// # Errors
    /// Fails if the text is not a token.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidToken> {
        let text = text.into();
        if is_token(text.as_bytes()) { Ok(Self(text.into())) } else { Err(InvalidToken) }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const fn is_token(text: &[u8]) -> bool {
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let is_mark = matches!(
            first,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );
        if !first.is_ascii_alphanumeric() && !is_mark {
            return false;
        }
        rest = others;
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_accepted() {
        assert_eq!(Token::new("X-Key_1").unwrap().as_str(), "X-Key_1");
        for text in ["", "a b", "a:b", "a\n", "\u{e9}", "a\"b"] {
            assert_eq!(Token::new(text), Err(InvalidToken), "{text:?}");
        }
    }
}
