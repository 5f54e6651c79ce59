//! Who holds a claim.

use std::fmt;

use crate::record::RecordId;

/// The fence: 128 random bits, drawn anew for each attempt. Whoever cannot show the token that a record carries can neither
/// complete, release nor renew it.
///
/// It is not a clock and not a counter, so no skew and no lost write makes two attempts look alike; and it makes a claim whose
/// acknowledgement was lost safe to send again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// Draws a token from the operating system's random source.
    ///
    /// # Errors
    /// When the operating system has none to give; on the usual platforms only early at boot.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The token that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes for a store to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// A claim that was granted: which record, and the token that proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The record that is claimed.
    pub id: RecordId,
    /// The token under which it was granted.
    pub owner: OwnerToken,
}
