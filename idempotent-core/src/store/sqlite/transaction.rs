//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqlSafeStr, Sqlite, SqliteConnection};

use super::{
    NAME, SqliteStore,
    error::store_error,
    statements::{Statement, Statements},
};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    record::{RecordId, State},
    store::{
        Claim, ClaimOutcome, ClaimedWithin, Fence, Transaction, Transactions,
        sql::{self, Contended, NotOurs, Open, SAVEPOINT, UNDO, fence},
    },
    transition::{self, Change},
};

struct SqliteTransaction {
    open: Open<SqliteConnection>,
    statements: Arc<Statements>,
}

impl SqliteStore {
    /// Takes the write lock at once: one that is asked for after a read is refused if anybody has written in between.
    async fn open(&self, operation: &'static str) -> Result<SqliteTransaction, StoreError> {
        let connection = self.writer.get().await.map_err(|error| self.failed(operation, error))?;
        let open =
            Open::begin(connection, "BEGIN IMMEDIATE".into_sql_str(), |error| error.as_database_error().is_some())
                .await;
        let open = open.map_err(|error| self.failed(operation, error))?;
        Ok(SqliteTransaction { open, statements: self.statements.clone() })
    }
}

#[async_trait]
impl Transactions for SqliteStore {
    fn database(&self) -> TypeId {
        TypeId::of::<Sqlite>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Ok(Box::new(self.open("begin").await?))
    }

    /// The file has one writer: who waits, waits for all keys, and 5 seconds at most.
    async fn claim(&self, id: &RecordId, claim: &Claim, _: Duration) -> Result<ClaimedWithin, StoreError> {
        // A replay takes no write lock; what is to be written is read again under it.
        let (record, now) = self.read("claim", id).await?;
        if let (Change::Keep, outcome) = transition::claim(record.as_ref(), claim, now) {
            return Ok(ClaimedWithin::Told(outcome));
        }
        let mut transaction = self.open("claim").await?;
        match transaction.claim(id, claim).await {
            Ok(ClaimOutcome::Granted { attempt }) => {
                Ok(ClaimedWithin::Granted { attempt, transaction: Box::new(transaction) })
            }
            Ok(ClaimOutcome::Held) => {
                Box::new(transaction).commit().await?;
                Ok(ClaimedWithin::Told(ClaimOutcome::Held))
            }
            Ok(outcome) => {
                transaction.open.roll_back().await;
                Ok(ClaimedWithin::Told(outcome))
            }
            Err(error) => {
                transaction.open.roll_back().await;
                Err(error)
            }
        }
    }
}

impl SqliteTransaction {
    /// The write lock is ours, so that nothing moves between the read and the write.
    async fn claim(&mut self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let statements = self.statements.clone();
        // With the savepoint in one call to SQLite's thread; where nothing is claimed, it goes with the transaction, or is set anew.
        if self.write("claim", statements.claim_within(id, claim)).await? != 0 {
            return Ok(ClaimOutcome::Granted { attempt: 1 });
        }
        let row = statements.read(id).fetch_one(self.open.connection_mut()).await;
        let row = row.map_err(|error| self.failed("claim", error))?;
        let (record, now) = sql::read(&row).map_err(|source| StoreError::permanent(NAME, "claim", source))?;
        let (change, outcome) = transition::claim(record.as_ref(), claim, now);
        let Change::Put(new) = change else { return Ok(outcome) };
        let changed = match (&new.state, record.map(|record| record.owner)) {
            (State::Held, Some(seen)) => self.write("claim", statements.hold(id, claim, &seen)).await?,
            (State::InFlight, Some(seen)) => self.write("claim", statements.take_over(id, claim, &seen)).await?,
            (_, None) | (State::Completed(_), _) => 0,
        };
        if changed != 1 {
            return Err(StoreError::transient(NAME, "claim", Contended));
        }
        self.execute("claim", SAVEPOINT).await?;
        Ok(outcome)
    }

    async fn write(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let done = statement.execute(self.open.connection_mut()).await;
        done.map(|done| done.rows_affected()).map_err(|error| self.failed(operation, error))
    }

    async fn execute(&mut self, operation: &'static str, statement: &'static str) -> Result<(), StoreError> {
        let done = sqlx::raw_sql(statement).execute(self.open.connection_mut()).await;
        done.map(drop).map_err(|error| self.failed(operation, error))
    }

    fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.table, error)
    }
}

#[async_trait]
impl Transaction for SqliteTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.open.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.open.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.execute("undo", UNDO).await
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let statement = statements.complete(lease).bind(recording.as_ref());
        self.write("complete", statement).await.map(|rows| fence(rows != 0))
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        self.write("abandon", statements.abandon(lease, policy)).await.map(|rows| fence(rows != 0))
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let Self { open, statements } = *self;
        if !open.is_ours() {
            return Err(StoreError::permanent(NAME, "commit", NotOurs));
        }
        open.commit().await.map_err(|error| store_error("commit", &statements.table, error))
    }

    async fn roll_back(self: Box<Self>) {
        self.open.roll_back().await;
    }
}
