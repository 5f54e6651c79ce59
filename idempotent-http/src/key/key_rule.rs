//! Stricter rules for keys.

use idempotent_core::Key;
use serde_json::{Value, json};
use uuid::Uuid;

use super::fault::KeyFault;

/// A rule for keys, in addition to what [`parse_key`](super::parse_key) requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRule {
    /// Any key is accepted.
    Any,
    /// A key is a UUID in its usual form of 36 characters. This rule refuses the keys that Firefox
    /// adds to `POST` requests, which are decimal numbers.
    Uuid,
    /// A key has at least this number of bytes, not counting quotes and escapes.
    MinLength(usize),
}

impl KeyRule {
    /// Returns the rule in the words of the specification.
    #[must_use]
    pub fn specified(self) -> Value {
        match self {
            Self::Any => json!("any"),
            Self::Uuid => json!("uuid"),
            Self::MinLength(least) => json!({ "min_bytes": least }),
        }
    }

    /// Checks a key.
    ///
    /// # Errors
    /// Fails with [`KeyFault::Refused`] if the rule refuses the key.
    pub fn check(self, key: &Key) -> Result<(), KeyFault> {
        let key = key.as_str();
        match self {
            Self::Uuid if key.len() != 36 || Uuid::try_parse(key).is_err() => {
                Err(KeyFault::Refused("the key is not a UUID".into()))
            }
            Self::MinLength(least) if key.len() < least => Err(KeyFault::Refused(format!(
                "the key has {} bytes; it must have at least {least}",
                key.len()
            ))),
            Self::Any | Self::Uuid | Self::MinLength(_) => Ok(()),
        }
    }
}
