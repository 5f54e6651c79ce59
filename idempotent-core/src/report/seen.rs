//! Which attempt a view has shown.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::{record::Record, record_id::RecordId};

/// Which attempt of which record a view has shown: a digest of its owner token, for a form or a
/// flag to send back with a decision. It is not the token, and does not reveal it.
///
/// Compare it with that of the record as it is now; another one is a conflict, because the decision
/// is about something else than what was shown. `Display` writes 16 hexadecimal digits, which
/// [`FromStr`] reads.
///
/// ```
/// use idempotent_core::report::SeenAttempt;
///
/// let seen: SeenAttempt = "00c0ffee00c0ffee".parse()?;
/// assert_eq!(seen.to_string(), "00c0ffee00c0ffee");
/// # Ok::<_, idempotent_core::report::InvalidSeenAttempt>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeenAttempt(u64);

impl SeenAttempt {
    /// The attempt that a record shows.
    #[must_use]
    pub fn of(id: &RecordId, record: &Record) -> Self {
        let mut hasher = Sha256::new_with_prefix("idem/seen/1");
        hasher.update(id.as_bytes());
        hasher.update(record.owner.as_bytes());
        // All records that an operator has completed have the same owner.
        hasher.update(record.first_seen.as_millis().to_be_bytes());
        let mut digest = [0; 8];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        Self(u64::from_be_bytes(digest))
    }
}

impl fmt::Display for SeenAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for SeenAttempt {
    type Err = InvalidSeenAttempt;

    fn from_str(text: &str) -> Result<Self, InvalidSeenAttempt> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digest = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
        digest.map(Self).ok_or(InvalidSeenAttempt)
    }
}

impl Serialize for SeenAttempt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The error of a text that is not a [`SeenAttempt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seen attempt consists of 16 hexadecimal digits")]
pub struct InvalidSeenAttempt;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Timestamp, fingerprint::Fingerprint, lease::OwnerToken};

    #[test]
    fn another_attempt_record_or_claim_is_another() {
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let seen = |id, owner, first_seen| {
            let owner = OwnerToken::from_bytes([owner; 16]);
            let first_seen = Timestamp::from_millis(first_seen);
            let record = Record::new(fingerprint, owner, first_seen, first_seen);
            SeenAttempt::of(&RecordId::from_bytes([id; 32]), &record)
        };
        let one = seen(1, 1, 1);
        assert_eq!(one, seen(1, 1, 1));
        for other in [seen(2, 1, 1), seen(1, 2, 1), seen(1, 1, 2)] {
            assert_ne!(one, other);
        }
        assert_eq!(one.to_string().parse(), Ok(one));
    }

    #[test]
    fn a_text_has_16_digits() {
        assert_eq!("0".repeat(16).parse(), Ok(SeenAttempt(0)));
        for wrong in ["", "0", &"0".repeat(17), "+000000000000000", "g000000000000000"] {
            assert_eq!(wrong.parse::<SeenAttempt>(), Err(InvalidSeenAttempt), "{wrong}");
        }
    }
}
