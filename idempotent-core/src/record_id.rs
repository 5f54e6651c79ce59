//! Record ids, and the keys for calls to other services that are derived from them.

use std::{borrow::Cow, fmt, str::FromStr};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{key::Key, scope::ScopeId};

/// The id of a record: SHA-256 over namespace, scope, operation and key.
///
/// Each part is hashed with its length, so that the same bytes divided differently give another id.
/// `Display` writes the whole id as 64 hexadecimal digits, which [`FromStr`] parses. For logs,
/// [`short`](Self::short) shows the first 8 of them; log those instead of the key.
///
/// ```
/// use idempotent_core::RecordId;
///
/// let id = RecordId::from_bytes([0xab; 32]);
/// assert_eq!(id.to_string(), "ab".repeat(32));
/// assert_eq!(id.to_string().parse(), Ok(id));
/// assert_eq!(id.short().to_string(), "abababab");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// Computes the id of the record for `key` in `scope` and for the operation of this name.
    /// `namespace` separates applications that share a store.
    ///
    /// In an operation that is named after a method and a route pattern, the names of the dynamic
    /// segments do not count: `POST /orders/{id}` and `POST /orders/{order_id}` are the same
    /// operation.
    #[must_use]
    pub fn new(namespace: &str, scope: &ScopeId, operation: &str, key: &Key) -> Self {
        let [kind, principal] = scope.parts();
        let mut hasher = Sha256::new_with_prefix("idem/1");
        add(&mut hasher, namespace.as_bytes());
        add(&mut hasher, kind);
        add(&mut hasher, principal);
        add(&mut hasher, without_segment_names(operation).as_bytes());
        add(&mut hasher, key.as_str().as_bytes());
        Self(hasher.finalize().into())
    }

    /// Creates the id from bytes that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the short form for logs: the first 8 hexadecimal digits.
    #[must_use]
    pub const fn short(&self) -> ShortRecordId {
        let [a, b, c, d, ..] = self.0;
        ShortRecordId([a, b, c, d])
    }

    /// Returns the first and the last id that begin with these hexadecimal digits: 1 to 64 of them,
    /// such as the 8 of the [short form](Self::short).
    ///
    /// ```
    /// use idempotent_core::RecordId;
    ///
    /// let (first, last) = RecordId::range("c1ad8")?;
    /// assert!(first.to_string().starts_with("c1ad800"));
    /// assert!(last.to_string().starts_with("c1ad8ff"));
    /// # Ok::<_, idempotent_core::RecordIdError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the text is empty, longer than 64 characters, or has other characters.
    pub fn range(prefix: &str) -> Result<(Self, Self), RecordIdError> {
        if prefix.is_empty() || !prefix.is_ascii() {
            return Err(RecordIdError);
        }
        Ok((format!("{prefix:0<64}").parse()?, format!("{prefix:f<64}").parse()?))
    }

    /// Derives an idempotency key for a call that the operation makes to another service. `label`
    /// distinguishes several calls of one operation.
    ///
    /// The key stays the same across retries, deployments and takeovers, differs for each label,
    /// and does not reveal the client's key.
    #[must_use]
    pub fn derive_key(&self, label: &str) -> DerivedKey {
        let mut hasher = Sha256::new_with_prefix("idem/down/1");
        add(&mut hasher, &self.0);
        add(&mut hasher, label.as_bytes());
        let mut key = [0; 16];
        key.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        DerivedKey(Uuid::new_v8(key))
    }
}

/// Writes all 64 hexadecimal digits.
impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

/// As `Display`.
impl fmt::LowerHex for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

/// The short form of a [`RecordId`] for logs, from [`RecordId::short`]. `Display` writes its 8
/// hexadecimal digits. Several records may have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortRecordId([u8; 4]);

impl fmt::Display for ShortRecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for ShortRecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortRecordId({self})")
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Parses 64 hexadecimal digits.
impl FromStr for RecordId {
    type Err = RecordIdError;

    fn from_str(text: &str) -> Result<Self, RecordIdError> {
        let mut id = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != id.len() || !rest.is_empty() {
            return Err(RecordIdError);
        }
        for (byte, [high, low]) in id.iter_mut().zip(pairs) {
            let digit = |digit: &u8| char::from(*digit).to_digit(16).ok_or(RecordIdError);
            *byte = u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| RecordIdError)?;
        }
        Ok(Self(id))
    }
}

/// The error of a text that is not a whole [`RecordId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record id consists of 64 hexadecimal digits, and a part of one of fewer")]
pub struct RecordIdError;

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({}…)", self.short())
    }
}

fn add(hasher: &mut Sha256, part: &[u8]) {
    hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(part);
}

/// A method and a route pattern without the names of the dynamic segments: `{id:[0-9]+}` becomes
/// `{:[0-9]+}`. Any other name is unchanged.
fn without_segment_names(operation: &str) -> Cow<'_, str> {
    let is_route = operation.split_once(' ').is_some_and(|(method, pattern)| {
        method.bytes().all(|byte| byte.is_ascii_uppercase()) && pattern.starts_with('/')
    });
    if !is_route || !operation.contains('{') {
        return operation.into();
    }
    let (mut pattern, mut depth, mut in_name) = (String::new(), 0u32, false);
    for character in operation.chars() {
        match character {
            '{' => depth = depth.saturating_add(1),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        in_name = match character {
            '{' if depth == 1 => true,
            ':' | '}' => false,
            _ if in_name => continue,
            _ => false,
        };
        pattern.push(character);
    }
    pattern.into()
}

/// An idempotency key for a call to another service, derived by [`RecordId::derive_key`]. `Display`
/// shows it as a UUID (version 8, RFC 9562 §5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DerivedKey(Uuid);

impl DerivedKey {
    /// Returns the key as a UUID.
    #[must_use]
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl From<DerivedKey> for Key {
    fn from(DerivedKey(key): DerivedKey) -> Self {
        key.into()
    }
}

impl fmt::Display for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(scope: &ScopeId, operation: &str, key: &str) -> RecordId {
        RecordId::new("shop", scope, operation, &Key::from_text(key).unwrap())
    }

    #[test]
    fn the_names_of_dynamic_segments_do_not_count() {
        let id = |operation: &str| id(&ScopeId::new("s"), operation, "k");
        assert_eq!(id("POST /a/{id}/b/{c}"), id("POST /a/{other}/b/{d}"));
        assert_eq!(id(r"PUT /{id:\d{2,3}}/x"), id(r"PUT /{n:\d{2,3}}/x"));
        assert_eq!(id("POST /files/{tail}*"), id("POST /files/{rest}*"));
        for (one, other) in [
            ("POST /a/{id}/b", "POST /a/{id}/c"),
            ("POST /{id:[a-z]+}", "POST /{id:[0-9]+}"),
            ("POST /{id:[0-9]+}", "POST /{id}"),
            (r"PUT /{id:\d{2,3}}/x", r"PUT /{id:\d{2,4}}/x"),
            ("POST /{id}*", "POST /{id}"),
            ("POST /a/{id}", "PUT /a/{id}"),
            // These are no routes.
            ("import {csv}", "import {xml}"),
            ("POST {csv}", "POST {xml}"),
        ] {
            assert_ne!(id(one), id(other), "{one} and {other}");
        }
    }

    #[test]
    fn namespace_scope_operation_and_key_do_not_run_together() {
        let one = id(&ScopeId::new("ab"), "POST /c", "k");
        assert_eq!(one, id(&ScopeId::new("ab"), "POST /c", "k"));
        assert_ne!(one, id(&ScopeId::new("a"), "bPOST /c", "k"));
        assert_ne!(one, id(&ScopeId::of("ab", ""), "POST /c", "k"));
        assert_ne!(one, id(&ScopeId::new("ab"), "POST /ck", "k"));
        let key = Key::from_text("k").unwrap();
        assert_ne!(one, RecordId::new("bank", &ScopeId::new("ab"), "POST /c", &key));
        assert_ne!(
            RecordId::new("sh", &ScopeId::of("op", ""), "", &key),
            RecordId::new("", &ScopeId::of("shop", ""), "", &key)
        );
        assert_ne!(
            id(&ScopeId::new("a").nested_in(&ScopeId::new("b")), "", "k"),
            id(&ScopeId::new("ba"), "", "k")
        );
    }

    #[test]
    fn the_encoding_of_a_record_id_is_fixed_for_ever() {
        // Another value here would forget every key in every store.
        let id = id(
            &ScopeId::of("user", "alice"),
            "POST /v1/payments",
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
        );
        assert_eq!(id.short().to_string(), "c1ad8989");
        assert_eq!(id.derive_key("charge").to_string(), "22ed8504-8e9b-8dba-b130-8c3943d548c4");
    }

    #[test]
    fn an_id_can_be_written_whole_and_parsed() {
        let whole = id(&ScopeId::new("a"), "o", "k");
        let text = whole.to_string();
        assert_eq!((text.len(), &text), (64, &format!("{whole:x}")));
        assert!(text.starts_with(&whole.short().to_string()));
        assert_eq!(format!("{whole:?}"), format!("RecordId({}…)", whole.short()));
        assert_eq!(text.parse(), Ok(whole));
        assert_eq!(text.to_uppercase().parse(), Ok(whole));
        let wrong = [&text[1..], &format!("{text}0"), &text.replace(&text[..1], "g"), ""];
        for wrong in wrong {
            assert_eq!(wrong.parse::<RecordId>(), Err(RecordIdError), "{wrong}");
        }
        assert!("+1".repeat(32).parse::<RecordId>().is_err());
    }

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        for digits in ["0", "f", "c1a", "c1ad8989", &"f".repeat(63), &"9".repeat(64)] {
            let (first, last) = RecordId::range(digits).unwrap();
            let rest = 64 - digits.len();
            assert_eq!(first.to_string(), format!("{digits}{}", "0".repeat(rest)));
            assert_eq!(last.to_string(), format!("{digits}{}", "f".repeat(rest)));
        }
        for wrong in ["", "g", "é", &"0".repeat(65)] {
            assert_eq!(RecordId::range(wrong), Err(RecordIdError), "{wrong}");
        }
    }

    #[test]
    fn derived_keys_differ_by_label_and_record_only() {
        let (one, two) = (id(&ScopeId::new("a"), "o", "k"), id(&ScopeId::new("b"), "o", "k"));
        assert_eq!(one.derive_key("charge"), one.derive_key("charge"));
        assert_ne!(one.derive_key("charge"), one.derive_key("refund"));
        assert_ne!(one.derive_key("charge"), two.derive_key("charge"));
        assert_eq!(one.derive_key("charge").as_uuid().get_version_num(), 8);
    }
}
