//! The outcome of a request whose handler does not run.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    error::StoreError, protocol::ClaimOutcome, record_id::RecordId, recording::EncodedRecording,
    short_text::ShortText,
};

/// The reason why a handler does not run, or why the response of its attempt is not sent.
///
/// Exhaustive: each verdict needs its own response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operation is complete. Contains its recorded outcome, to be replayed.
    Completed(EncodedRecording),
    /// Another attempt is in flight.
    InFlight {
        /// The remaining time of its lease. Zero if the time is unknown.
        lease_left: Duration,
        /// The reference that the operation has set, if the store could read it.
        reference: Option<ShortText>,
    },
    /// An attempt was abandoned. Its outcome is unknown until an operator resolves the key.
    Held {
        /// Whether this claim found that the lease had expired, and thereby changed the key to
        /// held.
        newly: bool,
        /// The reference that the operation has set, if the store could read it.
        reference: Option<ShortText>,
    },
    /// The key was first used for a different request.
    Mismatch,
    /// The record of the key cannot be read. The operation may have been done, so it does not run
    /// again.
    Unreadable,
    /// The handler ran, but the key no longer has the record of its attempt: the store has lost the
    /// record, or its ttl has passed. Only a fenced attempt gets this verdict. Whatever it did is
    /// not recorded.
    Lost {
        /// Whether the key now belongs to a different request. Otherwise the key is free, and the
        /// same request runs as a new operation.
        reused: bool,
    },
}

impl Verdict {
    /// Another attempt is in flight, about which nothing else is known.
    pub(super) const IN_FLIGHT: Self =
        Self::InFlight { lease_left: Duration::ZERO, reference: None };

    /// The verdict of a claim that was not granted.
    pub(super) fn of_claim(id: &RecordId, outcome: ClaimOutcome) -> Self {
        match outcome {
            ClaimOutcome::Completed(recording) => Self::of_recording(id, &recording),
            ClaimOutcome::InFlight { lease_left, reference } => {
                Self::InFlight { lease_left, reference }
            }
            ClaimOutcome::Held { newly, reference } => {
                if newly {
                    tracing::warn!(
                        id = %id.short(),
                        "the lease of an operation expired and its outcome is unknown; its key is \
                         held until it is resolved"
                    );
                }
                Self::Held { newly, reference }
            }
            ClaimOutcome::Mismatch { .. } => Self::Mismatch,
            // Callers handle this outcome before. If one does not, the client may send the request
            // again.
            ClaimOutcome::Granted { .. } => Self::IN_FLIGHT,
        }
    }

    pub(super) fn of_recording(id: &RecordId, recording: &Bytes) -> Self {
        match EncodedRecording::verify(recording.clone()) {
            Ok(recording) => Self::Completed(recording),
            Err(error) => {
                tracing::error!(
                    id = %id.short(), %error,
                    "a recording cannot be read; its operation is not run again"
                );
                Self::Unreadable
            }
        }
    }

    /// The verdict for the client of a fenced attempt whose successor could not be read.
    pub(super) fn of_failed_read(error: &StoreError) -> Self {
        if error.is_unreadable() { Self::Unreadable } else { Self::IN_FLIGHT }
    }
}
