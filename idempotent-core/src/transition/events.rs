//! The events that concern a record, and their outcomes.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    history::Kind,
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{
        Claim, ClaimOutcome, Fence, Note, Removal, Replacement, Resolution, ResolveOutcome,
    },
    record::Record,
    recording::Length,
};

/// What happens to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a change is applied at once, and never collected")]
pub enum Change {
    /// The record stays as it is.
    Keep,
    /// The record is inserted or replaced.
    Put(Record),
    /// The record is removed.
    Remove,
}

/// An event that concerns a record. `Debug` shows only the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A request claims the key.
    Claim(&'a Claim),
    /// The owner renews its lease for this duration.
    Renew(OwnerToken, Duration),
    /// The owner notes something about its work.
    Note(OwnerToken, &'a Note),
    /// The owner completes the operation with this encoded recording.
    Complete(OwnerToken, &'a Bytes),
    /// The owner releases the key: nothing was done.
    Release(OwnerToken),
    /// The owner ends its attempt without an outcome, under this policy.
    Abandon(OwnerToken, Abandoned),
    /// An operator who saw this owner in the record resolves a held key.
    Resolve(OwnerToken, &'a Resolution),
    /// An operator removes the record.
    Remove(Removal),
    /// An operator replaces bytes of the record.
    Replace(&'a Replacement),
    /// The runtime appends this to the history.
    Append(Kind),
    /// The store removes expired records.
    Purge,
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(claim) => f.debug_tuple("Claim").field(claim).finish(),
            Self::Renew(owner, lease) => f.debug_tuple("Renew").field(owner).field(lease).finish(),
            Self::Note(owner, note) => f.debug_tuple("Note").field(owner).field(note).finish(),
            Self::Complete(owner, recording) => {
                f.debug_tuple("Complete").field(owner).field(&Length(recording)).finish()
            }
            Self::Release(owner) => f.debug_tuple("Release").field(owner).finish(),
            Self::Abandon(owner, policy) => {
                f.debug_tuple("Abandon").field(owner).field(policy).finish()
            }
            Self::Resolve(owner, resolution) => {
                f.debug_tuple("Resolve").field(owner).field(resolution).finish()
            }
            Self::Remove(removal) => f.debug_tuple("Remove").field(removal).finish(),
            Self::Replace(replacement) => f.debug_tuple("Replace").field(replacement).finish(),
            Self::Append(kind) => f.debug_tuple("Append").field(kind).finish(),
            Self::Purge => f.write_str("Purge"),
        }
    }
}

/// The outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The outcome of [`Event::Claim`].
    Claim(ClaimOutcome),
    /// The outcome of an event that only the owner of the record may cause.
    Fence(Fence),
    /// The outcome of [`Event::Resolve`].
    Resolve(ResolveOutcome),
    /// The outcome of [`Event::Remove`] and [`Event::Replace`]: whether the record was changed.
    Changed(bool),
    /// [`Event::Append`] has no outcome.
    Appended,
    /// The outcome of [`Event::Purge`]: whether the record was removed.
    Purge(bool),
}
