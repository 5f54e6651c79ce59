//! What the header of a value begins with, and its length.

pub(super) const VERSION: u8 = 1;
pub(super) const HEADER_LEN: usize = 114;
pub(super) const IN_FLIGHT: u8 = 1;
pub(super) const COMPLETED: u8 = 2;
pub(super) const HELD: u8 = 3;
/// Where some of its parts begin.
pub(super) const STATE_AT: usize = 1;
pub(super) const FINGERPRINT_AT: usize = 23;
pub(super) const COMPLETED_AT: usize = 91;
pub(super) const STATUS_AT: usize = 99;
pub(super) const LENGTHS_AT: usize = 101;

/// The value is not one that any version of this library writes. Its record is neither run again
/// nor replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record's value cannot be read")]
pub(crate) struct Unreadable;
