//! How statements are run.

use std::collections::HashSet;

use serde_json::json;
use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{NAME, SqliteStore, error::store_error, statements::Statement};
use crate::{
    error::StoreError,
    lease::OwnerToken,
    record::RecordId,
    store::{
        Claim, RenewOutcome, Renewal,
        sql::{self, Connections, Lent, Read, sql_millis},
    },
};

impl SqliteStore {
    /// Runs a statement that writes, and says how many rows it changed.
    ///
    /// `execute` runs it to its end: only then is it committed. (`fetch_optional` would give the row of a `RETURNING` first, and
    /// drop the error if the commit then failed.)
    pub(super) async fn write(&self, operation: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut connection = self.writer.get().await.map_err(|error| self.failed(operation, error))?;
        let done = statement.execute(&mut *connection).await;
        given_back(connection, done).map(|done| done.rows_affected()).map_err(|error| self.failed(operation, error))
    }

    /// Runs a statement that gives rows.
    async fn rows(
        &self,
        on: &Connections<SqliteConnection>,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut connection = on.get().await.map_err(|error| self.failed(operation, error))?;
        let rows = statement.fetch_all(&mut *connection).await;
        given_back(connection, rows).map_err(|error| self.failed(operation, error))
    }

    pub(super) async fn read(&self, operation: &'static str, id: &RecordId) -> Result<Read, StoreError> {
        let rows = self.rows(&self.readers, operation, self.statements.read(id)).await?;
        let row = rows.first().ok_or_else(|| self.failed(operation, sqlx::Error::RowNotFound))?;
        sql::read(row).map_err(|source| StoreError::permanent(NAME, operation, source))
    }

    pub(super) fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
    }

    pub(super) async fn claim_absent(&self, id: &RecordId, claim: &Claim) -> Result<bool, StoreError> {
        Ok(self.write("claim", self.statements.claim(id, claim)).await? == 1)
    }

    pub(super) async fn take_over(&self, id: &RecordId, claim: &Claim, seen: &OwnerToken) -> Result<bool, StoreError> {
        Ok(self.write("claim", self.statements.take_over(id, claim, seen)).await? == 1)
    }

    pub(super) async fn hold(&self, id: &RecordId, claim: &Claim, seen: &OwnerToken) -> Result<bool, StoreError> {
        Ok(self.write("claim", self.statements.hold(id, claim, seen)).await? == 1)
    }

    pub(super) async fn renew_leases(
        &self,
        operation: &'static str,
        leases: &[Renewal],
    ) -> Result<Vec<RenewOutcome>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.rows(&self.writer, operation, self.statements.renew(renewals(leases))).await?;
        let renewed = rows.iter().map(sql::lease).collect::<Result<HashSet<_>, _>>();
        let renewed = renewed.map_err(|source| StoreError::permanent(NAME, operation, source))?;
        let passed = |renewal: &Renewal| renewed.contains(&renewal.lease);
        Ok(leases
            .iter()
            .map(|renewal| if passed(renewal) { RenewOutcome::Renewed } else { RenewOutcome::Fenced })
            .collect())
    }
}

/// Gives a connection back whose statement has ended.
pub(super) fn given_back<T>(
    connection: Lent<SqliteConnection>,
    ended: Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    match &ended {
        Err(error) if error.as_database_error().is_none() => connection.close(),
        Ok(_) | Err(_) => connection.give_back(),
    }
    ended
}

fn renewals(leases: &[Renewal]) -> String {
    let renewal = |renewal: &Renewal| {
        let [id, owner] = [renewal.lease.id.as_bytes().as_slice(), renewal.lease.owner.as_bytes()].map(hex);
        json!([id, owner, sql_millis(renewal.extend)])
    };
    serde_json::Value::Array(leases.iter().map(renewal).collect()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
