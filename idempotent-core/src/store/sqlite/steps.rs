//! How statements are run.

use std::collections::HashSet;

use serde_json::json;

use super::{NAME, SqliteStore, error::store_error, statements::Statement};
use crate::{
    error::StoreError,
    lease::OwnerToken,
    record::RecordId,
    store::{
        Claim, Fence, Renewal,
        sql::{self, Read, sql_millis},
    },
};

impl SqliteStore {
    /// Runs a statement that writes, and says how many rows it changed.
    ///
    /// `execute` runs it to its end: only then is it committed. (`fetch_optional` would give the row of a `RETURNING` first, and
    /// drop the error if the commit then failed.)
    pub(super) async fn write(&self, operation: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let done = statement.execute(&self.writer).await;
        done.map(|done| done.rows_affected()).map_err(|error| self.failed(operation, error))
    }

    pub(super) async fn read(&self, operation: &'static str, id: &RecordId) -> Result<Read, StoreError> {
        let row = self.statements.read(id).fetch_one(&self.readers).await;
        let row = row.map_err(|error| self.failed(operation, error))?;
        sql::read(&row).map_err(|source| StoreError::permanent(NAME, operation, source))
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
    ) -> Result<Vec<Fence>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.statements.renew(renewals(leases)).fetch_all(&self.writer).await;
        let rows = rows.map_err(|error| self.failed(operation, error))?;
        let renewed = rows.iter().map(sql::lease).collect::<Result<HashSet<_>, _>>();
        let renewed = renewed.map_err(|source| StoreError::permanent(NAME, operation, source))?;
        let passed = |renewal: &Renewal| renewed.contains(&renewal.lease);
        Ok(leases.iter().map(|renewal| if passed(renewal) { Fence::Passed } else { Fence::Fenced }).collect())
    }
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
