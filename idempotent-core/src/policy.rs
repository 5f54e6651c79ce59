//! The policy of an operation: how its keys are treated.

use std::time::Duration;

/// How the keys of one operation are treated.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_core::{OnAbandon, Policy};
///
/// const PAYMENTS: Policy = Policy::DEFAULT
///     .with_ttl(Duration::from_secs(7 * 24 * 3600))
///     .with_abandoned(OnAbandon::Hold);
/// # assert_eq!(PAYMENTS.lease, Policy::DEFAULT.lease);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// How long the outcome can be replayed, counted from the first claim. 24 hours by default.
    pub ttl: Duration,
    /// How long a key stays claimed after the process that claimed it has died; while the process
    /// lives, the lease is renewed. It should be at most half of `ttl`, which this crate does not
    /// verify. 30 seconds by default.
    pub lease: Duration,
    /// How long a duplicate waits while another attempt is in flight. Zero by default.
    pub wait: Duration,
    /// What happens to a key whose attempt was abandoned. [`OnAbandon::Retry`] by default.
    pub abandoned: OnAbandon,
}

impl Policy {
    /// The defaults of `#[idempotent]`: ttl 24 hours, lease 30 seconds, no waiting, retry.
    pub const DEFAULT: Self = Self {
        ttl: Duration::from_secs(24 * 60 * 60),
        lease: Duration::from_secs(30),
        wait: Duration::ZERO,
        abandoned: OnAbandon::Retry,
    };

    /// Sets how long the response can be replayed.
    #[must_use]
    pub const fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Sets how long a key stays claimed after the process that claimed it has died.
    #[must_use]
    pub const fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sets how long a duplicate waits while another attempt is in flight.
    #[must_use]
    pub const fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Sets what happens to a key whose attempt was abandoned.
    #[must_use]
    pub const fn with_abandoned(self, abandoned: OnAbandon) -> Self {
        Self { abandoned, ..self }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The rule for keys whose attempt was abandoned: it ended without an outcome, because its process
/// died or its handler panicked or exceeded its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAbandon {
    /// The next request runs the operation again.
    Retry,
    /// The key is held from its claim on: no request with it runs until an operator resolves the
    /// key, even after its ttl.
    Hold,
    /// The next request runs the operation again until the handler has passed its
    /// [point of no return](crate::runtime::Run::point_of_no_return), which its first
    /// [step](crate::runtime::Run::step) implies. From then on, the key is held.
    RetryThenHold,
}

impl OnAbandon {
    /// Returns what happens to a key that is abandoned before the point of no return.
    #[must_use]
    pub const fn from_the_claim(self) -> Abandoned {
        match self {
            Self::Retry | Self::RetryThenHold => Abandoned::Retry,
            Self::Hold => Abandoned::Hold,
        }
    }

    /// Returns what happens to a key that is abandoned after the point of no return.
    #[must_use]
    pub const fn from_the_point_of_no_return(self) -> Abandoned {
        match self {
            Self::Retry => Abandoned::Retry,
            Self::Hold | Self::RetryThenHold => Abandoned::Hold,
        }
    }
}

/// What happens to a key if its attempt is abandoned now. A record stores it; the rule
/// [`OnAbandon`] decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The next request runs the operation again.
    Retry,
    /// The key is held: no request with it runs until an operator resolves the key, even after its
    /// ttl.
    Hold,
}

impl Abandoned {
    /// Returns the stricter of two policies: `Hold` if either is `Hold`.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retry, Self::Retry) => Self::Retry,
            (Self::Hold, _) | (_, Self::Hold) => Self::Hold,
        }
    }
}
