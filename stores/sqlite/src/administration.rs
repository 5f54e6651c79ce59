//! Lists of records, and decisions of operators.

use async_trait::async_trait;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use crate::{
    connect::connections::{Access, return_connection},
    engine::{Engine, retry::RetryDeadline},
    error::{NAME, is_busy},
    sql::query::query,
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
};

mod facts;

const AUDIT: &str = "read the audit log";

/// Changes a record and, if it was changed, adds the entry to the log of operators' decisions in
/// the same transaction. The change returns the state that the record had. Returns whether it was
/// changed.
pub(crate) async fn write_logged<'a>(
    engine: &Engine,
    operation: &'static str,
    change: impl Fn() -> Statement<'a>,
    audit: &AuditEntry,
) -> Result<bool, StoreError> {
    let deadline = RetryDeadline::on(&engine.connections.writer);
    loop {
        let mut connection = engine.connection(operation, Access::Write).await?;
        let written = change_and_log(engine, &mut connection, change(), audit).await;
        if written.as_ref().is_err_and(is_busy) {
            engine.lock.observe(&mut connection).await;
        }
        match return_connection(connection, written) {
            Err(error) if deadline.allows_retry(&error) => {}
            written => return written.map_err(|error| engine.store_error(operation, error)),
        }
    }
}

/// If a statement fails or the caller is dropped, the transaction is rolled back before the next
/// statement on the connection.
async fn change_and_log(
    engine: &Engine,
    connection: &mut SqliteConnection,
    change: Statement<'_>,
    audit: &AuditEntry,
) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let changed = query(change).fetch_all(&mut *transaction).await?;
    if let Some(record) = changed.first() {
        let log = engine.statements.log(audit, record.try_get("before")?);
        query(log).execute(&mut *transaction).await?;
    }
    transaction.commit().await.map(|()| !changed.is_empty())
}

fn invalid(operation: &'static str) -> impl Fn(InvalidPosition) -> StoreError {
    move |error| StoreError::permanent(NAME, operation, error)
}

fn unreadable(
    operation: &'static str,
) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    move |source| StoreError::unreadable(NAME, operation, source)
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
        let statement = || self.statements.steps.watched(after, request.count());
        let rows = self.rows(Access::Read, "list", statement).await?;
        request.watched(&rows).map_err(unreadable("list"))
    }

    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::id).transpose().map_err(invalid("scan"))?;
        let request = PageRequest { filter, limit };
        let statement = || self.statements.steps.scan(filter, after, request.count());
        let rows = self.rows(Access::Read, "scan", statement).await?;
        request.scanned(&rows).map_err(unreadable("scan"))
    }

    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError> {
        let statement = || self.statements.steps.find(first, last, limit);
        let rows = self.rows(Access::Read, "find", statement).await?;
        found(&rows).map_err(unreadable("find"))
    }

    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let seen = Lease { id: *id, owner: removal.seen };
        write_logged(self, "remove", || self.statements.steps.remove(&seen, removal), audit).await
    }

    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError> {
        let seen = Lease { id: *id, owner: replacement.seen };
        let statement = || self.statements.steps.replace(&seen, replacement);
        Ok(self.write("replace", statement).await? != 0)
    }

    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError> {
        self.write("append to the history", || self.statements.steps.append_history(id, kind))
            .await
            .map(drop)
    }

    async fn count(&self) -> Result<RecordCount, StoreError> {
        let row = self.row("count", || self.statements.steps.count()).await?;
        count_from_row(&row).map_err(unreadable("count"))
    }

    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        let before = after.map(PagePosition::number).transpose().map_err(invalid(AUDIT))?;
        let statement = || self.statements.steps.audit(before, i64::from(limit) + 1);
        let rows = self.rows(Access::Read, AUDIT, statement).await?;
        audit_page(&rows, limit).map_err(unreadable(AUDIT))
    }

    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        let row = self.row("measure", || self.statements.steps.measure()).await?;
        facts::facts_from_row(&row).map_err(|error| self.store_error("measure", error))
    }
}
