//! The contract of a store whose records operators can list and decide about.

use async_trait::async_trait;

use crate::{
    error::StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, ListedRecord, PagePosition, RecordCount, RecordFilter, RecordPage,
        Removal, Replacement, StoreFacts,
    },
    record_id::RecordId,
};

/// What operators need of a store: lists of records, counts, removals, and the log of operators'
/// decisions.
///
/// Requests call only [`append_history`](Self::append_history). The other methods may take longer
/// than those of [`Store`](crate::Store), but a store must not slow down every request for them: it
/// keeps an index of the [watched](Self::watched) records only.
///
/// Scans include records that have expired and are not purged yet, because their bytes are still
/// there. The other lists may include them.
///
/// # Errors
/// As for [`Store`](crate::Store). A method that is called with a [position](PagePosition) in
/// another list fails with a permanent error. A record that cannot be read does not make a list
/// fail: its page [names](RecordPage::unreadable) it.
///
/// # Cancel safety
/// As for [`Store`](crate::Store): a call that is dropped may or may not have taken effect.
#[async_trait]
pub trait Administration: Send + Sync {
    /// Returns a page of up to `limit` of the records that may need an operator, in the order of
    /// their first claim: those that are held, those in flight that would be held if they were
    /// abandoned, and those in flight whose lease was renewed. The time that a page takes depends
    /// on the number of these records, not on that of all records. With
    /// [`older_than`](RecordFilter::older_than), the list ends at the first record that is too
    /// young.
    ///
    /// A store may also return other records in flight, but none that is completed.
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError>;

    /// Returns a page of up to `limit` of all records, in an order that the store chooses. All
    /// pages together read the whole store, each a part of it, so most pages may be empty.
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
    /// [`RecordId::range`]. If one of them cannot be read, this fails with an
    /// [unreadable](StoreError::is_unreadable) error that names it.
    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError>;

    /// Removes a record, and adds the entry to the log in the same atomic step. Returns whether it
    /// was removed; otherwise nothing is changed, and nothing is added.
    /// [`transition::remove`](crate::transition::remove) defines the outcomes.
    ///
    /// The entry is [that of the record](AuditEntry::of_record) that is removed.
    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError>;

    /// Replaces bytes of a record. Returns whether they were replaced.
    /// [`transition::replace`](crate::transition::replace) defines the outcomes.
    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError>;

    /// Appends an entry to the history of a record, if the record exists. A client may wait for it.
    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError>;

    /// Counts the records: the [watched](Self::watched) ones exactly, and all of them as exactly as
    /// is possible without reading the whole store.
    async fn count(&self) -> Result<RecordCount, StoreError>;

    /// Returns a page of up to `limit` entries of the log of operators' decisions, the latest
    /// first.
    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError>;

    /// Tells about the store: its clock, its size, and what somebody should look at.
    ///
    /// The default fails with an [unsupported](StoreError::is_unsupported) error.
    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        Err(StoreError::unsupported("store", "measure"))
    }
}
