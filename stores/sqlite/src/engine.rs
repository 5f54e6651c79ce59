//! What the rooms of the store share: its connections and statements, and executing these, with
//! retries while the file is locked.

use std::{sync::Arc, time::Duration};

use sqlx::{
    SqliteConnection,
    sqlite::{SqliteQueryResult, SqliteRow},
};

use self::{
    group::Group, retry::RetryDeadline, waiting_owners::WaitingOwners,
    write_lock::WriteLockObserver,
};
use crate::{
    connect::{
        connections::{Access, Connections, return_connection},
        hooked::LimitedTime,
    },
    error::{NAME, is_busy, store_error},
    sql::{Statements, query::query},
};
use idempotent_core::{RecordId, StoreError};
use idempotent_sql::{
    PooledConnection, TableName, TimedRecord, group_commit::GroupCommitLimits, in_runtime,
    statement::Statement,
};

pub(crate) mod group;
pub(crate) mod retry;
pub(crate) mod waiting_owners;
pub(crate) mod write_lock;

/// The open file with everything that its rooms share.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) connections: Connections,
    pub(crate) statements: Arc<Statements>,
    pub(crate) group: Arc<Group>,
    pub(crate) waiting: WaitingOwners,
    /// Tracks who holds the write lock. Only useful if the write connection is the store's own.
    pub(crate) lock: Arc<WriteLockObserver>,
}

impl Engine {
    pub(crate) fn new(
        connections: Connections,
        table: TableName,
        limits: GroupCommitLimits,
    ) -> Self {
        Self {
            waiting: WaitingOwners::of(connections.file.resolved()),
            connections,
            statements: Arc::new(Statements::new(table)),
            group: Group::new(limits),
            lock: Arc::default(),
        }
    }

    pub(crate) async fn connection(
        &self,
        operation: &'static str,
        access: Access,
    ) -> Result<PooledConnection<SqliteConnection>, StoreError> {
        self.connections.get(access).await.map_err(|error| self.store_error(operation, error))
    }

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
        let deadline = RetryDeadline::on(&self.connections.writer);
        loop {
            let mut connection = self.connection(operation, Access::Write).await?;
            let done = execute_within(limit, &mut connection, statement()).await;
            if done.as_ref().is_err_and(is_busy) {
                self.lock.observe(&mut connection).await;
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
    pub(crate) async fn rows<'a>(
        &self,
        access: Access,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let deadline = RetryDeadline::on(&self.connections.writer);
        loop {
            let mut connection = self.connection(operation, access).await?;
            let rows = query(statement()).fetch_all(&mut *connection).await;
            match return_connection(connection, rows) {
                Err(error) if deadline.allows_retry(&error) => {}
                rows => return rows.map_err(|error| self.store_error(operation, error)),
            }
        }
    }

    /// Executes a statement that returns one row. Unlike `fetch_all`, which also waits for the end
    /// of the statement, this takes one message of SQLite's thread.
    pub(crate) async fn row<'a>(
        &self,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<SqliteRow, StoreError> {
        let deadline = RetryDeadline::on(&self.connections.readers);
        loop {
            let mut connection = self.connection(operation, Access::Read).await?;
            let row = query(statement()).fetch_one(&mut *connection).await;
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
        let row = self.row(operation, || self.statements.steps.read(id)).await?;
        idempotent_sql::record_from_row(&row)
            .map_err(|source| StoreError::unreadable(NAME, operation, source))
    }

    /// Reads what a claim is decided from.
    pub(crate) async fn existing(&self, id: &RecordId) -> Result<TimedRecord, StoreError> {
        let row = self.row("claim", || self.statements.steps.existing(id)).await?;
        idempotent_sql::claimed_from_row(&row)
            .map_err(|source| StoreError::unreadable(NAME, "claim", source))
    }

    pub(crate) fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
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
    query(statement).execute(&mut **connection).await
}
