//! Lists of records, and decisions of operators.

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;

use crate::{
    claim::records::change_logged,
    engine::{Engine, Resend},
    error::NAME,
    server::io_thread::on_io_thread,
    sql::positional::Positional,
};
use idempotent_core::{
    Lease, RecordId, StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, InvalidPosition, ListedRecord, PagePosition, RecordCount,
        RecordFilter, RecordPage, Removal, Replacement, StoreFacts,
    },
    store::Administration,
};
use idempotent_sql::{
    lists::{PageRequest, audit_page, count_from_row, found},
    statement::Statement,
    steps::Steps,
};

mod facts;

const AUDIT: &str = "read the audit log";

/// Executes one of the steps that only read, and decodes its rows.
async fn read<'a, T>(
    engine: &'a Engine,
    operation: &'static str,
    step: impl FnOnce(&'a Steps<Positional>) -> Statement<'a, Positional>,
    decode: impl FnOnce(&[MySqlRow]) -> Result<T, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<T, StoreError> {
    let rows = engine.rows(operation, step(&engine.statements.steps)).await?;
    decode(&rows).map_err(|source| StoreError::unreadable(NAME, operation, source))
}

fn invalid(operation: &'static str) -> impl Fn(InvalidPosition) -> StoreError {
    move |error| StoreError::permanent(NAME, operation, error)
}

#[async_trait]
impl Administration for Engine {
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::number_and_id).transpose().map_err(invalid("list"))?;
        let request = PageRequest { filter, limit };
        let step = |steps| Steps::watched(steps, after, request.count());
        let decode = |rows: &[MySqlRow]| request.watched(rows);
        on_io_thread("list", read(self, "list", step, decode)).await
    }

    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::id).transpose().map_err(invalid("scan"))?;
        let request = PageRequest { filter, limit };
        let step = |steps| Steps::scan(steps, filter, after, request.count());
        let decode = |rows: &[MySqlRow]| request.scanned(rows);
        on_io_thread("scan", read(self, "scan", step, decode)).await
    }

    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError> {
        let step = |steps| Steps::find(steps, first, last, limit);
        on_io_thread("find", read(self, "find", step, |rows| found(rows))).await
    }

    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let seen = Lease { id: *id, owner: removal.seen };
        let removed = async {
            let change = self.statements.steps.remove(&seen, removal);
            change_logged(self, "remove", &seen, change, audit).await
        };
        on_io_thread("remove", removed).await
    }

    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError> {
        let seen = Lease { id: *id, owner: replacement.seen };
        let replaced = async {
            let statement = self.statements.steps.replace(&seen, replacement);
            self.change("replace", statement, Resend::UnlessLost).await
        };
        on_io_thread("replace", replaced).await
    }

    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError> {
        let appended = async {
            let statement = self.statements.steps.append_history(id, kind);
            self.change("append to the history", statement, Resend::UnlessLost).await
        };
        on_io_thread("append to the history", appended).await.map(drop)
    }

    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        on_io_thread("measure", read(self, "measure", Steps::measure, facts::facts_from_rows)).await
    }

    async fn count(&self) -> Result<RecordCount, StoreError> {
        let decode = |rows: &[MySqlRow]| {
            rows.first().map_or_else(|| Err(sqlx::Error::RowNotFound.into()), count_from_row)
        };
        on_io_thread("count", read(self, "count", Steps::count, decode)).await
    }

    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        let before = after.map(PagePosition::number).transpose().map_err(invalid(AUDIT))?;
        let step = |steps| Steps::audit(steps, before, i64::from(limit) + 1);
        let decode = |rows: &[MySqlRow]| audit_page(rows, limit);
        on_io_thread(AUDIT, read(self, AUDIT, step, decode)).await
    }
}
