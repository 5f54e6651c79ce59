//! The record that a store keeps for one key.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    clock::Timestamp, fingerprint::Fingerprint, lease::OwnerToken, policy::Abandoned,
    recording::Length,
};

/// The record of one key: a row, an entry or a value of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The fingerprint of the first request.
    pub fingerprint: Fingerprint,
    /// The attempt that owns or owned the claim.
    pub owner: OwnerToken,
    /// The number of attempts so far. It is information only and fences nothing.
    pub attempt: u32,
    /// What happens to the key when the attempt is abandoned.
    pub abandoned: Abandoned,
    /// The length of the lease, as claimed or last renewed.
    pub lease: Duration,
    /// When the lease expires unless it is renewed; [`Timestamp::EPOCH`] once the attempt was
    /// abandoned.
    pub lease_until: Timestamp,
    /// When the key was first claimed.
    pub first_seen: Timestamp,
    /// When the record expires. The first claim sets it; only a completion after that time moves
    /// it.
    pub expires_at: Timestamp,
    /// The state of the operation.
    pub state: RecordState,
}

/// The state of an operation. A key without a record is *absent*. `Debug` shows the length of a
/// recording.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordState {
    /// An attempt is in flight, or was when its process died.
    InFlight,
    /// An attempt was abandoned and its outcome is unknown. Only its own completion or an operator
    /// ends this state.
    Held,
    /// The operation is complete. Contains the encoded [`Recording`](crate::Recording).
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
    /// Creates the record of a first attempt in flight whose lease has expired and may be taken
    /// over.
    ///
    /// A store that reads a record back from its database sets the other fields by assignment:
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
        }
    }

    /// Returns whether the lease has expired at `now`.
    #[must_use]
    pub fn lease_expired(&self, now: Timestamp) -> bool {
        self.lease_until <= now
    }

    /// Returns the rest of the lease at `now`: never more than its length, even if the store's
    /// clock was set back.
    #[must_use]
    pub fn lease_left(&self, now: Timestamp) -> Duration {
        self.lease_until.duration_since(now).min(self.lease)
    }

    /// Returns the record with a lease that starts at `now`, if it is in flight and its lease would
    /// last longer than its length.
    ///
    /// That happens only after the store's clock was set back. An owner that is alive renews its
    /// lease within its length, and an owner that died must not keep the key until the clock has
    /// caught up.
    #[must_use]
    pub fn with_shortened_lease(&self, now: Timestamp) -> Option<Self> {
        let lease_until = now.after(self.lease);
        let outlasts = self.state == RecordState::InFlight && self.lease_until > lease_until;
        outlasts.then(|| Self { lease_until, ..self.clone() })
    }

    /// Returns whether the record counts as absent at `now`: it is past its ttl and neither in
    /// flight nor held.
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

    /// Returns whether the outcome of the operation is unknown at `now`: the record is held, or its
    /// lease has expired under [`Abandoned::Hold`] and no claim has noticed yet.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        match self.state {
            RecordState::Held => true,
            RecordState::InFlight => self.lease_expired(now) && self.abandoned == Abandoned::Hold,
            RecordState::Completed(_) => false,
        }
    }
}
