//! A transaction that a handler uses: whether it is still the one that the store has begun, and
//! what has become of the handler's effects.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};
use tokio::time::timeout;

use crate::{
    connect::{
        open_transaction::{OpenTransaction, UnexpectedTransactionState, execute_verified},
        pools::Pools,
    },
    error::{NAME, PgErrorKind, error_kind, is_reply, is_unusable, store_error},
    server::{
        Server, StatementMode,
        io_thread::IO_THREAD,
        timeouts::{RESPONSE_TIMEOUT, STATEMENT_GRACE},
    },
    sql::{mark::savepoint, statement::prepared, statements::Statements},
    transaction::{
        settings::{CLOSE_GUARD, reset_after_claim, set_for_claim},
        token::TransactionToken,
    },
};
use idempotent_core::{RecordId, StoreError, protocol::Fence};
use idempotent_sql::{ConnectionPool, fence, server::health::ServerHealth, statement::Statement};

/// `no_active_sql_transaction`, and `invalid_savepoint_specification`.
const WITHOUT_SAVEPOINT: [&str; 2] = ["25P01", "3B001"];

/// A transaction of a handler, on a connection that the handler uses too. The store marks each one
/// that it begins, so that it can prove that the open transaction is still the same.
pub(super) struct MarkedTransaction {
    /// `None` once the transaction has ended.
    pub(super) open: Option<OpenTransaction<PgConnection>>,
    pub(super) statements: Arc<Statements>,
    server: Server,
    health: Arc<ServerHealth>,
    pub(super) token: TransactionToken,
    /// Whether a handler has used the connection since the transaction was last proved to be open.
    pub(super) unverified: bool,
    /// Where the store asks whether the transaction is open while its connection is busy.
    steps: ConnectionPool<PgConnection>,
    /// An advisory lock that ends with the transaction.
    lock: LockOf,
    /// Whether the handler was found to have ended the transaction.
    has_escaped: bool,
    /// Whether the record of the claim was inserted after the savepoint.
    pub(super) inserted: bool,
}

/// Whose advisory lock a transaction has taken.
pub(super) enum LockOf {
    Record(RecordId),
    /// Of a transaction without a record, which has drawn this number.
    Transaction(i64),
}

impl MarkedTransaction {
    /// A transaction that was just begun, with an advisory lock.
    pub(super) fn new(
        pools: &Pools,
        open: OpenTransaction<PgConnection>,
        statements: &Arc<Statements>,
        lock: LockOf,
    ) -> Self {
        Self {
            open: Some(open),
            statements: statements.clone(),
            server: pools.server,
            health: pools.health.clone(),
            token: TransactionToken::new(),
            unverified: false,
            steps: pools.steps.clone(),
            lock,
            has_escaped: false,
            inserted: false,
        }
    }

    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    pub(super) fn connection(&self) -> &PgConnection {
        self.open.as_ref().expect("the transaction is open").connection()
    }

    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    pub(super) fn connection_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect("the transaction is open").connection_mut()
    }

    pub(super) async fn change(
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
    pub(super) async fn insert_with(
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
    pub(super) async fn verify(&mut self, operation: &'static str) -> Result<(), StoreError> {
        self.not_closed(operation)?;
        // A new token: the response of the statement before may still be unread.
        self.token = TransactionToken::new();
        let rows = self.fetch_text(self.token.verify()).await;
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
    pub(super) fn close_if_unusable(&mut self, error: &sqlx::Error) {
        if error_kind(error) != PgErrorKind::NoResponse && is_unusable(error) {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.close();
        }
    }

    pub(super) fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.names.table, error)
    }

    /// Whether the handler has ended the transaction, so that what it has written since may be
    /// committed. The store's savepoint, whose name no handler uses, exists only in the transaction
    /// that the store has begun, even if a statement has failed in it.
    pub(super) async fn escaped(&mut self) -> bool {
        if self.has_escaped || !self.unverified || self.open.is_none() {
            return self.has_escaped;
        }
        // As in `roll_back`.
        self.has_escaped = match timeout(STATEMENT_GRACE, self.roll_back_to_savepoint()).await {
            Ok(Ok(())) => false,
            Ok(Err(sqlx::Error::Database(error))) => {
                error.code().is_some_and(|code| WITHOUT_SAVEPOINT.contains(&code.as_ref()))
            }
            // The statement of a handler that was dropped is still running, or its response is
            // still unread.
            Err(_) | Ok(Err(sqlx::Error::Protocol(_))) => self.has_ended().await.unwrap_or(false),
            // The connection is lost, and the transaction with it.
            Ok(Err(_)) => false,
        };
        self.has_escaped
    }

    /// Whether the transaction has ended, as another session sees it: its advisory lock is free.
    async fn has_ended(&self) -> Result<bool, sqlx::Error> {
        let key = match &self.lock {
            LockOf::Record(id) => self.statements.names.lock_key(id),
            LockOf::Transaction(number) => number.to_string(),
        };
        let try_lock = format!("SELECT pg_try_advisory_xact_lock({key}) AS ended");
        let mut connection = self.steps.get().await?;
        let tried = sqlx::raw_sql(AssertSqlSafe(try_lock)).fetch_one(&mut *connection);
        let ended = self.health.exchange(RESPONSE_TIMEOUT, tried).await?.try_get("ended");
        connection.give_back();
        ended
    }

    /// Fails if an earlier call that has failed has closed the connection.
    pub(super) fn not_closed(&self, operation: &'static str) -> Result<(), StoreError> {
        if self.open.is_some() {
            Ok(())
        } else if self.has_escaped {
            Err(StoreError::escaped(NAME, operation, UnexpectedTransactionState))
        } else {
            Err(StoreError::permanent(NAME, operation, UnexpectedTransactionState))
        }
    }

    pub(super) async fn roll_back_to_savepoint(&mut self) -> Result<(), sqlx::Error> {
        let (health, undo) =
            (self.health.clone(), format!("ROLLBACK TO SAVEPOINT {}", savepoint()));
        self.inserted = false;
        let undo = execute_verified(&undo, self.connection_mut());
        health.exchange(RESPONSE_TIMEOUT, undo).await
    }

    /// Rolls back a transaction without any writes.
    pub(super) async fn roll_back_empty(mut self) {
        if let Some(open) = self.open.take() {
            open.roll_back().await;
        }
    }

    /// Executes a statement of the claim in the transaction.
    pub(super) async fn fetch(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let persistent = self.server.mode == StatementMode::Prepared;
        let query = prepared(&statement).persistent(persistent);
        let health = self.health.clone();
        health.exchange(RESPONSE_TIMEOUT, query.fetch_all(self.connection_mut())).await
    }

    /// Executes statements as plain text.
    async fn fetch_text(&mut self, text: String) -> Result<Vec<PgRow>, sqlx::Error> {
        let (health, text) = (self.health.clone(), AssertSqlSafe(text));
        let fetched = sqlx::raw_sql(text).fetch_all(self.connection_mut());
        health.exchange(RESPONSE_TIMEOUT, fetched).await
    }

    /// [`fetch`](Self::fetch) for a statement that writes, and waits briefly for another
    /// transaction. [`restore_settings`](Self::restore_settings) undoes its settings.
    pub(super) async fn write(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        self.fetch_text(format!("SELECT 1{}", set_for_claim(self.server))).await?;
        self.fetch(statement).await
    }

    /// Restores the settings that apply to the claim only.
    pub(super) async fn restore_settings(&mut self) -> Result<(), sqlx::Error> {
        self.fetch_text(reset_after_claim(self.server)).await.map(drop)
    }

    /// Commits the transaction, which was proved to be open.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let Some(open) = self.open.take().filter(OpenTransaction::is_outermost) else {
            return Err(StoreError::permanent(NAME, "commit", UnexpectedTransactionState));
        };
        let committed = open.commit(Some(CLOSE_GUARD));
        let committed = self.health.exchange(RESPONSE_TIMEOUT, committed).await;
        committed.map_err(|error| self.store_error("commit", error))
    }

    /// Rolls back. Returns whether the server has confirmed the end of the transaction.
    pub(super) async fn roll_back(mut self) -> bool {
        let Some(open) = self.open.take() else { return true };
        // The handler may have been dropped in the middle of a statement, which must not be
        // mistaken for an unresponsive server. When the time is over, dropping the transaction
        // closes the session, which also rolls back.
        let rolled_back = timeout(STATEMENT_GRACE, open.roll_back()).await;
        rolled_back.is_ok_and(|rolled_back| rolled_back)
    }
}

impl Drop for MarkedTransaction {
    fn drop(&mut self) {
        let open = self.open.take();
        IO_THREAD.enter(|| drop(open));
    }
}
