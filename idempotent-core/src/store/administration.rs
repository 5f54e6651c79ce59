//! The contract of a store whose records operators can list and decide about.

use async_trait::async_trait;

use crate::{
    error::StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, ListedRecord, PagePosition, RecordCount, RecordFilter, RecordPage,
        Removal, Replacement,
    },
    record_id::RecordId,
};

/// What operators need of a store: lists, counts, removals, and the log of what they did.
///
/// None of it is part of a request, so a call may cost more than those of [`Store`](crate::Store),
/// but no record costs more for it: see [`watched`](Self::watched).
///
/// Lists include records that have expired and are not purged yet, because their bytes are still
/// there. A call with a [position](PagePosition) that this list has not returned fails with a
/// permanent error.
///
/// Errors and cancel safety are those of [`Store`](crate::Store).
#[async_trait]
pub trait Administration: Send + Sync {
    /// Returns a page of the records that may need somebody: in the order of their first claim,
    /// those that are held, those in flight that would be held if they were abandoned, and those in
    /// flight whose lease was renewed. The time that a page takes depends on their number, not on
    /// the number of all records.
    ///
    /// A store may also return other records in flight, but none that is completed.
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError>;

    /// Returns a page of all records, in an order that the store chooses. It reads the whole store,
    /// a part for each page, so most pages may be empty.
    ///
    /// A record that is in the store from the first page to the last one is on at least one of
    /// them, and may be on several.
    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError>;

    /// Returns up to `limit` records whose ids are in this range, both ends included; see
    /// [`RecordId::range`].
    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError>;

    /// Removes a record, and adds the entry to the log in the same atomic step. Returns whether it
    /// was removed; otherwise nothing is changed, and nothing is added.
    /// [`transition::remove`](crate::transition::remove) defines the outcomes.
    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError>;

    /// Replaces bytes of a record. Returns whether they were replaced.
    /// [`transition::replace`](crate::transition::replace) defines the outcomes.
    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError>;

    /// Adds an entry to the history of a record, if there is one.
    async fn tell(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError>;

    /// Counts the records.
    async fn count(&self) -> Result<RecordCount, StoreError>;

    /// Returns a page of the log of operators' decisions, the latest first.
    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError>;
}
