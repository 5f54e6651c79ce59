//! Views of records.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{SeenAttempt, Time, as_optional_text, as_text, as_texts};
use crate::{
    clock::{Timestamp, millis},
    history::{Entry, History, Kind},
    policy::Abandoned,
    protocol::{PagePosition, RecordPage},
    record::{Record, RecordState},
    record_id::RecordId,
    scope::Principal,
    short_text::ShortText,
    transition::OPERATOR,
};

/// The state of an operation, as it is at the time of a view: unlike that of the
/// [record](RecordState), it depends on that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ShownState {
    /// An attempt is in flight, and its lease runs.
    InFlight,
    /// The attempt ended without an outcome, or its lease has expired. The next request runs the
    /// operation again.
    Abandoned,
    /// The outcome is unknown, also if the lease has expired under `hold` and no request has found
    /// that yet. Nothing runs until the key is resolved.
    Held,
    /// The operation is completed, and requests get its recording.
    Completed,
    /// The time of the record is over: it counts as absent, and is removed by a purge.
    Expired,
}

impl ShownState {
    /// All states.
    pub const ALL: &[Self] =
        &[Self::InFlight, Self::Abandoned, Self::Held, Self::Completed, Self::Expired];

    /// The state of a record at `now`.
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Self {
        if record.is_expired(now) {
            return Self::Expired;
        }
        match record.state {
            RecordState::Completed(_) => Self::Completed,
            RecordState::InFlight | RecordState::Held if record.is_held(now) => Self::Held,
            RecordState::InFlight | RecordState::Held if record.lease_expired(now) => {
                Self::Abandoned
            }
            RecordState::InFlight | RecordState::Held => Self::InFlight,
        }
    }

    /// Returns why a key in this state cannot be resolved; `None` if it is held, so that it can.
    #[must_use]
    pub const fn why_not_resolvable(self) -> Option<&'static str> {
        match self {
            Self::Held => None,
            Self::InFlight => Some(
                "the key is not held: an attempt is in flight. If it ends without an outcome, the \
                 key is held or the next request runs the operation again",
            ),
            Self::Abandoned => {
                Some("the key is not held: the next request runs the operation again")
            }
            Self::Completed => Some(
                "the key is not held: the operation is completed. A completed record can be \
                 forgotten",
            ),
            Self::Expired => Some("the key is not held: its record has expired"),
        }
    }

    /// Returns the state in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in flight",
            Self::Abandoned => "abandoned",
            Self::Held => "held",
            Self::Completed => "completed",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for ShownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is shown of a record. It has neither the owner token nor the recording, the steps and the
/// input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecordView {
    /// The whole id.
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    /// The name of the operation. Empty if the claim had none.
    #[serde(serialize_with = "as_text")]
    pub operation: ShortText,
    /// The state at the time of the view.
    pub state: ShownState,
    /// The number of attempts so far.
    pub attempt: u32,
    /// What happens to the key if the attempt is abandoned: `retry` or `hold`.
    #[serde(serialize_with = "rule")]
    pub on_abandon: Abandoned,
    /// The lease, while the state in the store is *in flight*.
    pub lease: Option<LeaseView>,
    /// The reference that the handler has noted.
    #[serde(serialize_with = "as_optional_text")]
    pub reference: Option<ShortText>,
    /// The progress that the handler has noted.
    #[serde(serialize_with = "as_optional_text")]
    pub progress: Option<ShortText>,
    /// The digest of the principal, as the record has it.
    #[serde(serialize_with = "as_optional_text")]
    pub principal: Option<Principal>,
    /// When the key was first claimed.
    pub first_seen: Time,
    /// How long ago that was.
    pub age_ms: u64,
    /// When the operation was completed.
    pub completed_at: Option<Time>,
    /// When the record expires. `None` for one that is held.
    pub expires_at: Option<Time>,
    /// The status of the recorded response.
    pub status: Option<u16>,
    /// Whether an operator has completed the operation.
    pub completed_by_operator: bool,
    /// The attempt that is shown, to be sent back with a decision.
    pub seen: SeenAttempt,
    /// What has happened, the oldest first.
    pub history: Vec<EventView>,
    /// Whether the history has lost its oldest entries.
    pub history_is_cut: bool,
}

/// A lease, as it is at the time of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseView {
    /// Its length, from the claim or the last renewal.
    pub length_ms: u64,
    /// When it expires unless it is renewed. `None` if the attempt was abandoned.
    pub until: Option<Time>,
    /// Whether it has expired.
    pub has_expired: bool,
}

/// An entry of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EventView {
    /// What has happened: see [`kind_name`].
    #[serde(serialize_with = "kind")]
    pub kind: Kind,
    /// When it happened.
    pub at: Time,
}

impl RecordView {
    /// The view of a record at `now`.
    #[must_use]
    pub fn new(id: &RecordId, record: &Record, now: Timestamp) -> Self {
        let state = ShownState::of(record, now);
        let expires_at = (state != ShownState::Held).then(|| record.expires_at.into());
        Self {
            id: *id,
            operation: record.operation.clone(),
            state,
            attempt: record.attempt,
            on_abandon: record.abandoned,
            lease: lease(record, now),
            reference: record.notes.reference.clone(),
            progress: record.notes.progress.clone(),
            principal: record.principal,
            first_seen: record.first_seen.into(),
            age_ms: millis(now.duration_since(record.first_seen)),
            completed_at: record.completed_at.map(Time::from),
            expires_at,
            status: record.status,
            completed_by_operator: is_of_operator(record),
            seen: SeenAttempt::of(id, record),
            history: record.history.entries().map(EventView::from).collect(),
            history_is_cut: is_cut(&record.history),
        }
    }
}

/// Whether an operator has completed the operation.
pub(super) fn is_of_operator(record: &Record) -> bool {
    matches!(record.state, RecordState::Completed(_)) && record.owner == OPERATOR
}

/// Whether a history has lost its oldest entries: a whole one begins with the first claim.
pub(super) fn is_cut(history: &History) -> bool {
    let first = history.entries().next().map(|entry| entry.kind);
    history.entries().count() == History::MAX_ENTRIES && first != Some(Kind::Claimed)
}

fn lease(record: &Record, now: Timestamp) -> Option<LeaseView> {
    match record.state {
        RecordState::InFlight => Some(LeaseView {
            length_ms: millis(record.lease),
            until: (record.lease_until != Timestamp::EPOCH).then(|| record.lease_until.into()),
            has_expired: record.lease_expired(now),
        }),
        RecordState::Held | RecordState::Completed(_) => None,
    }
}

impl From<Entry> for EventView {
    fn from(entry: Entry) -> Self {
        Self { kind: entry.kind, at: entry.at.into() }
    }
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecordPageView {
    /// When they were read, by the store's clock.
    pub at: Time,
    /// The records, in the order of the list.
    pub records: Vec<RecordView>,
    /// The whole ids of records that cannot be read, so that it is not known whether they belong to
    /// the list.
    #[serde(serialize_with = "as_texts")]
    pub unreadable: Vec<RecordId>,
    /// Where the next page begins. `None`: there is no other page.
    #[serde(serialize_with = "as_optional_text")]
    pub next: Option<PagePosition>,
}

impl From<&RecordPage> for RecordPageView {
    fn from(page: &RecordPage) -> Self {
        let view = |listed: &_| {
            let crate::protocol::ListedRecord { id, record } = listed;
            RecordView::new(id, record, page.at)
        };
        let records = page.records.iter().map(view).collect();
        let unreadable = page.unreadable.clone();
        Self { at: page.at.into(), records, unreadable, next: page.next.clone() }
    }
}

/// Returns the name of a kind in JSON, such as `taken_over`.
#[must_use]
pub const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Claimed => "claimed",
        Kind::TakenOver => "taken_over",
        Kind::Abandoned => "abandoned",
        Kind::Held => "held",
        Kind::Completed => "completed",
        Kind::Resolved => "resolved",
        Kind::RenewalLost => "renewal_lost",
        Kind::Fenced => "fenced",
        Kind::Deferred => "deferred",
    }
}

fn kind<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind_name(*kind))
}

fn rule<S: Serializer>(rule: &Abandoned, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match rule {
        Abandoned::Retry => "retry",
        Abandoned::Hold => "hold",
    })
}

#[cfg(test)]
mod tests;
