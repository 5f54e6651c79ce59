//! The record that a store keeps for one key.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    history::{History, Kind},
    lease::OwnerToken,
    policy::Abandoned,
    recording::Length,
    scope::Principal,
    short_text::ShortText,
};

/// The record that a store keeps for one key: a row, an entry or a value of its backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The fingerprint of the first request.
    pub fingerprint: Fingerprint,
    /// The owner token of the attempt that owns the claim, or that owned it last.
    pub owner: OwnerToken,
    /// The number of attempts so far. It is informational only: the owner token fences, not this
    /// number.
    pub attempt: u32,
    /// What happens to the key if the attempt is abandoned.
    pub abandoned: Abandoned,
    /// The length of the lease, from the claim or the last renewal. A whole number of milliseconds.
    pub lease: Duration,
    /// When the lease expires unless it is renewed. [`Timestamp::EPOCH`] once the attempt was
    /// abandoned.
    pub lease_until: Timestamp,
    /// When the key was first claimed.
    pub first_seen: Timestamp,
    /// When the record expires. Set by the first claim. A completion after this time sets it to one
    /// ttl after the completion; nothing else changes it.
    pub expires_at: Timestamp,
    /// The state of the operation.
    pub state: RecordState,
    /// The name of the operation, such as `POST /v1/payments`. Empty if the claim had none.
    pub operation: ShortText,
    /// The principal that claimed the key, if known.
    pub principal: Option<Principal>,
    /// When the operation was completed, by its handler or by an operator.
    pub completed_at: Option<Timestamp>,
    /// The status of the recorded response. `None` for an outcome without one, such as the result
    /// of a [job](crate::job::Job).
    pub status: Option<u16>,
    /// What the handler has noted about its work.
    pub notes: Notes,
    /// What has happened to the operation: its latest 16 events.
    pub history: History,
}

/// What a handler has noted about its work in the record, by
/// [`Store::note`](crate::Store::note). `Debug` shows only the lengths of bytes.
///
/// A completion keeps the reference and drops everything else.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notes {
    /// The id of what the operation created, or is about to create.
    pub reference: Option<ShortText>,
    /// How far the operation is, in the handler's words.
    pub progress: Option<ShortText>,
    /// The encoded results of the steps that are done, one after the other. Empty if there are
    /// none.
    pub steps: Bytes,
    /// The encoded input from which the operation can be resumed without its client. Empty if
    /// there is none.
    pub input: Bytes,
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes")
            .field("reference", &self.reference)
            .field("progress", &self.progress)
            .field("steps", &Length(&self.steps))
            .field("input", &Length(&self.input))
            .finish()
    }
}

/// The state of an operation. A key without a record is *absent*. `Debug` shows only the length of
/// a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordState {
    /// An attempt is in flight, or was in flight when its process died.
    InFlight,
    /// An attempt was abandoned, and its outcome is unknown. Only the completion of that attempt or
    /// an operator ends this state.
    Held,
    /// The operation is complete. Contains the
    /// [recording](crate::EncodedRecording) of its outcome.
    Completed(Bytes),
}

impl fmt::Debug for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight => f.write_str("InFlight"),
            Self::Held => f.write_str("Held"),
            Self::Completed(recording) => {
                f.debug_tuple("Completed").field(&Length(recording)).finish()
            }
        }
    }
}

impl Record {
    /// Creates the record of a first attempt in flight whose lease has expired, so that the key may
    /// be taken over.
    ///
    /// A store that reads a record from its database sets the other fields by assignment:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use idempotent_core::{Fingerprint, OwnerToken, Record, clock::Timestamp};
    /// # let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
    /// # let owner = OwnerToken::from_bytes([1; 16]);
    /// # let [first_seen, lease_until, expires_at] = [1, 2, 3].map(Timestamp::from_millis);
    /// let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    /// record.attempt = 2;
    /// record.lease = Duration::from_secs(30);
    /// record.lease_until = lease_until;
    /// ```
    #[must_use]
    pub const fn new(
        fingerprint: Fingerprint,
        owner: OwnerToken,
        first_seen: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            fingerprint,
            owner,
            attempt: 1,
            abandoned: Abandoned::Retry,
            lease: Duration::ZERO,
            lease_until: Timestamp::EPOCH,
            first_seen,
            expires_at,
            state: RecordState::InFlight,
            operation: ShortText::EMPTY,
            principal: None,
            completed_at: None,
            status: None,
            notes: Notes {
                reference: None,
                progress: None,
                steps: Bytes::new(),
                input: Bytes::new(),
            },
            history: History::EMPTY,
        }
    }

    /// Returns the record with one more entry in its history.
    #[must_use]
    pub(crate) fn with_entry(mut self, kind: Kind, at: Timestamp) -> Self {
        self.history = self.history.with(kind, at);
        self
    }

    /// Returns whether the lease has expired at `now`.
    #[must_use]
    pub fn lease_expired(&self, now: Timestamp) -> bool {
        self.lease_until <= now
    }

    /// Returns the remaining time of the lease at `now`. It is never more than the length of the
    /// lease, even if the store's clock was set back.
    #[must_use]
    pub fn lease_left(&self, now: Timestamp) -> Duration {
        self.lease_until.duration_since(now).min(self.lease)
    }

    /// Returns the record with a lease that starts at `now`, if the record is in flight and the
    /// remaining time of its lease exceeds the length of the lease; otherwise returns `None`.
    ///
    /// That happens only after the store's clock was set back. An owner that is alive renews its
    /// lease within its length, so the shorter lease does not harm it. The key of an owner that has
    /// died must not stay claimed until the clock has caught up.
    #[must_use]
    pub fn with_shortened_lease(&self, now: Timestamp) -> Option<Self> {
        let lease_until = now.after(self.lease);
        let outlasts = self.state == RecordState::InFlight && self.lease_until > lease_until;
        outlasts.then(|| Self { lease_until, ..self.clone() })
    }

    /// Returns whether the record counts as absent at `now`: its ttl is over, it is not held, and
    /// it is not in flight, or its lease has expired under [`Abandoned::Retry`].
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
            && match self.state {
                RecordState::Completed(_) => true,
                RecordState::InFlight => {
                    self.lease_expired(now) && self.abandoned == Abandoned::Retry
                }
                RecordState::Held => false,
            }
    }

    /// Returns whether the operation was abandoned and can be resumed at `now`: it has noted its
    /// input, its lease has expired under [`Abandoned::Retry`], and its ttl is not over.
    #[must_use]
    pub fn is_resumable(&self, now: Timestamp) -> bool {
        let abandoned = match self.state {
            RecordState::InFlight => self.abandoned == Abandoned::Retry && self.lease_expired(now),
            RecordState::Held | RecordState::Completed(_) => false,
        };
        abandoned && now < self.expires_at && !self.notes.input.is_empty()
    }

    /// Returns whether the outcome of the operation is unknown at `now`: the record is held, or its
    /// lease has expired under [`Abandoned::Hold`] and no claim has found that yet.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        match self.state {
            RecordState::Held => true,
            RecordState::InFlight => self.lease_expired(now) && self.abandoned == Abandoned::Hold,
            RecordState::Completed(_) => false,
        }
    }
}
