//! What keeps an operation from running.

use std::{convert::Infallible, fmt, time::Duration};

use bytes::Bytes;

use crate::{
    fingerprint::Fingerprint,
    recording::{EncodedRecording, Length},
    short_text::ShortText,
};

/// The reason why an operation does not run. `Debug` shows only the length of an encoded recording.
///
/// `R` is the recording of an operation that is complete: encoded as a store keeps it, decoded, or
/// [`Infallible`] where it cannot occur.
#[derive(Clone, PartialEq, Eq)]
pub enum Rejection<R = Bytes> {
    /// The operation is complete. Contains its recording, to be replayed.
    Completed(R),
    /// Another attempt is in flight.
    InFlight {
        /// The remaining time of its lease. Zero if the store cannot read it yet.
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
    Mismatch {
        /// The fingerprint of that request. The runtime reads from it which secret key signed it.
        /// It never leaves the process.
        recorded: Fingerprint,
    },
}

impl<R> Rejection<R> {
    /// Another attempt is in flight, about which nothing else is known.
    pub const IN_FLIGHT: Self = Self::InFlight { lease_left: Duration::ZERO, reference: None };

    /// Returns the same rejection without its recording, or fails with the recording.
    ///
    /// # Errors
    /// Fails if the operation is complete.
    pub fn without_recording<S>(self) -> Result<Rejection<S>, R> {
        Ok(match self {
            Self::Completed(recording) => return Err(recording),
            Self::InFlight { lease_left, reference } => {
                Rejection::InFlight { lease_left, reference }
            }
            Self::Held { newly, reference } => Rejection::Held { newly, reference },
            Self::Mismatch { recorded } => Rejection::Mismatch { recorded },
        })
    }

    /// Formats the rejection, and its recording by `completed`.
    fn fmt_with(
        &self,
        f: &mut fmt::Formatter<'_>,
        completed: impl FnOnce(&R, fmt::DebugTuple<'_, '_>) -> fmt::Result,
    ) -> fmt::Result {
        match self {
            Self::Completed(recording) => completed(recording, f.debug_tuple("Completed")),
            Self::InFlight { lease_left, reference } => f
                .debug_struct("InFlight")
                .field("lease_left", lease_left)
                .field("reference", reference)
                .finish(),
            Self::Held { newly, reference } => {
                f.debug_struct("Held").field("newly", newly).field("reference", reference).finish()
            }
            Self::Mismatch { recorded } => {
                f.debug_struct("Mismatch").field("recorded", recorded).finish()
            }
        }
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_with(f, |recording, mut shown| shown.field(&Length(recording)).finish())
    }
}

impl fmt::Debug for Rejection<EncodedRecording> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_with(f, |recording, mut shown| shown.field(recording).finish())
    }
}

impl fmt::Debug for Rejection<Infallible> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_with(f, |never, _| match *never {})
    }
}
