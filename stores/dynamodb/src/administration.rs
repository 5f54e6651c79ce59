//! Lists of records, and decisions of operators.

use async_trait::async_trait;

use crate::{
    DynamoDbStore,
    error::{CallFailure, NAME},
    schema, steps,
};
use idempotent_core::{
    RecordId, StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, InvalidPosition, ListedRecord, PagePosition, RecordCount,
        RecordFilter, RecordPage, Removal, Replacement, StoreFacts,
    },
    store::Administration,
};

mod count;
mod log;
mod scan;
mod watched;

fn of(operation: &'static str) -> impl Fn(CallFailure) -> StoreError {
    move |failure| failure.into_error(operation)
}

fn invalid(operation: &'static str) -> impl Fn(InvalidPosition) -> StoreError {
    move |error| StoreError::permanent(NAME, operation, error)
}

fn limited(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The watched records and the log are found by the index `held`, which follows the table within
/// a moment: a list may lack a record that has just become watched. What it shows of a record is
/// always read from the table.
#[async_trait]
impl Administration for DynamoDbStore {
    /// Reads at most 256 watched records for each page, so a page may have fewer records than
    /// `limit` although it is not the last one. Includes records that have noted an input.
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::number_and_id).transpose().map_err(invalid("list"))?;
        let page =
            watched::page(&self.engine, filter, after, limited(limit).min(watched::READ)).await;
        page.map_err(of("list"))
    }

    /// Reads `limit` items of the table for each page, including those of other stores that share
    /// the table: all pages together are billed as a read of the whole table.
    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(scan::position).transpose().map_err(invalid("scan"))?;
        scan::page(&self.engine, filter, after, limited(limit)).await.map_err(of("scan"))
    }

    /// Reads one record if the range is one id. Otherwise reads the whole table, until `limit`
    /// records are found.
    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError> {
        let found = scan::find(&self.engine, (first, last), limited(limit)).await;
        found.map_err(of("find"))
    }

    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        steps::remove(&self.engine, id, removal, audit).await.map_err(of("remove"))
    }

    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError> {
        steps::replace(&self.engine, id, replacement).await.map_err(of("replace"))
    }

    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError> {
        let appended = steps::append_history(&self.engine, id, kind).await;
        appended.map_err(of("append to the history"))
    }

    /// The number of all records is that of the items of the table, of all stores that share it, as
    /// the service has counted them in the last six hours. Reads all watched records. Of these, the
    /// ones that cannot be read are not counted.
    async fn count(&self) -> Result<RecordCount, StoreError> {
        count::count(&self.engine).await.map_err(of("count"))
    }

    /// The log is kept in the table, and never removed. Entries that cannot be read are left out.
    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        let operation = "read the audit log";
        let after =
            after.map(PagePosition::number_and_id).transpose().map_err(invalid(operation))?;
        log::page(&self.engine, after, limited(limit)).await.map_err(of(operation))
    }

    /// The sizes are those that the service has measured in the last six hours.
    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        schema::facts(&self.engine).await.map_err(of("measure"))
    }
}
