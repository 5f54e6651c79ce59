//! What a store keeps for one key.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{clock::Timestamp, fingerprint::Fingerprint, lease::OwnerToken, policy::Abandoned, recording::Length};

/// One row, entry or value of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the first request said.
    pub fingerprint: Fingerprint,
    /// The attempt that holds or held the claim.
    pub owner: OwnerToken,
    /// How many attempts were started. For information: it is no fence.
    pub attempt: u32,
    /// What to do when the attempt is abandoned.
    pub abandoned: Abandoned,
    /// The length of the lease, as claimed or last renewed.
    pub lease: Duration,
    /// When the lease expires unless it is renewed; [`Timestamp::EPOCH`] once the attempt was abandoned.
    pub lease_until: Timestamp,
    /// When the key was first claimed.
    pub first_seen: Timestamp,
    /// When the answer stops being replayed: fixed at the first claim, and moved only by an answer that comes after it.
    pub expires_at: Timestamp,
    /// How far it got.
    pub state: RecordState,
}

/// How far an operation got. A key that no record exists for is *absent*. `Debug` shows the length of a recording.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordState {
    /// An attempt is at work, or was when it died.
    InFlight,
    /// An attempt was abandoned and its outcome is unknown; only its first owner or an operator can end it.
    Held,
    /// The answer is there, in the encoding of [`Recording`](crate::Recording).
    Completed(Bytes),
}

impl fmt::Debug for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight => f.write_str("InFlight"),
            Self::Held => f.write_str("Held"),
            Self::Completed(recording) => f.debug_tuple("Completed").field(&Length(recording)).finish(),
        }
    }
}

impl Record {
    /// Whether the claim's lease is over at `now`.
    #[must_use]
    pub fn lapsed(&self, now: Timestamp) -> bool {
        self.lease_until <= now
    }

    /// How much of the lease is left at `now`: never more than its length, even where the store's clock was set back.
    #[must_use]
    pub fn lease_left(&self, now: Timestamp) -> Duration {
        self.lease_until.since(now).min(self.lease)
    }

    /// The record with a lease that begins at `now`, if it is in flight and its lease would last longer than its length. That is
    /// possible only where the store's clock was set back: an owner that is alive renews its lease within that time, and one that is
    /// dead must not keep its key until the clock has caught up.
    #[must_use]
    pub fn shortened(&self, now: Timestamp) -> Option<Self> {
        let lease_until = now.after(self.lease);
        let outlasts = self.state == RecordState::InFlight && self.lease_until > lease_until;
        outlasts.then(|| Self { lease_until, ..self.clone() })
    }

    /// Whether the record counts as absent at `now`: past its ttl, and neither at work nor waiting to be resolved.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
            && match self.state {
                RecordState::Completed(_) => true,
                RecordState::InFlight => self.lapsed(now) && self.abandoned == Abandoned::Retry,
                RecordState::Held => false,
            }
    }

    /// Whether the outcome is unknown at `now`: held, or abandoned under [`Abandoned::Hold`] and not asked for since.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        match self.state {
            RecordState::Held => true,
            RecordState::InFlight => self.lapsed(now) && self.abandoned == Abandoned::Hold,
            RecordState::Completed(_) => false,
        }
    }
}
