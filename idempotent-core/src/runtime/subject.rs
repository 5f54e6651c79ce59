//! What a record is about.

use crate::{record_id::RecordId, scope::Principal, short_text::ShortText};

/// What a record is about: its id, and what it shows about the operation.
///
/// A [`RecordId`] alone is a subject without a name and a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subject {
    /// The id of the record.
    pub id: RecordId,
    /// The name of the operation. Empty by default.
    pub operation: ShortText,
    /// The principal whose key it is. The record shows its digest, signed with the first of the
    /// [`fingerprint_keys`](super::RuntimeOptions::fingerprint_keys) if there are any, and a store
    /// of limited size limits the share of each principal. `None` by default.
    pub principal: Option<Principal>,
}

impl Subject {
    /// Creates the subject of a record.
    #[must_use]
    pub const fn new(id: RecordId) -> Self {
        Self { id, operation: ShortText::EMPTY, principal: None }
    }

    /// Sets the name of the operation. A record shows its first 255 bytes.
    #[must_use]
    pub fn with_operation(self, name: &str) -> Self {
        Self { operation: ShortText::truncated(name), ..self }
    }

    /// Sets the principal whose key it is.
    #[must_use]
    pub fn with_principal(self, principal: Principal) -> Self {
        Self { principal: Some(principal), ..self }
    }
}

impl From<RecordId> for Subject {
    fn from(id: RecordId) -> Self {
        Self::new(id)
    }
}
