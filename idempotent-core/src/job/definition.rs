//! What a run is about.

use crate::policy::Policy;

/// An operation that [`Runtime::run`](crate::Runtime::run) runs: its name, and how its keys are
/// treated. One constant describes all its runs. The namespace is that of the runtime's
/// [options](crate::runtime::RuntimeOptions).
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_core::{Policy, job::Job};
///
/// const IMPORT: Job = Job::new("import order")
///     .with_policy(Policy::DEFAULT.with_ttl(Duration::from_secs(7 * 24 * 3600)));
/// # assert_eq!(IMPORT.name, "import order");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The name of the operation, which is part of each record id. If it is changed, every key is
    /// new.
    pub name: &'static str,
    /// How the keys are treated. [`Policy::DEFAULT`] by default. The work itself states which
    /// failures are [final](super::Failure::Final).
    pub policy: Policy,
    /// How [`run_in_transaction`](crate::Runtime::run_in_transaction) claims a key.
    /// [`ClaimMode::Lease`] by default. It has no effect on [`run`](crate::Runtime::run), which
    /// claims by lease.
    pub claim: ClaimMode,
}

/// How a run with a transaction claims its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// The claim is committed first. The transaction begins when the work asks for its connection,
    /// so the work may call other services before without keeping a connection.
    Lease,
    /// The claim, the effects and the result are one transaction, which begins before the work. An
    /// attempt that crashes leaves nothing behind. Choose it for short work that only writes to
    /// the database; progress and steps outside of the transaction are refused.
    Transaction,
}

impl Job {
    /// Creates a job with the default policy, which claims by lease.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, policy: Policy::DEFAULT, claim: ClaimMode::Lease }
    }

    /// Sets how the keys are treated.
    #[must_use]
    pub const fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets how a run with a transaction claims its key.
    #[must_use]
    pub const fn with_claim(self, claim: ClaimMode) -> Self {
        Self { claim, ..self }
    }
}
