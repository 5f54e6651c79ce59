//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, postgres::PgRow};
use tokio::time::timeout;

use super::{
    NAME, PostgresStore,
    claiming::IN_FLIGHT,
    connect::{Server, Way},
    driver::{driven, entered},
    error::{Kind, kind, store_error},
    health::{Health, LONGEST},
    run::LIMIT,
    sessions::GRACE,
    statement::Statement,
    statements::Statements,
};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, Fence},
    record_id::RecordId,
    store::{
        Transaction, TransactionClaim, Transactions,
        sql::{Lent, NotOurs, Open, fence},
    },
};

mod begin;
mod claiming;
mod mark;

use self::mark::Mark;

/// The least time that a claim waits for another transaction. Zero would be without end.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

struct PgTransaction {
    /// `None` once it has been ended.
    open: Option<Open<PgConnection>>,
    statements: Arc<Statements>,
    server: Server,
    health: Arc<Health>,
    mark: Mark,
    /// Whether a handler had the connection and nothing has proved since that the transaction is still open.
    unproved: bool,
}

impl PostgresStore {
    fn opened(&self, open: Open<PgConnection>, mark: Mark) -> PgTransaction {
        let (server, health) = (self.pools.server, self.pools.health.clone());
        PgTransaction { open: Some(open), statements: self.statements.clone(), server, health, mark, unproved: false }
    }

    /// Begins, a second time where the first connection turns out to be broken, or a handler has dropped what was prepared on it: nothing
    /// that was begun is left then.
    async fn begun<T, F>(&self, limit: Duration, begin: impl Fn(Lent<PgConnection>) -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>> + Send,
    {
        let begin = |connection| self.pools.health.exchange(limit, begin(connection));
        match begin(self.pools.transactions.get().await?).await {
            Err(error) if matches!(kind(&error), Kind::Lost | Kind::Pooled) => {
                begin(self.pools.transactions.live().await?).await
            }
            begun => begun,
        }
    }
}

/// What is set until a key is claimed: how long the claim waits for another transaction is the caller's to say and not the role's. In
/// milliseconds, of which 0 are without end.
fn while_claiming(patience: Duration, server: Server) -> impl Iterator<Item = (&'static str, i32)> {
    let millis = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    let longest = millis(patience.saturating_add(LIMIT));
    let always = [("lock_timeout", millis(patience)), ("statement_timeout", longest)];
    always.into_iter().chain(server.settings.bounds_transactions.then_some(("transaction_timeout", 0)))
}

fn in_flight() -> TransactionClaim {
    TransactionClaim::Rejected(IN_FLIGHT)
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

    async fn claim(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<TransactionClaim, StoreError> {
        let patience = patience.clamp(LEAST_PATIENCE, LONGEST);
        driven("claim", self.claim_within(id, claim, patience)).await
    }
}

impl PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect("the transaction is open").connection_mut()
    }

    async fn change(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<Fence, StoreError> {
        let query = statement.prepared().persistent(self.server.way == Way::Prepared);
        let health = self.health.clone();
        let rows = health.exchange(LIMIT, query.fetch_all(self.connection_mut())).await;
        let rows = self.proved(operation, rows)?;
        let changed = rows.first().map(|row| row.try_get("changed")).transpose();
        let passed = changed.map_err(|error| self.failed(operation, error))?.unwrap_or(false);
        self.unproved = !passed;
        Ok(fence(passed))
    }

    /// Proves that the transaction is open and can be committed, for requests without a key: no completion has proved it.
    async fn prove(&mut self) -> Result<(), StoreError> {
        let (health, prove) = (self.health.clone(), AssertSqlSafe(self.mark.prove()));
        let rows = health.exchange(LIMIT, sqlx::raw_sql(prove).fetch_all(self.connection_mut())).await;
        self.proved("commit", rows).map(drop)
    }

    /// Passes the response to a statement that names the mark. Where the transaction is not the one that was begun, or the session
    /// not what it was, its connection is closed.
    fn proved(
        &mut self,
        operation: &'static str,
        rows: Result<Vec<PgRow>, sqlx::Error>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let proof = rows.and_then(|rows| self.mark.read(&rows).map(|proof| (rows, proof)));
        match (proof, &mut self.open) {
            (Ok((rows, proof)), Some(open)) if proof.ours => {
                if proof.has_temporary_tables {
                    open.retire();
                }
                Ok(rows)
            }
            (Ok(_), _) => {
                self.close();
                Err(StoreError::permanent(NAME, operation, NotOurs))
            }
            (Err(error), _) => {
                if matches!(kind(&error), Kind::Lost | Kind::Pooled) {
                    self.close();
                }
                Err(self.failed(operation, error))
            }
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.close();
        }
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
        self.unproved = true;
        self.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let (health, undo) = (self.health.clone(), format!("ROLLBACK TO SAVEPOINT {}", self.mark.savepoint()));
        let undone = health.exchange(LIMIT, sqlx::raw_sql(AssertSqlSafe(undo)).execute(self.connection_mut())).await;
        undone.map(drop).map_err(|error| self.failed("undo", error))
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("complete", self.change("complete", statements.complete_within(lease, recording, self.mark.0))).await
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("abandon", self.change("abandon", statements.abandon_within(lease, policy, self.mark.0))).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if self.unproved && self.open.as_ref().is_some_and(Open::is_ours) {
            let proved = driven("commit", self.prove()).await;
            if proved.is_err() {
                self.roll_back().await;
                return proved;
            }
        }
        let Some(open) = self.open.take().filter(Open::is_ours) else {
            return Err(StoreError::permanent(NAME, "commit", NotOurs));
        };
        let commit = async {
            let committed = self.health.exchange(LIMIT, open.commit()).await;
            committed.map_err(|error| self.failed("commit", error))
        };
        driven("commit", commit).await
    }

    async fn roll_back(mut self: Box<Self>) -> bool {
        let Some(open) = self.open.take() else { return true };
        let rolled_back = async {
            // It may wait for a statement of the handler's, in the middle of which the handler was dropped, and which says nothing about the
            // server. Dropped in the middle, the session is given up, which rolls back as well.
            Ok(timeout(GRACE, open.roll_back()).await.is_ok_and(|rolled_back| rolled_back))
        };
        driven("roll back", rolled_back).await.unwrap_or(false)
    }
}

impl Drop for PgTransaction {
    fn drop(&mut self) {
        let open = self.open.take();
        entered(|| drop(open));
    }
}
