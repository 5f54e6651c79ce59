//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqlSafeStr, SqlStr, Sqlite};

use self::guarded::{GuardedTransaction, TransactionFault};
use crate::{
    connect::database_file::DatabaseFile,
    engine::{Engine, waiting_owners::WaitingOwners, write_lock::WaitLimit},
    error::{NAME, is_missing_savepoint, store_error},
    sql::{Statements, query::query},
};
use idempotent_core::{
    Abandoned, Lease, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection},
    store::{Transaction, TransactionClaim, Transactions},
    transition::{self, Change},
};
use idempotent_sql::{ClaimContention, fence, statement::Statement};

mod begin;
mod guarded;

struct SqliteTransaction {
    open: GuardedTransaction,
    statements: Arc<Statements>,
    file: Arc<DatabaseFile>,
    /// Whether a handler has used the connection since the transaction was last proved to be open.
    unverified: bool,
}

async fn open(
    engine: &Engine,
    operation: &'static str,
    statements: &SqlStr,
    wait_limit: Option<WaitLimit>,
) -> Result<Option<SqliteTransaction>, StoreError> {
    let open = begin::begin(engine, statements, wait_limit)
        .await
        .map_err(|error| engine.store_error(operation, error))?;
    Ok(open.map(|open| SqliteTransaction {
        open,
        statements: engine.statements.clone(),
        file: engine.connections.file.clone(),
        unverified: false,
    }))
}

/// Reads the record of a key, and returns why a claim is rejected that needs no write; `None` for
/// any other claim.
async fn rejection_without_write(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<Option<Rejection>, StoreError> {
    let (record, now) = engine.existing(id).await?;
    let now = engine.waiting.effective_time(record.as_ref(), now).await;
    Ok(transition::rejection_without_change(record.as_ref(), claim, now))
}

#[async_trait]
impl Transactions for Engine {
    fn database(&self) -> TypeId {
        TypeId::of::<Sqlite>()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let begun = open(self, "begin", &self.statements.in_transaction.begin, None).await?;
        Ok(Box::new(begun.ok_or_else(|| StoreError::transient(NAME, "begin", ClaimContention))?))
    }

    /// Claims a key in a transaction, which needs the file's only write lock.
    ///
    /// The key is reported as in flight if a single transaction holds the lock for `wait`,
    /// since that transaction may have claimed the same key: for at least 100 ms if it belongs to
    /// another connection, and for at least 4 seconds if it belongs to this store. If several
    /// writers take turns, the claim waits for up to 5 seconds.
    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        let wait_limit = WaitLimit::from_now(wait);
        // A replay takes no write lock; a record that has to be written is read again under the
        // lock.
        if let Some(rejection) = rejection_without_write(self, id, claim).await? {
            return Ok(TransactionClaim::Rejected(rejection));
        }
        let begin = "BEGIN IMMEDIATE".into_sql_str();
        let Some(mut transaction) = open(self, "claim", &begin, Some(wait_limit)).await? else {
            // The transaction that held the key may be one of several that have ended meanwhile.
            let rejection = rejection_without_write(self, id, claim).await?;
            return Ok(TransactionClaim::Rejected(rejection.unwrap_or(Rejection::IN_FLIGHT)));
        };
        match transaction.claim(id, claim, &self.waiting).await {
            Ok(ClaimOutcome::Granted { attempt }) => {
                Ok(TransactionClaim::Granted { attempt, transaction: Box::new(transaction) })
            }
            Ok(ClaimOutcome::Rejected(rejection)) => {
                Box::new(transaction).commit().await?;
                Ok(TransactionClaim::Rejected(rejection))
            }
            Err(error) => {
                transaction.open.roll_back().await;
                Err(error)
            }
        }
    }
}

impl SqliteTransaction {
    /// Claims under the write lock, so that nothing changes between the read and the write.
    async fn claim(
        &mut self,
        id: &RecordId,
        claim: &Claim,
        waiting: &WaitingOwners,
    ) -> Result<ClaimOutcome, StoreError> {
        let statements = self.statements.clone();
        // The savepoints are set in the same call to SQLite's thread. A claim that writes nothing
        // needs none, and a takeover sets its own.
        if self.write("claim", statements.claim_in_transaction(id, claim)).await? != 0 {
            return Ok(ClaimOutcome::Granted { attempt: 1 });
        }
        let row = query(statements.steps.existing(id)).fetch_one(self.open.own_connection()).await;
        let row = row.map_err(|error| self.store_error("claim", error))?;
        let (record, now) = idempotent_sql::claimed_from_row(&row)
            .map_err(|source| StoreError::unreadable(NAME, "claim", source))?;
        let now = waiting.effective_time(record.as_ref(), now).await;
        let (change, outcome) = transition::claim(record.as_ref(), claim, now);
        let Change::Put(new) = change else { return Ok(outcome) };
        let changed = match &record {
            Some(seen) => {
                let lease = Lease { id: *id, owner: seen.owner };
                let statement = statements.claim_seen(id, claim, (seen, &lease), &new);
                self.write("claim", statement).await?
            }
            None => 0,
        };
        if changed != 1 {
            return Err(StoreError::transient(NAME, "claim", ClaimContention));
        }
        self.execute("claim", &statements.in_transaction.savepoints).await?;
        Ok(outcome)
    }

    async fn write(
        &mut self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<u64, StoreError> {
        let done = query(statement).execute(self.open.own_connection()).await;
        done.map(|done| done.rows_affected()).map_err(|error| self.store_error(operation, error))
    }

    async fn execute(
        &mut self,
        operation: &'static str,
        statement: &SqlStr,
    ) -> Result<(), StoreError> {
        let done = sqlx::raw_sql(statement.clone()).execute(self.open.own_connection()).await;
        done.map(drop).map_err(|error| self.store_error(operation, error))
    }

    /// Takes the transaction back from the handler. The statements prove that it is still open,
    /// write, and read the settings; if it is not open, they fail before they write.
    async fn finish(
        &mut self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<u64, StoreError> {
        self.open
            .check()
            .await
            .map_err(|not_whole| StoreError::permanent(NAME, operation, not_whole))?;
        let rows =
            query(statement).fetch_all(self.open.own_connection()).await.map_err(|error| {
                let lost = is_missing_savepoint(&error);
                if lost {
                    StoreError::permanent(NAME, operation, TransactionFault::Ended)
                } else {
                    self.store_error(operation, error)
                }
            })?;
        self.unverified = false;
        let row =
            rows.first().ok_or_else(|| self.store_error(operation, sqlx::Error::RowNotFound))?;
        self.open.inspect(row).map_err(|error| self.store_error(operation, error))
    }

    fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
    }
}

#[async_trait]
impl Transaction for SqliteTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.open.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.unverified = true;
        self.open.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let statements = self.statements.clone();
        self.open
            .check()
            .await
            .map_err(|not_whole| StoreError::permanent(NAME, "undo", not_whole))?;
        self.execute("undo", &statements.in_transaction.undo).await
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let noted = self.finish("note", statements.note_in_transaction(lease, note)).await;
        noted.map(|rows| fence(rows != 0))
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let statement = statements.complete_in_transaction(lease, recording);
        self.finish("complete", statement).await.map(|rows| fence(rows != 0))
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        self.finish("abandon", statements.abandon_in_transaction(lease, policy))
            .await
            .map(|rows| fence(rows != 0))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        // A handler without a key used the transaction, so no completion has proved that it is
        // open.
        if self.unverified {
            let statements = self.statements.clone();
            let verify = Statement::new(&statements.in_transaction.verify, Vec::new());
            self.finish("commit", verify).await?;
        }
        let Self { open, statements, file, .. } = *self;
        if let Err(changed) = file.verify() {
            open.roll_back().await;
            return Err(store_error("commit", &statements.table, changed));
        }
        open.commit().await.map_err(|error| store_error("commit", &statements.table, error))
    }

    /// Only the store can commit on the connection, so the transaction has ended even if the
    /// connection was closed instead.
    async fn roll_back(self: Box<Self>) -> bool {
        self.open.roll_back().await;
        true
    }
}
