//! Who holds a claim.

use std::{cell::RefCell, fmt};

use crate::record_id::RecordId;

/// The fence: 128 random bits, drawn anew for each attempt. Whoever cannot show the token that a record carries can neither
/// complete, release nor renew it.
///
/// It is not a clock and not a counter, so no skew and no lost write makes two attempts look alike; and it makes a claim whose
/// acknowledgement was lost safe to send again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// Draws a token from the operating system's random source, which is asked for sixteen at a time.
    ///
    /// # Errors
    /// When the operating system has none to give; on the usual platforms only early at boot.
    pub fn random() -> Result<Self, getrandom::Error> {
        DRAWN.with_borrow_mut(Drawn::next)
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

/// Tokens that are drawn and not yet used. Each is used once: they are this thread's, and a process that was forked draws its own.
#[cfg_attr(test, derive(Clone, Copy))]
struct Drawn {
    process: u32,
    tokens: [[u8; 16]; 16],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { process: 0, tokens: [[0; 16]; 16], left: 0 }) };
}

impl Drawn {
    fn next(&mut self) -> Result<OwnerToken, getrandom::Error> {
        let process = std::process::id();
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

/// A claim that was granted: which record, and the token that proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The record that is claimed.
    pub id: RecordId,
    /// The token under which it was granted.
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
        let mut drawn: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        drawn.extend(draw());
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 5_000);
        assert!(drawn.iter().all(|token| token.as_bytes() != &[0; 16]));
    }

    #[test]
    fn a_forked_process_draws_its_own() {
        let mut drawn = Drawn { process: 0, tokens: [[0; 16]; 16], left: 0 };
        drawn.next().unwrap();
        let mut forked = Drawn { process: std::process::id().wrapping_add(1), ..drawn };
        assert_ne!(forked.next().unwrap(), drawn.next().unwrap());
    }
}
