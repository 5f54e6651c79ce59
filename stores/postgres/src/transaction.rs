//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    mem,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, postgres::PgRow};
use tokio::time::timeout;

use crate::connect::open_transaction::{OpenTransaction, UnexpectedTransactionState};
use crate::{
    claim::alone::IN_FLIGHT,
    connect::lifecycle::STATEMENT_GRACE,
    error::NAME,
    error::{PgErrorKind, error_class, error_kind, is_reply, is_unusable, store_error},
    server::Server,
    server::health::{MAX_WAIT, ServerHealth},
    server::io_thread::{in_io_context, on_io_thread},
    server::timeouts::{LOCK_TIMEOUT, RESPONSE_TIMEOUT, STATEMENT_TIMEOUT},
    sql::statement::Statement,
    sql::statements::{NewRecord, Statements},
    store::PostgresStore,
};
use idempotent_core::{
    Abandoned, Lease, RecordId, StoreError,
    protocol::{Claim, Fence, Note},
    store::{Effect, Transaction, TransactionClaim, Transactions},
};
use idempotent_sql::{ClaimContention, ConnectionPool, PooledConnection, fence};

mod begin;
mod claim;
mod effects;
mod token;

pub(crate) use self::begin::CLEAN;
use self::{begin::CLOSE_GUARD, token::TransactionToken};

struct PgTransaction {
    /// `None` once the transaction has ended.
    open: Option<OpenTransaction<PgConnection>>,
    statements: Arc<Statements>,
    server: Server,
    health: Arc<ServerHealth>,
    token: TransactionToken,
    /// Whether a handler has used the connection since the transaction was last proved to be open.
    unverified: bool,
    /// Where the store asks whether the transaction is open while its connection is busy.
    steps: ConnectionPool<PgConnection>,
    /// The key of an advisory lock that ends with the transaction.
    lock: String,
    /// Whether the handler was found to have ended the transaction.
    has_escaped: bool,
    /// The record that the end of the attempt has to insert.
    new_record: Option<NewRecord>,
    /// Whether the new record was inserted, after the savepoint.
    inserted: bool,
}

impl PostgresStore {
    fn new_transaction(
        &self,
        open: OpenTransaction<PgConnection>,
        statements: &Arc<Statements>,
        lock: String,
    ) -> PgTransaction {
        let (server, health) = (self.pools.server, self.pools.health.clone());
        PgTransaction {
            open: Some(open),
            statements: statements.clone(),
            server,
            health,
            token: TransactionToken::new(),
            unverified: false,
            steps: self.pools.steps.clone(),
            lock,
            has_escaped: false,
            new_record: None,
            inserted: false,
        }
    }

    /// Begins a transaction. Tries again with other connections if the first is broken, or if
    /// handlers have dropped the statements that were prepared on it; nothing is begun then.
    async fn begin_retrying<T, F>(
        &self,
        mut connection: PooledConnection<PgConnection>,
        limit: Duration,
        begin: impl Fn(PooledConnection<PgConnection>) -> F,
    ) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>> + Send,
    {
        let begin = |connection| self.pools.health.exchange(limit, begin(connection));
        let mut repeated = false;
        for _ in 0..self.pools.transactions.max_size() {
            let error = match begin(connection).await {
                Ok(begun) => return Ok(begun),
                Err(error) => error,
            };
            let kind = error_kind(&error);
            if kind == PgErrorKind::NoResponse || !is_unusable(&error) {
                return Err(error);
            }
            self.pools.discard_if_stale(&error);
            // Any number of pooled connections may be lost, or lack the statements.
            let lost = error_class(&error).effect == Effect::Unknown;
            if !lost && kind != PgErrorKind::PoolerInterference && mem::replace(&mut repeated, true)
            {
                return Err(error);
            }
            connection = self.pools.transactions.get_verified().await?;
        }
        begin(connection).await
    }
}

/// The settings during a claim, whatever the role has.
fn claim_settings(server: Server) -> impl Iterator<Item = (&'static str, &'static str)> {
    [("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", STATEMENT_TIMEOUT)]
        .into_iter()
        .chain(server.settings.bounds_transactions.then_some(("transaction_timeout", "0")))
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
        let begun = async {
            self.begin_transaction().await.map_err(|error| self.store_error("begin", error))
        };
        Ok(Box::new(on_io_thread("begin", begun).await?))
    }

    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        let max_wait = wait.min(MAX_WAIT);
        on_io_thread("claim", self.claim_in_transaction(id, claim, max_wait)).await
    }
}

impl PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect("the transaction is open").connection_mut()
    }

    async fn change(
        &mut self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Fence, StoreError> {
        let rows = self.send(operation, statement).await?;
        let rows = self.check_response(operation, rows).await?;
        let changed = rows.first().map(|row| row.try_get("changed")).transpose();
        let passed = changed.map_err(|error| self.store_error(operation, error))?.unwrap_or(false);
        self.unverified = !passed;
        Ok(fence(passed))
    }

    /// Sends a statement, unless the connection was closed by an earlier call that has failed.
    async fn send(
        &mut self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Result<Vec<PgRow>, sqlx::Error>, StoreError> {
        self.not_closed(operation)?;
        Ok(self.fetch(statement).await)
    }

    /// Inserts a record with the first statement for it.
    async fn insert_with(
        &mut self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Fence, StoreError> {
        let rows = self.send(operation, statement).await?;
        // Without a row, either the record exists or the transaction is not the store's.
        let fence = match &rows {
            Ok(rows) if rows.is_empty() => {
                self.verify(operation).await?;
                Fence::Fenced
            }
            _ => {
                self.check_response(operation, rows).await?;
                Fence::Passed
            }
        };
        self.unverified = fence == Fence::Fenced;
        Ok(fence)
    }

    /// Proves that the transaction is open and can be committed, where no completion has proved it.
    async fn verify(&mut self, operation: &'static str) -> Result<(), StoreError> {
        self.not_closed(operation)?;
        // A new token: the response of the statement before may still be unread.
        self.token = TransactionToken::new();
        let (health, verify) = (self.health.clone(), AssertSqlSafe(self.token.verify()));
        let rows = health
            .exchange(RESPONSE_TIMEOUT, sqlx::raw_sql(verify).fetch_all(self.connection_mut()))
            .await;
        self.check_response(operation, rows).await.map(drop)
    }

    /// Checks the response to a statement that names the token. If the transaction is not the one
    /// that was begun, or its session was changed, the connection is closed.
    async fn check_response(
        &mut self,
        operation: &'static str,
        rows: Result<Vec<PgRow>, sqlx::Error>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let proof = rows.and_then(|rows| self.token.read(&rows).map(|proof| (rows, proof)));
        let error = match proof {
            Ok((rows, proof)) if proof.ours => {
                if let Some(open) = self.open.as_mut().filter(|_| proof.has_temporary_tables) {
                    open.close_after_use();
                }
                return Ok(rows);
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        let is_answered = |error| is_reply(error) || matches!(error, sqlx::Error::Protocol(_));
        if error.as_ref().is_none_or(is_answered) && self.escaped().await {
            self.close();
            return Err(StoreError::escaped(NAME, operation, UnexpectedTransactionState));
        }
        let Some(error) = error else {
            self.close();
            return Err(StoreError::permanent(NAME, operation, UnexpectedTransactionState));
        };
        self.close_if_unusable(&error);
        Err(self.store_error(operation, error))
    }

    /// Closes the connection after an error that makes it unusable, which rolls the transaction
    /// back.
    fn close_if_unusable(&mut self, error: &sqlx::Error) {
        if error_kind(error) != PgErrorKind::NoResponse && is_unusable(error) {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.close();
        }
    }

    fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
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
        self.unverified = true;
        self.connection_mut()
    }

    async fn has_escaped(&mut self) -> bool {
        on_io_thread("undo", async { Ok(self.escaped().await) }).await.unwrap_or(false)
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.not_closed("undo")?;
        self.roll_back_to_savepoint().await.map_err(|error| {
            self.close_if_unusable(&error);
            self.store_error("undo", error)
        })
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let was_inserted = self.inserted;
        if self.insert("note").await? == Fence::Fenced {
            return Ok(Fence::Fenced);
        }
        let statement = statements.note_in_transaction(lease, note, self.token.0);
        let noted = on_io_thread("note", self.change("note", statement)).await;
        if was_inserted && self.is_undone(&noted) { self.note(lease, note).await } else { noted }
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let (statements, token) = (self.statements.clone(), self.token.0);
        let Some(new) = self.take_new_record() else {
            let statement = statements.complete_in_transaction(lease, recording, token);
            let completed = on_io_thread("complete", self.change("complete", statement)).await;
            if self.is_undone(&completed) {
                return self.complete(lease, recording).await;
            }
            return completed;
        };
        let statement = statements.insert_completed_in_transaction(&new, recording, token);
        let completed = on_io_thread("complete", self.insert_with("complete", statement)).await;
        self.set_inserted(new, &completed);
        completed
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        let was_inserted = self.inserted;
        if self.insert("abandon").await? == Fence::Fenced {
            return Ok(Fence::Fenced);
        }
        let statement = statements.abandon_in_transaction(lease, policy, self.token.0);
        let abandoned = on_io_thread("abandon", self.change("abandon", statement)).await;
        if was_inserted && self.is_undone(&abandoned) {
            self.abandon(lease, policy).await
        } else {
            abandoned
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if self.insert("commit").await? == Fence::Fenced {
            self.roll_back().await;
            return Err(StoreError::transient(NAME, "commit", ClaimContention));
        }
        if self.unverified {
            let verified = on_io_thread("commit", self.verify("commit")).await;
            if verified.is_err() {
                self.roll_back().await;
                return verified;
            }
        }
        let Some(open) = self.open.take().filter(OpenTransaction::is_outermost) else {
            return Err(StoreError::permanent(NAME, "commit", UnexpectedTransactionState));
        };
        let commit = async {
            let committed = open.commit(Some(CLOSE_GUARD));
            let committed = self.health.exchange(RESPONSE_TIMEOUT, committed).await;
            committed.map_err(|error| self.store_error("commit", error))
        };
        on_io_thread("commit", commit).await
    }

    async fn roll_back(mut self: Box<Self>) -> bool {
        let Some(open) = self.open.take() else { return true };
        let rolled_back = async {
            // The handler may have been dropped in the middle of a statement, which must not be
            // mistaken for an unresponsive server. When the time is over, dropping the transaction
            // closes the session, which also rolls back.
            Ok(timeout(STATEMENT_GRACE, open.roll_back())
                .await
                .is_ok_and(|rolled_back| rolled_back))
        };
        on_io_thread("roll back", rolled_back).await.unwrap_or(false)
    }
}

impl Drop for PgTransaction {
    fn drop(&mut self) {
        let open = self.open.take();
        in_io_context(|| drop(open));
    }
}
