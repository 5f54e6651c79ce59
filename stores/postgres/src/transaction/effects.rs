//! What has become of a handler's effects, and of the record that is written with them: undone, or
//! written outside of the transaction.

use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::timeout;

use super::PgTransaction;
use crate::{
    connect::lifecycle::STATEMENT_GRACE,
    connect::open_transaction::{UnexpectedTransactionState, execute_verified},
    error::NAME,
    server::io_thread::on_io_thread,
    server::timeouts::RESPONSE_TIMEOUT,
    sql::mark::savepoint,
    sql::statements::NewRecord,
};
use idempotent_core::{StoreError, protocol::Fence};

/// `no_active_sql_transaction`, and `invalid_savepoint_specification`.
const WITHOUT_SAVEPOINT: [&str; 2] = ["25P01", "3B001"];

impl PgTransaction {
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
        let try_lock = format!("SELECT pg_try_advisory_xact_lock({}) AS ended", self.lock);
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

    /// Inserts the record of the claim, unless it exists.
    pub(super) async fn insert(&mut self, operation: &'static str) -> Result<Fence, StoreError> {
        let Some(new) = self.take_new_record() else { return Ok(Fence::Passed) };
        let statements = self.statements.clone();
        let statement = statements.insert_in_transaction(&new, self.token.0);
        let inserted = on_io_thread(operation, self.insert_with(operation, statement)).await;
        self.set_inserted(new, &inserted);
        inserted
    }

    /// The record that must be inserted before it can be changed.
    pub(super) fn take_new_record(&mut self) -> Option<NewRecord> {
        self.new_record.take_if(|_| !self.inserted)
    }

    /// Remembers a record until the transaction ends: an undo removes it.
    pub(super) fn set_inserted(&mut self, new: NewRecord, inserted: &Result<Fence, StoreError>) {
        self.inserted = matches!(inserted, Ok(Fence::Passed));
        self.new_record = Some(new);
    }

    /// Whether a savepoint of the handler that contained the first note was undone, and the new
    /// record with it. The transaction still has the lock of the key, so the record can be inserted
    /// again.
    pub(super) fn is_undone(&mut self, changed: &Result<Fence, StoreError>) -> bool {
        let undone = self.inserted && matches!(changed, Ok(Fence::Fenced));
        self.inserted &= !undone;
        undone
    }
}
