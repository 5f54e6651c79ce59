//! What people and programs are shown of records: once for the command line, a JSON API and pages.
//!
//! The views are plain data. Their JSON has names in snake case, times in UTC as RFC 3339 writes
//! them, with milliseconds, durations in milliseconds (`…_ms`), and ids whole, so that they can be
//! used again. New members may be added; those that exist keep their names and meanings.
//!
//! No view contains an owner token, a recording, a step or an input. [`SeenAttempt`] says which
//! attempt was shown, so that a decision about a view that is out of date is a conflict.
//!
//! [`explain`] tells the story of one key in English.
//!
//! ```
//! use idempotent_core::{
//!     Fingerprint, OwnerToken, Record, RecordId, clock::Timestamp, report::RecordView,
//! };
//!
//! let now = Timestamp::from_millis(1_764_244_981_250);
//! # let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
//! # let owner = OwnerToken::from_bytes([1; 16]);
//! let record = Record::new(fingerprint, owner, now, now);
//! let view = RecordView::new(&RecordId::from_bytes([0xab; 32]), &record, now);
//! let json = serde_json::to_value(&view)?;
//! assert_eq!(json["id"], "ab".repeat(32));
//! assert_eq!(json["first_seen"], "2025-11-27T12:03:01.250Z");
//! # Ok::<_, serde_json::Error>(())
//! ```

mod audit;
mod count;
mod facts;
mod record;
mod seen;
mod story;
mod time;

pub use audit::{AuditPageView, AuditView};
pub use count::CountView;
pub use facts::{FindingView, SizeView, StoreFactsView};
pub use record::{EventView, LeaseView, RecordPageView, RecordView, ShownState, kind_name};
pub use seen::{InvalidSeenAttempt, SeenAttempt};
pub use story::{Story, StoryEvent, explain};
pub use time::{InvalidDuration, ShownDuration, Time};

use std::fmt::Display;

use serde::Serializer;

/// Serializes a value as `Display` writes it.
fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes values as `Display` writes them.
fn as_texts<S: Serializer>(values: &[impl Display], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// Serializes a value as `Display` writes it, or nothing.
fn as_optional_text<S: Serializer>(
    value: &Option<impl Display>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
