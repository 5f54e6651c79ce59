//! Executing statements, with retries while the file is locked.

use std::{collections::HashSet, time::Duration};

use serde_json::json;
use sqlx::{
    SqliteConnection,
    sqlite::{SqliteQueryResult, SqliteRow},
};

use crate::{
    connect::connections::{Access, return_connection},
    engine::retry::RetryDeadline,
    error::{is_busy, store_error},
    sql::statement::Statement,
    store::NAME,
    store::SqliteStore,
    transaction::guarded::{self, LimitedTime},
};
use idempotent_core::{
    Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{Claim, RenewOutcome, Renewal, ResumablePage},
};
use idempotent_sql::{PooledConnection, TimedRecord, in_runtime, sql_millis};

pub(crate) mod retry;
pub(crate) mod waiting_owners;
pub(crate) mod write_lock;

impl SqliteStore {
    /// Executes a statement that writes; returns the number of rows that it changed.
    ///
    /// `execute` runs the statement to its end, and only then is it committed. `fetch_optional`
    /// would return the row of a `RETURNING` first and lose the error of a failing commit.
    pub(crate) async fn write<'a>(
        &self,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<u64, StoreError> {
        self.write_within(None, operation, statement).await
    }

    /// The same with a time limit for the statement, on the store's own connection.
    pub(crate) async fn write_within<'a>(
        &self,
        limit: Option<Duration>,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<u64, StoreError> {
        let deadline = RetryDeadline::on(&self.writer);
        loop {
            let mut connection = self
                .connection(Access::Write)
                .await
                .map_err(|error| self.store_error(operation, error))?;
            let done = execute_within(limit, &mut connection, statement()).await;
            if done.as_ref().is_err_and(is_busy) {
                guarded::observe_lock(&mut connection, &self.lock).await;
            }
            match return_connection(connection, done) {
                Err(error) if deadline.allows_retry(&error) => {}
                done => {
                    return done
                        .map(|done| done.rows_affected())
                        .map_err(|error| self.store_error(operation, error));
                }
            }
        }
    }

    /// Executes a statement that returns rows.
    async fn rows<'a>(
        &self,
        access: Access,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let deadline = RetryDeadline::on(&self.writer);
        loop {
            let mut connection = self
                .connection(access)
                .await
                .map_err(|error| self.store_error(operation, error))?;
            let rows = statement().fetch_all(&mut *connection).await;
            match return_connection(connection, rows) {
                Err(error) if deadline.allows_retry(&error) => {}
                rows => return rows.map_err(|error| self.store_error(operation, error)),
            }
        }
    }

    /// Executes a statement that returns one row. Unlike `fetch_all`, which also waits for the end
    /// of the statement, this takes one message of SQLite's thread.
    async fn row<'a>(
        &self,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<SqliteRow, StoreError> {
        let deadline = RetryDeadline::on(&self.readers);
        loop {
            let mut connection = self
                .connection(Access::Read)
                .await
                .map_err(|error| self.store_error(operation, error))?;
            let row = statement().fetch_one(&mut *connection).await;
            match return_connection(connection, row) {
                Err(error) if deadline.allows_retry(&error) => {}
                row => return row.map_err(|error| self.store_error(operation, error)),
            }
        }
    }

    pub(crate) async fn read(
        &self,
        operation: &'static str,
        id: &RecordId,
    ) -> Result<TimedRecord, StoreError> {
        let row = self.row(operation, || self.statements.read(id)).await?;
        idempotent_sql::record_from_row(&row)
            .map_err(|source| StoreError::unreadable(NAME, operation, source))
    }

    /// Reads what a claim is decided from.
    pub(crate) async fn existing(&self, id: &RecordId) -> Result<TimedRecord, StoreError> {
        let row = self.row("claim", || self.statements.existing(id)).await?;
        idempotent_sql::claimed_from_row(&row)
            .map_err(|source| StoreError::unreadable(NAME, "claim", source))
    }

    pub(crate) async fn resumable_page(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        const OPERATION: &str = "find resumable";
        let statement = || self.statements.resumable(operation, after, limit);
        let rows = self.rows(Access::Read, OPERATION, statement).await?;
        let ids = rows.iter().map(idempotent_sql::id_from_row).collect::<Result<_, _>>();
        let ids = ids.map_err(|source| StoreError::unreadable(NAME, OPERATION, source))?;
        Ok(ResumablePage::of(ids, limit))
    }

    /// Refuses a file that cannot be read or written, by reading and releasing a record that does
    /// not exist.
    pub(crate) async fn check_file(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "check";
        let lease =
            Lease { id: RecordId::from_bytes([0; 32]), owner: OwnerToken::from_bytes([0; 16]) };
        self.read(OPERATION, &lease.id).await?;
        let mut connection = self
            .connection(Access::Write)
            .await
            .map_err(|error| self.store_error(OPERATION, error))?;
        let released = self.statements.release(&lease).execute(&mut *connection).await;
        match return_connection(connection, released) {
            // SQLite checks whether the file is writable before it waits for the lock, so a busy
            // file is writable.
            Err(error) if !is_busy(&error) => Err(self.store_error(OPERATION, error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
    }

    pub(crate) async fn take_over(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: u32,
    ) -> Result<bool, StoreError> {
        Ok(self.write("claim", || self.statements.take_over(id, claim, seen)).await? == 1)
    }

    pub(crate) async fn hold(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: &OwnerToken,
    ) -> Result<bool, StoreError> {
        Ok(self.write("claim", || self.statements.hold(id, claim, seen)).await? == 1)
    }

    pub(crate) async fn shorten(
        &self,
        operation: &'static str,
        seen: &Lease,
    ) -> Result<bool, StoreError> {
        Ok(self.write(operation, || self.statements.shorten(seen)).await? == 1)
    }

    /// Executes a write of the owner of a lease, which precedes takeovers if it has to wait. The
    /// owner sends it again within `resent` if it fails.
    pub(crate) async fn as_owner<T>(
        &self,
        operation: &'static str,
        resent: Duration,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        in_runtime().map_err(|error| self.store_error(operation, error))?;
        self.waiting.precede(resent, write).await
    }

    pub(crate) async fn renew_leases(
        &self,
        operation: &'static str,
        leases: &[Renewal],
    ) -> Result<Vec<RenewOutcome>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let renewals = renewals(leases);
        // The renewer sends it again after a sixth of a lease.
        let longest = leases.iter().map(|renewal| renewal.extend).max().unwrap_or_default();
        let rows = self.rows(Access::Write, operation, || self.statements.renew(&renewals));
        let rows = self.as_owner(operation, longest / 6, rows).await?;
        let renewed =
            rows.iter().map(idempotent_sql::lease_from_row).collect::<Result<HashSet<_>, _>>();
        let renewed = renewed.map_err(|source| StoreError::unreadable(NAME, operation, source))?;
        let passed = |renewal: &Renewal| renewed.contains(&renewal.lease);
        Ok(leases
            .iter()
            .map(
                |renewal| {
                    if passed(renewal) { RenewOutcome::Renewed } else { RenewOutcome::Fenced }
                },
            )
            .collect())
    }
}

/// Executes a statement that writes; one that exceeds the limit fails as interrupted.
async fn execute_within(
    limit: Option<Duration>,
    connection: &mut PooledConnection<SqliteConnection>,
    statement: Statement<'_>,
) -> Result<SqliteQueryResult, sqlx::Error> {
    let _limited = match limit {
        Some(limit) => Some(LimitedTime::begin(connection, limit).await?),
        None => None,
    };
    statement.execute(&mut **connection).await
}

pub(crate) fn renewals(leases: &[Renewal]) -> String {
    let renewal = |renewal: &Renewal| {
        let [id, owner] =
            [renewal.lease.id.as_bytes().as_slice(), renewal.lease.owner.as_bytes()].map(hex);
        json!([id, owner, sql_millis(renewal.extend)])
    };
    serde_json::Value::Array(leases.iter().map(renewal).collect()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
