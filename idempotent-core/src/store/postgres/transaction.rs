//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{PgConnection, Postgres, SqlSafeStr};
use tokio::time::timeout;

use super::{
    NAME, PostgresStore,
    connect::Way,
    driver::{driven, entered},
    error::{Kind, TooSlow, kind, store_error},
    run::LIMIT,
    statement::Statement,
    statements::Statements,
};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    record::RecordId,
    store::{
        Claim, ClaimOutcome, ClaimedWithin, Fence, Transaction, Transactions, commit_what,
        sql::{Lent, NotOurs, Open, UNDO, fence},
    },
};

mod own;
mod shared;

/// The least time that a claim waits for another transaction. Zero would be without end.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);
/// A longer answer is a parameter: in the text of a statement it would have twice its length.
const MOST_IN_TEXT: usize = 16 * 1024;

struct PgTransaction {
    /// `None` once it has been ended.
    open: Option<Open<PgConnection>>,
    statements: Arc<Statements>,
    way: Way,
    own_sessions: bool,
}

impl PostgresStore {
    fn opened(&self, open: Open<PgConnection>) -> PgTransaction {
        let (way, own_sessions) = (self.pools.way, self.pools.own_sessions);
        PgTransaction { open: Some(open), statements: self.statements.clone(), way, own_sessions }
    }

    async fn begin_transaction(&self) -> Result<PgTransaction, sqlx::Error> {
        let begin = |connection: Lent<PgConnection>| async {
            if connection.is_own() {
                self.begin_by_message(connection, |_| String::new()).await.map(|(open, _)| open)
            } else {
                Open::begin(connection, "BEGIN".into_sql_str(), |_| false).await
            }
        };
        Ok(self.opened(self.begun(LIMIT, begin).await?))
    }

    /// Begins, a second time where the first connection turns out to be broken: nothing that was begun is left then, and the server may
    /// have been started anew since the connection was used.
    async fn begun<T, F>(&self, limit: Duration, begin: impl Fn(Lent<PgConnection>) -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let begin = |connection| async { timeout(limit, begin(connection)).await.unwrap_or_else(|_| Err(too_slow())) };
        match begin(self.pools.transactions.get().await?).await {
            Err(error) if kind(&error) == Kind::Lost => begin(self.pools.transactions.live().await?).await,
            begun => begun,
        }
    }
}

fn too_slow() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(TooSlow))
}

/// `lock_not_available`: the wait was too long.
const LOCKED: &str = "55P03";
/// `unique_violation`: there is a record.
const TAKEN: &str = "23505";
/// `division_by_zero`: the record is no longer the one that was seen.
const CHANGED: &str = "22012";

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|code| code.into_owned())
}

fn in_flight() -> ClaimedWithin {
    ClaimedWithin::Told(ClaimOutcome::InFlight { lease_left: Duration::ZERO })
}

#[async_trait]
impl Transactions for PostgresStore {
    fn database(&self) -> TypeId {
        TypeId::of::<Postgres>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let begun = async { self.begin_transaction().await.map_err(|error| self.failed("begin", error)) };
        Ok(Box::new(driven("begin", begun).await?))
    }

    async fn claim(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<ClaimedWithin, StoreError> {
        let patience = patience.max(LEAST_PATIENCE);
        match self.pools.transactions.is_own() {
            true => driven("claim", self.claim_within(id, claim, patience)).await,
            false => driven("claim", self.claim_within_shared(id, claim, patience)).await,
        }
    }
}

impl PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect("the transaction is open").connection_mut()
    }

    async fn change(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<Fence, StoreError> {
        let query = statement.prepared().persistent(self.way == Way::Prepared);
        let rows = timeout(LIMIT, query.fetch_all(self.connection_mut())).await;
        let rows = rows.map_err(|_| StoreError::transient(NAME, operation, TooSlow))?;
        rows.map(|rows| fence(!rows.is_empty())).map_err(|error| self.failed(operation, error))
    }

    fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.names.table, error)
    }
}

#[async_trait]
impl Transaction for PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.open.as_ref().expect("the transaction is open").connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let done = timeout(LIMIT, sqlx::raw_sql(UNDO).execute(self.connection_mut())).await;
        let done = done.map_err(|_| StoreError::transient(NAME, "undo", TooSlow))?;
        done.map(drop).map_err(|error| self.failed("undo", error))
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("complete", self.change("complete", statements.complete(lease, recording))).await
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("abandon", self.change("abandon", statements.abandon(lease, policy))).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if !open.is_ours() {
            return Err(StoreError::permanent(NAME, "commit", NotOurs));
        }
        let commit = async {
            let committed = timeout(LIMIT, open.commit()).await;
            let committed = committed.map_err(|_| StoreError::transient(NAME, "commit", TooSlow))?;
            committed.map_err(|error| self.failed("commit", error))
        };
        driven("commit", commit).await
    }

    async fn complete_and_commit(mut self: Box<Self>, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let by_message = self.open.as_ref().is_some_and(Open::is_by_message) && recording.len() <= MOST_IN_TEXT;
        if by_message {
            return driven("commit", self.commit_by_message(lease, recording)).await;
        }
        let passed = self.complete(lease, recording).await;
        commit_what(self, passed).await
    }

    async fn roll_back(mut self: Box<Self>) {
        let Some(open) = self.open.take() else { return };
        let rolled_back = async {
            // Too late is as good: the connection is closed.
            let _ = timeout(LIMIT, open.roll_back()).await;
            Ok(())
        };
        let _ = driven("roll back", rolled_back).await;
    }
}

impl Drop for PgTransaction {
    fn drop(&mut self) {
        let open = self.open.take();
        entered(|| drop(open));
    }
}
