//! How statements are run.

use std::{
    collections::HashSet,
    pin::pin,
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::{SqliteConnection, sqlite::SqliteRow};
use tokio::time::timeout;

use super::{
    BUSY_TIMEOUT, LOCK_TIMEOUT, NAME, SqliteStore,
    error::{is_busy, store_error},
    guarded,
    statements::Statement,
};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    protocol::{Claim, RenewOutcome, Renewal},
    record_id::RecordId,
    store::sql::{self, Connections, Lent, Read, in_runtime, sql_millis},
};

impl SqliteStore {
    /// Runs a statement that writes; returns how many rows it has changed.
    ///
    /// `execute` runs it to its end: only then is it committed. (`fetch_optional` would return the
    /// row of a `RETURNING` first, and drop the error if the commit then failed.)
    pub(super) async fn write<'a>(
        &self,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<u64, StoreError> {
        let tries = Tries::on(&self.writer);
        loop {
            let mut connection = self.writer.get().await.map_err(|error| self.failed(operation, error))?;
            let done = statement().execute(&mut *connection).await;
            if done.as_ref().is_err_and(is_busy) {
                guarded::look(&mut connection, &self.lock).await;
            }
            match given_back(connection, done) {
                Err(error) if tries.again(&error) => {}
                done => {
                    return done.map(|done| done.rows_affected()).map_err(|error| self.failed(operation, error));
                }
            }
        }
    }

    /// Runs a statement that returns rows.
    async fn rows<'a>(
        &self,
        on: &Connections<SqliteConnection>,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let tries = Tries::on(on);
        loop {
            let mut connection = on.get().await.map_err(|error| self.failed(operation, error))?;
            let rows = statement().fetch_all(&mut *connection).await;
            match given_back(connection, rows) {
                Err(error) if tries.again(&error) => {}
                rows => return rows.map_err(|error| self.failed(operation, error)),
            }
        }
    }

    pub(super) async fn read(&self, operation: &'static str, id: &RecordId) -> Result<Read, StoreError> {
        let rows = self.rows(&self.readers, operation, || self.statements.read(id)).await?;
        let row = rows.first().ok_or_else(|| self.failed(operation, sqlx::Error::RowNotFound))?;
        sql::read(row).map_err(|source| StoreError::unreadable(NAME, operation, source))
    }

    /// Refuses a file that cannot be read, or not written. It looks for a record that is not there,
    /// and removes it.
    pub(super) async fn check_file(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "check";
        let lease = Lease { id: RecordId::from_bytes([0; 32]), owner: OwnerToken::from_bytes([0; 16]) };
        self.read(OPERATION, &lease.id).await?;
        let mut connection = self.writer.get().await.map_err(|error| self.failed(OPERATION, error))?;
        let released = self.statements.release(&lease).execute(&mut *connection).await;
        match given_back(connection, released) {
            // A file that another connection writes can be written: SQLite looks at that before it
            // waits for the lock.
            Err(error) if !is_busy(&error) => Err(self.failed(OPERATION, error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
    }

    pub(super) async fn claim_absent(&self, id: &RecordId, claim: &Claim) -> Result<bool, StoreError> {
        Ok(self.write("claim", || self.statements.claim(id, claim)).await? == 1)
    }

    pub(super) async fn take_over(&self, id: &RecordId, claim: &Claim, seen: u32) -> Result<bool, StoreError> {
        Ok(self.write("claim", || self.statements.take_over(id, claim, seen)).await? == 1)
    }

    pub(super) async fn hold(&self, id: &RecordId, claim: &Claim, seen: &OwnerToken) -> Result<bool, StoreError> {
        Ok(self.write("claim", || self.statements.hold(id, claim, seen)).await? == 1)
    }

    pub(super) async fn shorten(&self, operation: &'static str, seen: &Lease) -> Result<bool, StoreError> {
        Ok(self.write(operation, || self.statements.shorten(seen)).await? == 1)
    }

    pub(super) async fn renew_leases(
        &self,
        operation: &'static str,
        leases: &[Renewal],
    ) -> Result<Vec<RenewOutcome>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        in_runtime().map_err(|error| self.failed(operation, error))?;
        let renewals = renewals(leases);
        let mut rows = pin!(self.rows(&self.writer, operation, || self.statements.renew(&renewals)));
        let rows = match timeout(BUSY_TIMEOUT, &mut rows).await {
            Ok(rows) => rows,
            Err(_) => {
                let longest = leases.iter().map(|renewal| renewal.extend).max().unwrap_or_default();
                let waiting = self.waiting.enter(longest).await;
                let rows = rows.await;
                if rows.is_ok() {
                    waiting.done();
                }
                rows
            }
        }?;
        let renewed = rows.iter().map(sql::lease).collect::<Result<HashSet<_>, _>>();
        let renewed = renewed.map_err(|source| StoreError::unreadable(NAME, operation, source))?;
        let passed = |renewal: &Renewal| renewed.contains(&renewal.lease);
        Ok(leases
            .iter()
            .map(|renewal| if passed(renewal) { RenewOutcome::Renewed } else { RenewOutcome::Fenced })
            .collect())
    }
}

/// Longer waits are cut to this, so that no clock overflows.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// For how long a statement is run again while other connections have the lock.
pub(super) struct Tries(Instant);

impl Tries {
    /// A shared connection has a busy timeout of the application's, and gets one try.
    pub(super) fn on(connections: &Connections<SqliteConnection>) -> Self {
        Self::within(if connections.is_own() { LOCK_TIMEOUT } else { Duration::ZERO })
    }

    pub(super) fn within(limit: Duration) -> Self {
        Self(Instant::now() + limit.min(LONGEST_WAIT))
    }

    /// Whether what failed so is to be tried again.
    pub(super) fn again(&self, error: &sqlx::Error) -> bool {
        is_busy(error) && Instant::now() < self.0
    }
}

/// Gives a connection back whose statement has ended.
pub(super) fn given_back<T>(
    connection: Lent<SqliteConnection>,
    ended: Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    match &ended {
        // What made the statement fail may be a state of the connection.
        Err(error) if !is_busy(error) => connection.close(),
        Ok(_) | Err(_) => connection.give_back(),
    }
    ended
}

pub(super) fn renewals(leases: &[Renewal]) -> String {
    let renewal = |renewal: &Renewal| {
        let [id, owner] = [renewal.lease.id.as_bytes().as_slice(), renewal.lease.owner.as_bytes()].map(hex);
        json!([id, owner, sql_millis(renewal.extend)])
    };
    serde_json::Value::Array(leases.iter().map(renewal).collect()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
