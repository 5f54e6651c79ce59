//! Leases and the owner tokens that fence them.

use std::{cell::RefCell, fmt};

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
    /// Draws a token from the operating system's random source. The source is read for sixteen
    /// tokens at a time.
    ///
    /// # Errors
    /// Fails if the random source is not available. On common platforms that can happen only early
    /// during boot.
    pub fn random() -> Result<Self, getrandom::Error> {
        Self::random_in(std::process::id())
    }

    /// Draws a token in the process with this id, which is the caller's.
    pub(crate) fn random_in(process: u32) -> Result<Self, getrandom::Error> {
        POOL.with_borrow_mut(|pool| pool.next(process))
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

/// Random tokens that are not used yet. Each is used once: the pool belongs to one thread, and a
/// forked process draws its own.
#[cfg_attr(test, derive(Clone, Copy))]
struct TokenPool {
    process: u32,
    tokens: [[u8; 16]; 16],
    left: usize,
}

thread_local! {
    static POOL: RefCell<TokenPool> = const {
        RefCell::new(TokenPool { process: 0, tokens: [[0; 16]; 16], left: 0 })
    };
}

impl TokenPool {
    fn next(&mut self, process: u32) -> Result<OwnerToken, getrandom::Error> {
        if self.left == 0 || self.process != process {
            self.left = 0;
            getrandom::fill(self.tokens.as_flattened_mut())?;
            (self.process, self.left) = (process, self.tokens.len());
        }
        self.left -= 1;
        Ok(OwnerToken(self.tokens.get(self.left).copied().ok_or(getrandom::Error::UNEXPECTED)?))
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

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn no_token_is_drawn_twice() {
        let draw = || (0..1_000).map(|_| OwnerToken::random().unwrap()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(draw)).collect();
        let mut drawn: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        drawn.extend(draw());
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 5_000);
        assert!(drawn.iter().all(|token| token.as_bytes() != &[0; 16]));
    }

    #[test]
    fn a_forked_process_draws_its_own() {
        let mut pool = TokenPool { process: 0, tokens: [[0; 16]; 16], left: 0 };
        pool.next(1).unwrap();
        let mut forked = pool;
        assert_ne!(forked.next(2).unwrap(), pool.next(1).unwrap());
    }
}
