//! What `Debug` shows of what may have a response in it.

use std::fmt;

use super::{ClaimOutcome, Resolution};
use crate::recording::Length;

impl fmt::Debug for ClaimOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { attempt } => f.debug_struct("Granted").field("attempt", attempt).finish(),
            Self::Completed(recording) => f.debug_tuple("Completed").field(&Length(recording)).finish(),
            Self::InFlight { lease_left } => f.debug_struct("InFlight").field("lease_left", lease_left).finish(),
            Self::Held { newly } => f.debug_struct("Held").field("newly", newly).finish(),
            Self::Mismatch { recorded } => f.debug_struct("Mismatch").field("recorded", recorded).finish(),
        }
    }
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(recording) => f.debug_tuple("Complete").field(&Length(recording)).finish(),
            Self::Release => f.write_str("Release"),
        }
    }
}
