//! The outcome of a request whose handler does not run.

use std::time::Duration;

use bytes::Bytes;

use crate::{error::StoreError, protocol::ClaimOutcome, record_id::RecordId, recording::Recording};

/// Why a handler does not run, or why the response of an attempt does not count.
///
/// Exhaustive: every verdict has its own response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operation is complete. Contains its response.
    Completed(Recording),
    /// Another attempt is in flight.
    InFlight {
        /// The rest of its lease.
        lease_left: Duration,
    },
    /// An attempt was abandoned. Its outcome is unknown until an operator resolves the key.
    Held {
        /// Whether this claim found the lease expired, and thereby put the key on hold.
        newly: bool,
    },
    /// The key was first used with another request.
    Mismatch,
    /// The operation is complete, but its recording cannot be read. It is never run again.
    Unreadable,
}

impl Verdict {
    /// The verdict of a claim that was not granted.
    pub(super) fn of_claim(id: &RecordId, outcome: ClaimOutcome) -> Self {
        match outcome {
            ClaimOutcome::Completed(recording) => Self::of_recording(id, &recording),
            ClaimOutcome::InFlight { lease_left } => Self::InFlight { lease_left },
            ClaimOutcome::Held { newly } => {
                if newly {
                    tracing::warn!(
                        %id,
                        "the lease of an operation expired and its outcome is unknown; its key is \
                         held until it is resolved"
                    );
                }
                Self::Held { newly }
            }
            ClaimOutcome::Mismatch { .. } => Self::Mismatch,
            // Callers handle this outcome first; a client that gets it may try again.
            ClaimOutcome::Granted { .. } => Self::InFlight { lease_left: Duration::ZERO },
        }
    }

    pub(super) fn of_recording(id: &RecordId, recording: &Bytes) -> Self {
        match Recording::decode(recording) {
            Ok(recording) => Self::Completed(recording),
            Err(error) => {
                tracing::error!(
                    %id, %error, "a recording cannot be read; its operation is not run again"
                );
                Self::Unreadable
            }
        }
    }

    /// The verdict for the client of a fenced attempt whose successor could not be read.
    pub(super) fn of_failed_read(error: &StoreError) -> Self {
        if error.is_unreadable() {
            Self::Unreadable
        } else {
            Self::InFlight { lease_left: Duration::ZERO }
        }
    }
}
