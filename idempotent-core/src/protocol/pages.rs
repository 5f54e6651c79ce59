//! Pages of records, for operators.

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;

use crate::{
    clock::{Timestamp, millis},
    lease::OwnerToken,
    record::{Record, RecordState},
    record_id::RecordId,
    scope::Principal,
    short_text::ShortText,
};

/// Where a page of a list begins. Its content means something only to the store that returned it.
/// `Display` writes a text that a caller can keep, such as in a URL, and [`FromStr`] reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PagePosition(ShortText);

impl PagePosition {
    /// Creates the position after a record.
    #[must_use]
    pub fn after_id(id: &RecordId) -> Self {
        Self(ShortText::truncated(&id.to_string()))
    }

    /// Creates the position after the record `id`, in a list that is ordered by a number, such as a
    /// time, and then by the ids.
    #[must_use]
    pub fn after_number_and_id(number: u64, id: &RecordId) -> Self {
        Self(ShortText::truncated(&format!("{number}-{id}")))
    }

    /// Creates the position after an entry with this number.
    #[must_use]
    pub fn after_number(number: u64) -> Self {
        Self(ShortText::truncated(&number.to_string()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads what [`after_id`](Self::after_id) has written.
    ///
    /// # Errors
    /// Fails if this is a position in another list.
    pub fn id(&self) -> Result<RecordId, InvalidPosition> {
        self.0.parse().map_err(|_| InvalidPosition)
    }

    /// Reads what [`after_number_and_id`](Self::after_number_and_id) has written.
    ///
    /// # Errors
    /// Fails if this is a position in another list.
    pub fn number_and_id(&self) -> Result<(u64, RecordId), InvalidPosition> {
        let (number, id) = self.0.split_once('-').ok_or(InvalidPosition)?;
        let number = number.parse().map_err(|_| InvalidPosition)?;
        Ok((number, id.parse().map_err(|_| InvalidPosition)?))
    }

    /// Reads what [`after_number`](Self::after_number) has written.
    ///
    /// # Errors
    /// Fails if this is a position in another list.
    pub fn number(&self) -> Result<u64, InvalidPosition> {
        self.0.parse().map_err(|_| InvalidPosition)
    }
}

impl fmt::Display for PagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PagePosition {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let text = ShortText::new(text).ok().filter(|_| is_plain && !text.is_empty());
        text.map(Self).ok_or(InvalidPosition)
    }
}

/// The error of a text that is not a position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the position is not one that an earlier page of this list has returned")]
pub struct InvalidPosition;

/// The states by which records are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListedState {
    /// An attempt is in flight, or can be taken over by the next request.
    InFlight,
    /// The outcome is unknown, also if the lease has expired under `hold` and no request has found
    /// that yet.
    Held,
    /// The operation is completed.
    Completed,
}

/// Selects the records of a list. A record has to meet every condition that is set; the default
/// selects all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordFilter {
    /// Only records in this state.
    pub state: Option<ListedState>,
    /// Only records of the operation with this name.
    pub operation: Option<ShortText>,
    /// Only records of one of these principals. If empty, also records without a principal.
    pub principals: Vec<Principal>,
    /// Only records with this reference.
    pub reference: Option<ShortText>,
    /// Only records that were first claimed at least this long ago, by the store's clock. Fractions
    /// of a millisecond are ignored.
    pub older_than: Option<Duration>,
}

impl RecordFilter {
    /// Creates a filter for records in this state.
    #[must_use]
    pub fn of_state(state: ListedState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Returns whether the filter selects this record at `now`.
    #[must_use]
    pub fn matches(&self, record: &Record, now: Timestamp) -> bool {
        let is_state = |state: &ListedState| match (state, &record.state) {
            (ListedState::Completed, RecordState::Completed(_)) => true,
            (ListedState::Held, RecordState::InFlight | RecordState::Held) => record.is_held(now),
            (ListedState::InFlight, RecordState::InFlight | RecordState::Held) => {
                !record.is_held(now)
            }
            _ => false,
        };
        self.state.as_ref().is_none_or(is_state)
            && self.operation.as_ref().is_none_or(|operation| *operation == record.operation)
            && self
                .reference
                .as_ref()
                .is_none_or(|text| record.notes.reference.as_ref() == Some(text))
            && !self.is_too_young(record.first_seen, now)
            && (self.principals.is_empty()
                || record.principal.is_some_and(|principal| self.principals.contains(&principal)))
    }

    /// Returns whether a record that was first claimed then is too young for the filter at `now`.
    /// In a list that is ordered by the first claims, so are all that follow.
    #[must_use]
    pub fn is_too_young(&self, first_seen: Timestamp, now: Timestamp) -> bool {
        let age = now.duration_since(first_seen);
        self.older_than.is_some_and(|than| millis(age) < millis(than))
    }
}

/// A record of a list. Its recording, steps and input are empty: [look it
/// up](crate::Store::look_up) to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedRecord {
    /// The id of the record.
    pub id: RecordId,
    /// The record without its recording, steps and input.
    pub record: Record,
}

impl ListedRecord {
    /// Creates an entry of a list from a record, whose recording, steps and input are dropped.
    #[must_use]
    pub fn new(id: RecordId, mut record: Record) -> Self {
        if let RecordState::Completed(recording) = &mut record.state {
            *recording = Bytes::new();
        }
        (record.notes.steps, record.notes.input) = (Bytes::new(), Bytes::new());
        Self { id, record }
    }
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordPage {
    /// The records, in the order of the list.
    pub records: Vec<ListedRecord>,
    /// The records in this part of the list that the store cannot read, such as damaged ones, and
    /// that the filter may select. They are not among `records`, and not limited in number. A
    /// [lookup](crate::Store::look_up) of one fails with the cause.
    pub unreadable: Vec<RecordId>,
    /// When they were read, by the store's clock.
    pub at: Timestamp,
    /// Where the next page begins. `None` on the last page. Any other page may have fewer records
    /// than the limit, or none.
    pub next: Option<PagePosition>,
}

impl RecordPage {
    /// Creates a page of records that were read at this time, all of which can be read.
    #[must_use]
    pub const fn new(
        records: Vec<ListedRecord>,
        at: Timestamp,
        next: Option<PagePosition>,
    ) -> Self {
        Self { records, unreadable: Vec::new(), at, next }
    }
}

/// How many records there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordCount {
    /// All records, including expired ones that are not purged yet. An estimate if counting them
    /// would read the whole store.
    pub records: u64,
    /// Whether `records` is exact.
    pub is_exact: bool,
    /// The records that are held.
    pub held: u64,
    /// The [watched](crate::store::Administration::watched) records that are in flight.
    pub in_flight: u64,
    /// When the oldest held record was first claimed, by the store's clock.
    pub oldest_held: Option<Timestamp>,
    /// When they were counted, by the store's clock.
    pub at: Timestamp,
}

impl RecordCount {
    /// Creates the count of a store without records, to add to.
    #[must_use]
    pub const fn none(at: Timestamp) -> Self {
        Self { records: 0, is_exact: false, held: 0, in_flight: 0, oldest_held: None, at }
    }
}

/// The removal of a record by an operator: the input of
/// [`Administration::remove`](crate::store::Administration::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// The owner token of the record that the operator saw.
    pub seen: OwnerToken,
    /// Whether the record is removed even if it is held or in flight. If false, such a record
    /// stays, unless it has expired.
    pub live: bool,
}

impl Removal {
    /// Creates the removal of a completed record that was seen with this owner.
    #[must_use]
    pub const fn of_completed(seen: OwnerToken) -> Self {
        Self { seen, live: false }
    }

    /// Creates the removal of a record in any state that was seen with this owner. The next request
    /// runs the operation again. An attempt that is still running finds no record when it ends; if
    /// no other attempt has claimed the key, its runtime claims the key again and stores the
    /// outcome.
    #[must_use]
    pub const fn of_any(seen: OwnerToken) -> Self {
        Self { seen, live: true }
    }
}

/// Bytes of a record that can be replaced.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The recording of a completed record.
    pub recording: Bytes,
    /// The encoded results of its steps.
    pub steps: Bytes,
    /// Its encoded input.
    pub input: Bytes,
}

impl Contents {
    /// Returns the bytes of a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let recording = match &record.state {
            RecordState::Completed(recording) => recording.clone(),
            RecordState::InFlight | RecordState::Held => Bytes::new(),
        };
        let (steps, input) = (record.notes.steps.clone(), record.notes.input.clone());
        Self { recording, steps, input }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("recording", &crate::recording::Length(&self.recording))
            .field("steps", &crate::recording::Length(&self.steps))
            .field("input", &crate::recording::Length(&self.input))
            .finish()
    }
}

/// A replacement of bytes of a record: the input of
/// [`Administration::replace`](crate::store::Administration::replace).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replacement {
    /// The owner token of the record that the caller saw.
    pub seen: OwnerToken,
    /// The bytes that the caller saw. A part that is empty is neither compared nor replaced.
    pub was: Contents,
    /// What they become.
    pub becomes: Contents,
}

impl Replacement {
    /// Creates a replacement of the bytes of a record that was seen with this owner.
    #[must_use]
    pub const fn new(seen: OwnerToken, was: Contents, becomes: Contents) -> Self {
        Self { seen, was, becomes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read() {
        let id = RecordId::from_bytes([0xab; 32]);
        let position = PagePosition::after_id(&id);
        assert_eq!(position.to_string().parse(), Ok(position.clone()));
        assert_eq!(position.id(), Ok(id));
        assert_eq!(position.number_and_id(), Err(InvalidPosition));
        let position = PagePosition::after_number_and_id(7, &id);
        assert_eq!(position.to_string().parse(), Ok(position.clone()));
        assert_eq!(position.number_and_id(), Ok((7, id)));
        assert_eq!(position.id(), Err(InvalidPosition));
        let position = PagePosition::after_number(7);
        assert_eq!(position.to_string().parse(), Ok(position.clone()));
        assert_eq!(position.number(), Ok(7));
        for wrong in ["", "a b", "'", &"a".repeat(256)] {
            assert_eq!(wrong.parse::<PagePosition>(), Err(InvalidPosition), "{wrong}");
        }
    }
}
