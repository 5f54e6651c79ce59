//! Leases and the owner tokens that fence them.

use std::fmt;

use crate::record_id::RecordId;

/// A token that identifies the owner of a record: 128 random bits, drawn for each attempt. Only a
/// caller that presents the token of a record can complete, release, renew or abandon it; any other
/// caller is *fenced*.
///
/// The token is neither a time nor a counter, so that neither clock skew nor a lost write gives two
/// attempts the same token. It also makes claims repeatable: a claim whose acknowledgment was lost
/// can be sent again with the same token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// Draws a token from the operating system's random source.
    ///
    /// # Errors
    /// Fails if the random source is not available. On common platforms that can happen only early
    /// during boot.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Creates the token from bytes that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
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

/// A granted claim: the record, and the owner token with which its owner completes, releases,
/// renews or abandons it. The length of the lease is part of the [`Claim`](crate::protocol::Claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The claimed record.
    pub id: RecordId,
    /// The token with which the claim was granted.
    pub owner: OwnerToken,
}
