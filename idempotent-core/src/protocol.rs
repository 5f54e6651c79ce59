//! The inputs of each step of the state machine, and the outcomes of the steps.
//!
//! The outcome enums are exhaustive: a store and the runtime must handle every outcome, and adding
//! one is a breaking change of the contract.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    policy::{Abandoned, Policy},
    record::Record,
    record_id::RecordId,
    recording::Length,
    scope::Principal,
    short_text::ShortText,
};

mod audit;
mod facts;
mod pages;
mod rejection;

pub use audit::{Actor, AuditAction, AuditEntry, AuditError, AuditPage, Audited, AuditedState};
pub use facts::{Finding, Size, StoreFacts};
pub use pages::{
    Contents, InvalidPosition, ListedRecord, ListedState, PagePosition, RecordCount, RecordFilter,
    RecordPage, Removal, Replacement,
};
pub use rejection::Rejection;

/// A claim on a key: the input of [`Store::claim`](crate::Store::claim).
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The owner token that was drawn for this attempt.
    pub owner: OwnerToken,
    /// How long the claim lasts unless it is renewed. Stores round it down to whole milliseconds.
    pub lease: Duration,
    /// How long the record lasts, counted from the first claim.
    pub ttl: Duration,
    /// What happens to the key if this attempt is abandoned, or if this claim finds that the lease
    /// of an earlier attempt has expired. The stricter of this value and that of the record
    /// applies.
    pub abandoned: Abandoned,
    /// The principal that claims, if known. The record shows it, and a store of limited size
    /// limits the share of each principal.
    pub principal: Option<Principal>,
    /// The name of the operation, which the record shows. Empty by default.
    pub operation: ShortText,
}

impl Claim {
    /// Creates a claim with the `lease`, `ttl` and `abandoned` of [`Policy::DEFAULT`], without a
    /// principal, and without the name of an operation.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, owner: OwnerToken) -> Self {
        let Policy { lease, ttl, abandoned, .. } = Policy::DEFAULT;
        let (abandoned, operation) = (abandoned.from_the_claim(), ShortText::EMPTY);
        Self { fingerprint, owner, lease, ttl, abandoned, principal: None, operation }
    }

    /// Sets `lease`, `ttl` and `abandoned` to those of a policy, as they are from the claim on.
    #[must_use]
    pub fn with_policy(&self, policy: &Policy) -> Self {
        let Policy { lease, ttl, abandoned, .. } = *policy;
        Self { lease, ttl, abandoned: abandoned.from_the_claim(), ..self.clone() }
    }

    /// Sets the fingerprint of the request.
    #[must_use]
    pub fn with_fingerprint(&self, fingerprint: Fingerprint) -> Self {
        Self { fingerprint, ..self.clone() }
    }

    /// Sets the owner token.
    #[must_use]
    pub fn with_owner(&self, owner: OwnerToken) -> Self {
        Self { owner, ..self.clone() }
    }

    /// Sets how long the claim lasts unless it is renewed.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease, ..self.clone() }
    }

    /// Sets how long the record lasts, counted from the first claim.
    #[must_use]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// Sets what happens to the key if the attempt is abandoned.
    #[must_use]
    pub fn with_abandoned(&self, abandoned: Abandoned) -> Self {
        Self { abandoned, ..self.clone() }
    }

    /// Sets the principal that claims.
    #[must_use]
    pub fn with_principal(&self, principal: Option<Principal>) -> Self {
        Self { principal, ..self.clone() }
    }

    /// Sets the name of the operation.
    #[must_use]
    pub fn with_operation(&self, operation: ShortText) -> Self {
        Self { operation, ..self.clone() }
    }
}

/// The outcome of a claim. `Debug` shows only the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller owns the key and may run the operation.
    Granted {
        /// The number of the attempt: 1 for the first. From 2 on, an earlier attempt was abandoned.
        attempt: u32,
    },
    /// The operation must not run.
    Rejected(Rejection),
}

impl ClaimOutcome {
    /// Another attempt is in flight, and the store cannot read its record yet.
    pub const IN_FLIGHT: Self = Self::Rejected(Rejection::IN_FLIGHT);
}

/// What a handler notes about its work while its attempt is in flight: the input of
/// [`Store::note`](crate::Store::note). `Debug` shows only the lengths of bytes.
///
/// Each part that is set replaces what the record has, except the step, which is added to those
/// that are done.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The id of what the operation created, or is about to create.
    pub reference: Option<ShortText>,
    /// How far the operation is, in the handler's words.
    pub progress: Option<ShortText>,
    /// The encoded result of a step. Empty if the note has none.
    pub step: Bytes,
    /// The encoded input from which the operation can be resumed. Empty if the note has none.
    pub input: Bytes,
    /// Whether the operation is past its point of no return: from now on its key is held if the
    /// attempt is abandoned.
    pub hold: bool,
}

impl Note {
    /// Creates a note of a reference.
    #[must_use]
    pub fn reference(reference: ShortText) -> Self {
        Self { reference: Some(reference), ..Self::default() }
    }

    /// Creates a note of the progress.
    #[must_use]
    pub fn progress(progress: ShortText) -> Self {
        Self { progress: Some(progress), ..Self::default() }
    }

    /// Creates a note of the encoded result of a step.
    #[must_use]
    pub fn step(result: Bytes) -> Self {
        Self { step: result, ..Self::default() }
    }

    /// Creates a note of the encoded input from which the operation can be resumed.
    #[must_use]
    pub fn input(input: Bytes) -> Self {
        Self { input, ..Self::default() }
    }

    /// Creates the note of the point of no return.
    #[must_use]
    pub fn hold() -> Self {
        Self { hold: true, ..Self::default() }
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note")
            .field("reference", &self.reference)
            .field("progress", &self.progress)
            .field("step", &Length(&self.step))
            .field("input", &Length(&self.input))
            .field("hold", &self.hold)
            .finish()
    }
}

/// The outcome of a step that only the owner of a record may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The record had the caller's owner token, and the step was taken.
    Passed,
    /// The record is absent, has another owner token, or is in a state that forbids the step.
    /// Nothing was changed.
    Fenced,
}

/// The outcome of one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The caller owns the claim, and its lease starts again from now.
    Renewed,
    /// The caller does not own a claim in flight. Nothing was changed.
    Fenced,
    /// The record could not be reached in time. The caller may still own the claim, and should
    /// renew the lease again.
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

/// One lease to renew: an input of [`Store::renew`](crate::Store::renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The claim whose lease is renewed.
    pub lease: Lease,
    /// The length of the renewed lease, counted from the time of the renewal.
    pub extend: Duration,
}

impl Renewal {
    /// Creates a renewal that extends a lease to `extend` from the time of the renewal.
    #[must_use]
    pub const fn new(lease: Lease, extend: Duration) -> Self {
        Self { lease, extend }
    }
}

/// An operator's decision about a held key: the input of [`Store::resolve`](crate::Store::resolve).
/// `Debug` shows only the length of a recording.
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
    /// The key is not held, or it is owned by another attempt than the one that the operator saw.
    /// Nothing was changed.
    Conflict,
}

/// A record, and the time at which it was read. The result of
/// [`Store::look_up`](crate::Store::look_up).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The record.
    pub record: Record,
    /// The time of the read, by the store's clock.
    pub at: Timestamp,
}

impl Snapshot {
    /// Creates a snapshot of a record that was read at the time `at` of the store's clock.
    #[must_use]
    pub const fn new(record: Record, at: Timestamp) -> Self {
        Self { record, at }
    }
}

/// One page of the operations that can be resumed. The result of
/// [`Store::resumable`](crate::Store::resumable).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumablePage {
    /// The ids of their records, in order.
    pub ids: Vec<RecordId>,
    /// The id after which the next page begins. `None`: there is no other page.
    pub next: Option<RecordId>,
}

impl ResumablePage {
    /// Creates a page of ids that were searched for with this limit. It is the last one if it has
    /// fewer ids than that.
    #[must_use]
    pub fn of(ids: Vec<RecordId>, limit: u32) -> Self {
        let is_full = u32::try_from(ids.len()).is_ok_and(|length| length >= limit);
        let next = ids.last().copied().filter(|_| is_full);
        Self { ids, next }
    }
}

impl fmt::Debug for ClaimOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { attempt } => {
                f.debug_struct("Granted").field("attempt", attempt).finish()
            }
            Self::Rejected(rejection) => rejection.fmt(f),
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
