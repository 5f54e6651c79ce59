//! The outcome of a request whose handler does not run.

use std::fmt;

use bytes::Bytes;

use crate::{
    error::StoreError, protocol::Rejection, record_id::RecordId, recording::EncodedRecording,
};

/// The reason why a handler does not run, or why the response of its attempt is not sent.
///
/// Exhaustive: each verdict needs its own response.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The claim was not granted.
    Rejected(Rejection<EncodedRecording>),
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
    pub(super) const IN_FLIGHT: Self = Self::Rejected(Rejection::IN_FLIGHT);

    /// The verdict of a claim that was not granted.
    pub(super) fn of_rejection(id: &RecordId, rejection: Rejection) -> Self {
        let rejection = match rejection.without_recording() {
            Ok(rejection) => rejection,
            Err(recording) => return Self::of_recording(id, &recording),
        };
        if matches!(rejection, Rejection::Held { newly: true, .. }) {
            tracing::warn!(
                id = %id.short(),
                "the lease of an operation expired and its outcome is unknown; its key is held \
                 until it is resolved"
            );
        }
        Self::Rejected(rejection)
    }

    pub(super) fn of_recording(id: &RecordId, recording: &Bytes) -> Self {
        match EncodedRecording::verify(recording.clone()) {
            Ok(recording) => Self::Rejected(Rejection::Completed(recording)),
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

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Unreadable => f.write_str("Unreadable"),
            Self::Lost { reused } => f.debug_struct("Lost").field("reused", reused).finish(),
        }
    }
}
