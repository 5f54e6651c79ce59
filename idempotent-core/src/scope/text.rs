//! Scopes as a person types them.

use std::str::FromStr;

use super::ScopeId;

/// Reads a scope as a person types it, such as `user:alice`.
///
/// The text is the kind, a colon and the principal, or the principal alone if it has no kind. Outer
/// scopes come before it, each followed by a slash, as in `tenant:acme/user:alice`: the outermost
/// first, so that `a/b/c` is `c` [nested](ScopeId::nested_in) in what `a/b` is. Only the first
/// colon of a part ends its kind. Write a slash of a principal, a percent sign, and a colon of one
/// without a kind as `%2F`, `%25` and `%3A`, and any other byte as it is or in the same way.
///
/// ```
/// use idempotent_core::ScopeId;
///
/// assert_eq!("user:alice".parse(), Ok(ScopeId::of("user", "alice")));
/// assert_eq!("42".parse(), Ok(ScopeId::new("42")));
/// let nested = ScopeId::of("user", "alice").nested_in(&ScopeId::of("tenant", "a/b"));
/// assert_eq!("tenant:a%2Fb/user:alice".parse(), Ok(nested));
/// ```
impl FromStr for ScopeId {
    type Err = ScopeTextError;

    fn from_str(text: &str) -> Result<Self, ScopeTextError> {
        let mut parts = text.split('/').map(part);
        let first = parts.next().unwrap_or(Err(ScopeTextError::NoPrincipal))?;
        parts.try_fold(first, |outer, inner| Ok(inner?.nested_in(&outer)))
    }
}

fn part(text: &str) -> Result<ScopeId, ScopeTextError> {
    let (kind, principal) = text.split_once(':').unwrap_or(("", text));
    let kind = String::from_utf8(decoded(kind)?).map_err(|_| ScopeTextError::Encoding)?;
    let principal = decoded(principal)?;
    if principal.is_empty() {
        return Err(ScopeTextError::NoPrincipal);
    }
    Ok(ScopeId { kind: kind.into(), principal })
}

/// The bytes of a text with percent-encoded bytes.
fn decoded(text: &str) -> Result<Vec<u8>, ScopeTextError> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::with_capacity(text.len()));
    while let Some((first, others)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = others;
            continue;
        }
        let ([high, low], others) = others.split_first_chunk().ok_or(ScopeTextError::Encoding)?;
        let digit = |digit: &u8| char::from(*digit).to_digit(16).ok_or(ScopeTextError::Encoding);
        let byte = digit(high)? * 16 + digit(low)?;
        bytes.push(u8::try_from(byte).map_err(|_| ScopeTextError::Encoding)?);
        rest = others;
    }
    Ok(bytes)
}

/// The reason why a text is not a [`ScopeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeTextError {
    /// A part of the scope has no principal.
    #[error("a part of the scope is empty; write it as `KIND:PRINCIPAL` or `PRINCIPAL`")]
    NoPrincipal,
    /// A percent sign is not followed by two hexadecimal digits, or a kind is not UTF-8.
    #[error("write a percent sign in a scope as `%25`, and a slash in a principal as `%2F`")]
    Encoding,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_is_typed() {
        for (text, scope) in [
            ("alice", ScopeId::new("alice")),
            (":a:b", ScopeId::new("a:b")),
            ("user:alice", ScopeId::of("user", "alice")),
            ("ip:::1", ScopeId::of("ip", "::1")),
            ("global:*", ScopeId::global()),
            ("user:alice@example.org", ScopeId::of("user", "alice@example.org")),
            ("user:100%25%2f%C3%A9", ScopeId::of("user", "100%/é")),
            ("user:%ff", ScopeId::of("user", [0xff])),
            ("a/b:c", ScopeId::of("b", "c").nested_in(&ScopeId::new("a"))),
            (
                "a/b/c",
                ScopeId::new("c").nested_in(&ScopeId::new("b").nested_in(&ScopeId::new("a"))),
            ),
        ] {
            assert_eq!(text.parse(), Ok(scope), "{text}");
        }
    }

    #[test]
    fn a_text_without_a_principal_is_refused() {
        for text in ["", "user:", "a/", "/a", "tenant:/user:a"] {
            assert_eq!(text.parse::<ScopeId>(), Err(ScopeTextError::NoPrincipal), "{text}");
        }
        for text in ["100%", "%2", "%zz", "%+1", "%ff:a"] {
            assert_eq!(text.parse::<ScopeId>(), Err(ScopeTextError::Encoding), "{text}");
        }
    }
}
