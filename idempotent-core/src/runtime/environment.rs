//! The clock, the random source and the place of background work of a runtime.

use std::time::Instant;

use super::owner_tokens::OwnerTokens;
use crate::{error::StoreError, lease::OwnerToken};

/// What a runtime gets from outside. A simulation replaces it, so that a seed determines each run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Environment {
    /// The monotonic clock and the random source of the operating system, and a thread.
    System,
    /// The time and the tasks of the caller's tokio runtime and `LocalSet`, and the random numbers
    /// of `fastrand`.
    #[cfg(feature = "internals")]
    Simulation,
}

impl Environment {
    /// Returns the present time of the monotonic clock. Outside of a simulation it is not tokio's:
    /// an application may pause the time of its tokio runtime in a test, while the time of the
    /// background thread goes on.
    pub(super) fn now(self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(feature = "internals")]
            Self::Simulation => tokio::time::Instant::now().into_std(),
        }
    }

    /// Draws an owner token.
    pub(super) fn draw_owner(self, tokens: &OwnerTokens) -> Result<OwnerToken, StoreError> {
        let drawn = match self {
            Self::System => tokens.draw(),
            #[cfg(feature = "internals")]
            Self::Simulation => Ok(OwnerToken::from_bytes(fastrand::u128(1..).to_le_bytes())),
        };
        drawn.map_err(|error| StoreError::transient("runtime", "generate an owner token", error))
    }
}
