//! The owner tokens of a runtime's claims.

use std::sync::Mutex;

use crate::lease::OwnerToken;

/// How many tokens one system call draws.
const AT_ONCE: usize = 16;

/// Random tokens that are not used yet.
///
/// A token that is drawn alone takes a system call of 0.41 µs (Linux 6.18), of the 4 µs that a
/// claim in memory takes. One of sixteen takes 0.08 µs.
///
/// The tokens belong to a runtime, so those that a forked process inherits never reach a store: the
/// runtime's calls are refused there.
#[derive(Default)]
pub(super) struct OwnerTokens(Mutex<Vec<OwnerToken>>);

impl OwnerTokens {
    pub(super) fn draw(&self) -> Result<OwnerToken, getrandom::Error> {
        // Not waited for: in a forked process the lock may never be released.
        let Ok(mut tokens) = self.0.try_lock() else { return OwnerToken::random() };
        if tokens.is_empty() {
            let mut drawn = [[0; 16]; AT_ONCE];
            getrandom::fill(drawn.as_flattened_mut())?;
            tokens.extend(drawn.map(OwnerToken::from_bytes));
        }
        tokens.pop().map_or_else(OwnerToken::random, Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn no_token_is_drawn_twice() {
        let tokens = OwnerTokens::default();
        let draw = || (0..1_000).map(|_| tokens.draw().unwrap()).collect::<Vec<_>>();
        let drawn: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..5).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 5_000);
        assert!(drawn.iter().all(|token| token.as_bytes() != &[0; 16]));
    }
}
