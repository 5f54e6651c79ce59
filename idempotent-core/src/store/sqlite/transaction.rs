//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqlSafeStr, SqlStr, Sqlite, SqliteConnection};
use tokio::time::timeout;

use super::{
    BUSY_TIMEOUT, NAME, SqliteStore,
    error::{is_missing_savepoint, store_error},
    guard::NotWhole,
    guarded::Guarded,
    lock::{Patience, WriteLock},
    statements::{Statement, Statements},
    steps::renewals,
    waiting::WaitingRenewals,
};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Renewal},
    record::RecordState,
    record_id::RecordId,
    store::{
        Transaction, TransactionClaim, Transactions,
        sql::{self, Contended, Lent, fence},
    },
    transition::{self, Change},
};

struct SqliteTransaction {
    open: Guarded,
    statements: Arc<Statements>,
    /// Whether a handler had the connection and nothing has proved since that the transaction is
    /// still open.
    unproved: bool,
}

impl SqliteStore {
    async fn open(
        &self,
        operation: &'static str,
        statements: &SqlStr,
        patience: Option<Patience>,
    ) -> Result<Option<SqliteTransaction>, StoreError> {
        let open = self.open_guarded(statements, patience).await.map_err(|error| self.failed(operation, error))?;
        Ok(open.map(|open| SqliteTransaction { open, statements: self.statements.clone(), unproved: false }))
    }

    async fn open_guarded(
        &self,
        statements: &SqlStr,
        patience: Option<Patience>,
    ) -> Result<Option<Guarded>, sqlx::Error> {
        let connection = match patience {
            Some(patience) => self.connection_within(patience).await?,
            None => Some(self.writer.get().await?),
        };
        let Some(connection) = connection else { return Ok(None) };
        // What one connection of a pool has seen of the lock says nothing to another.
        let lock = if self.writer.is_own() { self.lock.clone() } else { Arc::new(WriteLock::default()) };
        Guarded::begin(connection, lock, statements, patience).await
    }

    /// The connection that writes; `None` where one transaction outlasts `patience` meanwhile.
    async fn connection_within(&self, patience: Patience) -> Result<Option<Lent<SqliteConnection>>, sqlx::Error> {
        let mut connection = pin!(self.writer.get_within(patience.longest()));
        loop {
            match timeout(BUSY_TIMEOUT, &mut connection).await {
                Ok(connection) => return connection.map(Some),
                Err(_) if self.lock.outlasts(patience) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    /// What a claim results in if it has to write nothing.
    async fn told(&self, id: &RecordId, claim: &Claim) -> Result<Option<ClaimOutcome>, StoreError> {
        let (record, now) = self.read("claim", id).await?;
        let now = self.waiting.time_of(record.as_ref(), now).await;
        let (change, outcome) = transition::claim(record.as_ref(), claim, now);
        Ok(matches!(change, Change::Keep).then_some(outcome))
    }
}

#[async_trait]
impl Transactions for SqliteStore {
    fn database(&self) -> TypeId {
        TypeId::of::<Sqlite>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let begun = self.open("begin", &self.statements.within.begin, None).await?;
        Ok(Box::new(begun.ok_or_else(|| StoreError::transient(NAME, "begin", Contended))?))
    }

    /// The file has one writer. Where another connection has the lock and commits nothing for
    /// `patience`, but at least 100 ms, its transaction may be one with this key, and the key is
    /// reported as in flight. So it is where one transaction of this store has the connection that
    /// writes for `patience`, but at least 4 seconds. Writers that take turns are waited for up to
    /// 5 seconds.
    async fn claim(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<TransactionClaim, StoreError> {
        let patience = Patience::from_now(patience);
        // A replay takes no write lock; what is to be written is read again under it.
        if let Some(outcome) = self.told(id, claim).await? {
            return Ok(TransactionClaim::Rejected(outcome));
        }
        let begin = "BEGIN IMMEDIATE".into_sql_str();
        let Some(mut transaction) = self.open("claim", &begin, Some(patience)).await? else {
            // Several transactions may have ended meanwhile, and the key's may be one of them.
            let told = self.told(id, claim).await?;
            return Ok(TransactionClaim::Rejected(
                told.unwrap_or(ClaimOutcome::InFlight { lease_left: Duration::ZERO }),
            ));
        };
        match transaction.claim(id, claim, &self.waiting).await {
            Ok(ClaimOutcome::Granted { attempt }) => {
                Ok(TransactionClaim::Granted { attempt, transaction: Box::new(transaction) })
            }
            Ok(outcome) => {
                Box::new(transaction).commit().await?;
                Ok(TransactionClaim::Rejected(outcome))
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
    async fn claim(
        &mut self,
        id: &RecordId,
        claim: &Claim,
        waiting: &WaitingRenewals,
    ) -> Result<ClaimOutcome, StoreError> {
        let statements = self.statements.clone();
        // With the savepoints in one call to SQLite's thread. Where nothing is claimed, others are
        // set within them, or none are needed.
        if self.write("claim", statements.claim_within(id, claim)).await? != 0 {
            return Ok(ClaimOutcome::Granted { attempt: 1 });
        }
        let row = statements.read(id).fetch_one(self.open.own()).await;
        let row = row.map_err(|error| self.failed("claim", error))?;
        let (record, now) = sql::read(&row).map_err(|source| StoreError::unreadable(NAME, "claim", source))?;
        let now = waiting.time_of(record.as_ref(), now).await;
        let (change, outcome) = transition::claim(record.as_ref(), claim, now);
        let Change::Put(new) = change else { return Ok(outcome) };
        let changed = match (&new.state, record.as_ref()) {
            (RecordState::Held, Some(seen)) => self.write("claim", statements.hold(id, claim, &seen.owner)).await?,
            (RecordState::InFlight, Some(seen)) if new.owner != claim.owner => {
                self.write("claim", statements.shorten(&Lease { id: *id, owner: seen.owner })).await?
            }
            // Sent again: its acknowledgement was lost.
            (RecordState::InFlight, Some(seen)) if seen.owner == claim.owner => {
                let renewal = Renewal { lease: Lease { id: *id, owner: seen.owner }, extend: claim.lease };
                self.write("claim", statements.renew(&renewals(&[renewal]))).await?
            }
            (RecordState::InFlight, Some(seen)) => {
                self.write("claim", statements.take_over(id, claim, seen.attempt)).await?
            }
            (_, None) | (RecordState::Completed(_), _) => 0,
        };
        if changed != 1 {
            return Err(StoreError::transient(NAME, "claim", Contended));
        }
        self.execute("claim", &statements.within.savepoints).await?;
        Ok(outcome)
    }

    async fn write(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let done = statement.execute(self.open.own()).await;
        done.map(|done| done.rows_affected()).map_err(|error| self.failed(operation, error))
    }

    async fn execute(&mut self, operation: &'static str, statement: &SqlStr) -> Result<(), StoreError> {
        let done = sqlx::raw_sql(statement.clone()).execute(self.open.own()).await;
        done.map(drop).map_err(|error| self.failed(operation, error))
    }

    /// Takes the transaction back from the handler, by statements that prove that it is still open,
    /// write, and read the settings. If it is not, they fail before they write.
    async fn take_back(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        self.open.check().await.map_err(|not_whole| StoreError::permanent(NAME, operation, not_whole))?;
        let rows = statement.fetch_all(self.open.own()).await.map_err(|error| {
            let lost = is_missing_savepoint(&error);
            if lost { StoreError::permanent(NAME, operation, NotWhole::Lost) } else { self.failed(operation, error) }
        })?;
        self.unproved = false;
        let row = rows.first().ok_or_else(|| self.failed(operation, sqlx::Error::RowNotFound))?;
        self.open.inspect(row).map_err(|error| self.failed(operation, error))
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
        self.unproved = true;
        self.open.lend()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let statements = self.statements.clone();
        self.open.check().await.map_err(|not_whole| StoreError::permanent(NAME, "undo", not_whole))?;
        self.execute("undo", &statements.within.undo).await
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let statement = statements.complete_within(lease).bind(recording.as_ref());
        self.take_back("complete", statement).await.map(|rows| fence(rows != 0))
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        self.take_back("abandon", statements.abandon_within(lease, policy)).await.map(|rows| fence(rows != 0))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        // Nothing was recorded in it: a handler without a key had it.
        if self.unproved {
            let prove = sqlx::query(self.statements.within.prove.clone());
            self.take_back("commit", prove).await?;
        }
        let Self { open, statements, .. } = *self;
        open.commit().await.map_err(|error| store_error("commit", &statements.table, error))
    }

    /// Nothing but the store commits on the connection, so the transaction has ended once the connection is closed, too.
    async fn roll_back(self: Box<Self>) -> bool {
        self.open.roll_back().await;
        true
    }
}
