//! The words of the protocol: what a step of the state machine is asked, and what it reports.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    record::Record,
    recording::Length,
    scope::Principal,
};

/// What a claim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What the request says.
    pub fingerprint: Fingerprint,
    /// A token drawn for this attempt.
    pub owner: OwnerToken,
    /// How long the claim lasts without renewal.
    pub lease: Duration,
    /// How long the record lasts.
    pub ttl: Duration,
    /// What to do if this attempt, or the one found lapsed, is abandoned.
    pub abandoned: Abandoned,
    /// Whose claim it is, where that is known. A store that bounds its size limits the share of one principal.
    pub principal: Option<Principal>,
}

/// What a claim came to. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The key is the caller's. From the second attempt on, an earlier one was abandoned.
    Granted {
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// The operation was done; here is the recording's encoding.
    Completed(Bytes),
    /// Another attempt is at work.
    InFlight {
        /// How long its lease lasts yet.
        lease_left: Duration,
    },
    /// An attempt was abandoned, and its outcome is unknown until it is resolved.
    Held {
        /// Whether this claim made it so: the lease had expired.
        newly: bool,
    },
    /// The key belongs to another request.
    Mismatch {
        /// What that request said. It never leaves the process; the runtime looks at which key signed it.
        recorded: Fingerprint,
    },
}

/// Whether an owner was still the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The record carried the caller's token, and the step was taken.
    Passed,
    /// It did not, and nothing was changed.
    Fenced,
}

/// The outcome of one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The record carried the caller's token; the lease lasts from now.
    Renewed,
    /// It did not, and nothing was changed.
    Fenced,
    /// The record could not be reached in time. The lease may still be the caller's; renew it again.
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
pub struct Renewal {
    /// The claim.
    pub lease: Lease,
    /// For how long from now.
    pub extend: Duration,
}

/// What an operator says of a held key. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It was done; this is the recording's encoding.
    Complete(Bytes),
    /// It was not done; the next request may run.
    Release,
}

/// Whether a resolution was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// It was.
    Resolved,
    /// The record is not held, or no longer the one that was seen.
    Conflict,
}

/// A record as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The record.
    pub record: Record,
    /// When, by the store's clock.
    pub at: Timestamp,
}

impl fmt::Debug for ClaimOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { attempt } => f.debug_struct("Granted").field("attempt", attempt).finish(),
            Self::Completed(recording) => f.debug_tuple("Completed").field(&Length(recording)).finish(),
            Self::InFlight { lease_left } => f.debug_struct("InFlight").field("lease_left", lease_left).finish(),
            Self::Held { newly } => f.debug_struct("Held").field("newly", newly).finish(),
            Self::Mismatch { recorded } => f.debug_struct("Mismatch").field("recorded", recorded).finish(),
        }
    }
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(recording) => f.debug_tuple("Complete").field(&Length(recording)).finish(),
            Self::Release => f.write_str("Release"),
        }
    }
}
