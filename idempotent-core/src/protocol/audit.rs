//! The log of operators' decisions.

use std::{fmt, str::FromStr};

use crate::{
    clock::Timestamp,
    record::{Record, RecordState},
    record_id::RecordId,
    short_text::ShortText,
};

use super::PagePosition;

/// Who decides about a record, and why. The log shows both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actor {
    /// The name of the person or the program. Empty by default.
    pub name: ShortText,
    /// The reason, in the actor's words. Empty by default.
    pub reason: ShortText,
}

impl Actor {
    /// Creates an actor. Each text is cut to its first 255 bytes, at the end of a character, and
    /// control characters are replaced with U+FFFD.
    #[must_use]
    pub fn new(name: &str, reason: &str) -> Self {
        Self { name: ShortText::truncated(name), reason: ShortText::truncated(reason) }
    }
}

/// What an operator has done to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditAction {
    /// Completed a held operation.
    Complete,
    /// Released a held key.
    Release,
    /// Removed a record.
    Forget,
    /// Removed a record because all records of its principal were to be removed.
    Erase,
}

impl AuditAction {
    /// All actions.
    pub const ALL: &[Self] = &[Self::Complete, Self::Release, Self::Forget, Self::Erase];

    /// Returns the word for a store to keep.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Forget => "forget",
            Self::Erase => "erase",
        }
    }
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AuditAction {
    type Err = AuditError;

    fn from_str(text: &str) -> Result<Self, AuditError> {
        Self::ALL.iter().find(|action| action.as_str() == text).copied().ok_or(AuditError)
    }
}

/// The state of a record before or after a decision, as `in flight`, `held`, `completed`,
/// `completed 201` (with the status of the response), or `absent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuditedState {
    /// There was no record.
    Absent,
    /// An attempt was in flight.
    InFlight,
    /// The key was held.
    Held,
    /// The operation was completed, with a response of this status if it had one.
    Completed(Option<u16>),
}

impl AuditedState {
    /// Returns the state of a record at `now`.
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Self {
        match record.state {
            RecordState::Completed(_) => Self::Completed(record.status),
            RecordState::InFlight | RecordState::Held if record.is_held(now) => Self::Held,
            RecordState::InFlight | RecordState::Held => Self::InFlight,
        }
    }
}

impl fmt::Display for AuditedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.pad("absent"),
            Self::InFlight => f.pad("in flight"),
            Self::Held => f.pad("held"),
            Self::Completed(None) => f.pad("completed"),
            Self::Completed(Some(status)) => write!(f, "completed {status}"),
        }
    }
}

impl FromStr for AuditedState {
    type Err = AuditError;

    fn from_str(text: &str) -> Result<Self, AuditError> {
        match text {
            "absent" => Ok(Self::Absent),
            "in flight" => Ok(Self::InFlight),
            "held" => Ok(Self::Held),
            "completed" => Ok(Self::Completed(None)),
            _ => {
                let status = text.strip_prefix("completed ").ok_or(AuditError)?;
                status.parse().map(|status| Self::Completed(Some(status))).map_err(|_| AuditError)
            }
        }
    }
}

/// The error of a text that is not an [`AuditAction`] or an [`AuditedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of the audit log cannot be read")]
pub struct AuditError;

/// A decision of an operator about one record. A store writes it to a log beside the records, in
/// the same atomic step as the change, so that it outlives the record.
///
/// It contains nothing that a client has sent and nothing that a handler has noted, since it stays
/// when the records of a person are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// What was done.
    pub action: AuditAction,
    /// The id of the record.
    pub id: RecordId,
    /// The name of its operation. Empty if it had none.
    pub operation: ShortText,
    /// Its state before. The store writes the one that the record has when it is changed.
    pub before: AuditedState,
    /// Its state afterwards.
    pub after: AuditedState,
    /// Who did it, and why.
    pub actor: Actor,
}

impl AuditEntry {
    /// Creates an entry about a record that was in the state `before` and is absent afterwards. Set
    /// the other fields by assignment.
    #[must_use]
    pub const fn new(
        action: AuditAction,
        id: RecordId,
        before: AuditedState,
        actor: Actor,
    ) -> Self {
        Self { action, id, operation: ShortText::EMPTY, before, after: AuditedState::Absent, actor }
    }

    /// Returns the entry with the state that the record has at `now`, when it is changed. It may
    /// differ from what the operator saw: its attempt may have ended since then.
    #[must_use]
    pub fn of_record(&self, record: &Record, now: Timestamp) -> Self {
        Self { before: AuditedState::of(record, now), ..self.clone() }
    }

    /// Creates an entry about a record that was read at `now` and is absent afterwards.
    #[must_use]
    pub fn about(
        action: AuditAction,
        id: RecordId,
        record: &Record,
        now: Timestamp,
        actor: Actor,
    ) -> Self {
        Self {
            operation: record.operation.clone(),
            ..Self::new(action, id, AuditedState::of(record, now), actor)
        }
    }
}

/// An entry of the audit log, and when it was written, by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audited {
    /// The entry.
    pub entry: AuditEntry,
    /// When it was written.
    pub at: Timestamp,
}

impl Audited {
    /// Creates an entry that was written at this time.
    #[must_use]
    pub const fn new(entry: AuditEntry, at: Timestamp) -> Self {
        Self { entry, at }
    }
}

/// A page of the audit log, the latest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<Audited>,
    /// Where the next page begins. `None` on the last page.
    pub next: Option<PagePosition>,
}

impl AuditPage {
    /// Creates a page.
    #[must_use]
    pub const fn new(entries: Vec<Audited>, next: Option<PagePosition>) -> Self {
        Self { entries, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_states_are_written_and_read() {
        for action in AuditAction::ALL {
            assert_eq!(action.to_string().parse(), Ok(*action));
        }
        for state in [
            AuditedState::Absent,
            AuditedState::InFlight,
            AuditedState::Held,
            AuditedState::Completed(None),
            AuditedState::Completed(Some(201)),
        ] {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert_eq!("completed x".parse::<AuditedState>(), Err(AuditError));
        assert_eq!("drop".parse::<AuditAction>(), Err(AuditError));
    }
}
