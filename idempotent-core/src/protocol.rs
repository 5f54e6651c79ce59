//! The vocabulary of the protocol: the inputs of each step of the state machine, and its outcomes.
//!
//! The outcome enums are exhaustive: a store and the runtime must handle every outcome, and a new
//! one is a breaking change of the contract.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    policy::{Abandoned, Policy},
    record::Record,
    recording::Length,
    scope::Principal,
};

/// A claim on a key.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_core::{Fingerprint, OwnerToken, protocol::Claim};
///
/// let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
/// let claim = Claim::new(fingerprint, OwnerToken::random()?)
///     .with_lease(Duration::from_secs(10))
///     .with_ttl(Duration::from_secs(3600));
/// # assert_eq!(claim.lease.as_secs(), 10);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The owner token that was drawn for this attempt.
    pub owner: OwnerToken,
    /// How long the claim lasts unless it is renewed.
    pub lease: Duration,
    /// How long the record lasts, counted from the first claim.
    pub ttl: Duration,
    /// What happens to the key if this attempt, or an earlier one whose lease has expired, is
    /// abandoned.
    pub abandoned: Abandoned,
    /// The principal that claims, if known. A store of bounded size limits the share of one
    /// principal.
    pub principal: Option<Principal>,
}

impl Claim {
    /// Creates a claim with the lease, ttl and abandonment of [`Policy::DEFAULT`], and without a
    /// principal.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, owner: OwnerToken) -> Self {
        let Policy { lease, ttl, abandoned, .. } = Policy::DEFAULT;
        Self { fingerprint, owner, lease, ttl, abandoned, principal: None }
    }

    /// Takes lease, ttl and abandonment from a policy.
    #[must_use]
    pub const fn with_policy(self, policy: &Policy) -> Self {
        let Policy { lease, ttl, abandoned, .. } = *policy;
        Self { lease, ttl, abandoned, ..self }
    }

    /// Replaces the fingerprint.
    #[must_use]
    pub const fn with_fingerprint(self, fingerprint: Fingerprint) -> Self {
        Self { fingerprint, ..self }
    }

    /// Replaces the owner token.
    #[must_use]
    pub const fn with_owner(self, owner: OwnerToken) -> Self {
        Self { owner, ..self }
    }

    /// Sets how long the claim lasts unless it is renewed.
    #[must_use]
    pub const fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sets how long the record lasts.
    #[must_use]
    pub const fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Sets what happens to the key if the attempt is abandoned.
    #[must_use]
    pub const fn with_abandoned(self, abandoned: Abandoned) -> Self {
        Self { abandoned, ..self }
    }

    /// Sets the principal that claims.
    #[must_use]
    pub const fn with_principal(self, principal: Option<Principal>) -> Self {
        Self { principal, ..self }
    }
}

/// The outcome of a claim. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller owns the key.
    Granted {
        /// 1 for the first attempt; from 2 on, an earlier attempt was abandoned.
        attempt: u32,
    },
    /// The operation is complete. Contains the encoded recording.
    Completed(Bytes),
    /// Another attempt is in flight.
    InFlight {
        /// The rest of its lease.
        lease_left: Duration,
    },
    /// An attempt was abandoned. Its outcome is unknown until an operator resolves the key.
    Held {
        /// Whether this claim found the lease expired, and thereby put the key on hold.
        newly: bool,
    },
    /// The key was first used with another request.
    Mismatch {
        /// The fingerprint of that request. It never leaves the process; the runtime reads from it
        /// which key signed it.
        recorded: Fingerprint,
    },
}

/// Whether the caller still owned the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The record carried the caller's owner token, and the step was taken.
    Passed,
    /// The record is absent, carries another owner token, or is in a state that forbids the step.
    /// Nothing was changed.
    Fenced,
}

/// The outcome of one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The caller owns the claim, and its lease starts anew.
    Renewed,
    /// The caller does not own a claim in flight. Nothing was changed.
    Fenced,
    /// The record could not be reached in time. The caller may still own the claim and should renew
    /// it again.
    Unknown,
}

impl From<Fence> for RenewOutcome {
    fn from(fence: Fence) -> Self {
        match fence {
            Fence::Passed => Self::Renewed,
            Fence::Fenced => Self::Fenced,
        }
    }
}

/// One lease to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The claim.
    pub lease: Lease,
    /// The length of the renewed lease, counted from the time of the call.
    pub extend: Duration,
}

impl Renewal {
    /// Creates a renewal that extends a lease for this long from the time of the call.
    #[must_use]
    pub const fn new(lease: Lease, extend: Duration) -> Self {
        Self { lease, extend }
    }
}

/// An operator's decision about a held key. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The operation was done. Contains the encoded recording that is replayed from now on.
    Complete(Bytes),
    /// The operation was not done; the next request runs it.
    Release,
}

/// The outcome of a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// The key is resolved.
    Resolved,
    /// The key is not held, or another attempt owns it than the one that the operator saw.
    Conflict,
}

/// A record and the time at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The record.
    pub record: Record,
    /// The time of the read, by the store's clock.
    pub at: Timestamp,
}

impl Snapshot {
    /// Creates a snapshot of a record that was read at this time of the store's clock.
    #[must_use]
    pub const fn new(record: Record, at: Timestamp) -> Self {
        Self { record, at }
    }
}

impl fmt::Debug for ClaimOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { attempt } => {
                f.debug_struct("Granted").field("attempt", attempt).finish()
            }
            Self::Completed(recording) => {
                f.debug_tuple("Completed").field(&Length(recording)).finish()
            }
            Self::InFlight { lease_left } => {
                f.debug_struct("InFlight").field("lease_left", lease_left).finish()
            }
            Self::Held { newly } => f.debug_struct("Held").field("newly", newly).finish(),
            Self::Mismatch { recorded } => {
                f.debug_struct("Mismatch").field("recorded", recorded).finish()
            }
        }
    }
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(recording) => {
                f.debug_tuple("Complete").field(&Length(recording)).finish()
            }
            Self::Release => f.write_str("Release"),
        }
    }
}
