//! An open transaction whose connection a handler may use.

use std::sync::Arc;

use sqlx::{Connection, Database, MySqlConnection, Row as _, mysql::MySqlRow};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::timeout;

use crate::{
    connect::lifecycle::give_back,
    engine::{Done, execute},
    error::{ErrorKind, NAME, error_kind, is_unusable, number, store_error},
    server::{
        io_thread::IO_THREAD,
        timeouts::{RESPONSE_TIMEOUT, STATEMENT_GRACE},
    },
    sql::{
        Statements,
        positional::{Positional, message},
    },
    transaction::xid::Xid,
};
use idempotent_core::StoreError;
use idempotent_sql::{PooledConnection, server::health::ServerHealth, statement::Statement};

type Manager = <<MySqlConnection as Connection>::Database as Database>::TransactionManager;

/// `SP_DOES_NOT_EXIST`: the savepoint is gone, and with it the transaction.
const NO_SAVEPOINT: u16 = 1305;
/// sqlx's transaction depth on a connection for handlers while no transaction is open. sqlx cannot
/// know of an XA transaction, so the depth is raised and stays there: a nested `begin()` of the
/// application is then a savepoint, as on any other connection.
const BASE_DEPTH: usize = 1;

/// An open XA transaction. Dropping it kills its session, which rolls it back.
pub(super) struct GuardedTransaction {
    /// `None` once the transaction has ended.
    connection: Option<PooledConnection<MySqlConnection>>,
    xid: Xid,
    pub(super) statements: Arc<Statements>,
    health: Arc<ServerHealth>,
    /// Whether a handler has used the connection.
    used: bool,
    /// Whether a handler has used the connection since the transaction was last proved to be open.
    pub(super) unverified: bool,
}

impl GuardedTransaction {
    /// Begins a transaction on a connection, with these further statements before the savepoints.
    ///
    /// # Errors
    /// Those of the server. The transaction has ended then.
    pub(super) async fn begin(
        connection: PooledConnection<MySqlConnection>,
        statements: &Arc<Statements>,
        health: &Arc<ServerHealth>,
        more: Option<&str>,
    ) -> Result<(Self, u64), sqlx::Error> {
        let mut begun = Self {
            connection: Some(connection),
            xid: Xid::new(),
            statements: statements.clone(),
            health: health.clone(),
            used: false,
            unverified: false,
        };
        begun.raise_depth().await?;
        let more = more.map(|more| format!("{more}; ")).unwrap_or_default();
        let text = format!("{}; {more}{}", begun.xid.start(), begun.xid.savepoints());
        match begun.send(text).await {
            Ok(changed) => Ok((begun, changed)),
            Err(error) => {
                begun.end_after(&error).await;
                Err(error)
            }
        }
    }

    async fn raise_depth(&mut self) -> Result<(), sqlx::Error> {
        let health = self.health.clone();
        let connection = self.own_connection();
        if Manager::get_transaction_depth(connection) >= BASE_DEPTH {
            return Ok(());
        }
        let raised = async {
            Manager::begin(&mut *connection, None).await?;
            message("ROLLBACK").execute(connection).await.map(drop)
        };
        let raised = health.exchange(RESPONSE_TIMEOUT, raised).await;
        if let Err(error) = &raised {
            self.close_after(error);
        }
        raised
    }

    #[expect(clippy::expect_used, reason = "only what ends the transaction takes its connection")]
    pub(super) fn connection(&self) -> &MySqlConnection {
        self.connection.as_ref().expect("the transaction is open")
    }

    /// The connection for a handler.
    pub(super) fn connection_mut(&mut self) -> &mut MySqlConnection {
        (self.used, self.unverified) = (true, true);
        self.own_connection()
    }

    #[expect(clippy::expect_used, reason = "as above")]
    fn own_connection(&mut self) -> &mut MySqlConnection {
        self.connection.as_mut().expect("the transaction is open")
    }

    /// Executes statements without values in one message; returns how many records they changed.
    async fn send(&mut self, text: String) -> Result<u64, sqlx::Error> {
        let health = self.health.clone();
        let sent = message(text).execute(self.own_connection());
        health.exchange(RESPONSE_TIMEOUT, sent).await.map(|done| done.rows_affected())
    }

    /// Executes a step of the owner, after a proof that the transaction is open.
    pub(super) async fn step(
        &mut self,
        operation: &'static str,
        statement: &Statement<'_, Positional>,
    ) -> Result<Done, StoreError> {
        self.prove(operation).await?;
        let health = self.health.clone();
        let done = execute(self.own_connection(), statement);
        let done = health.exchange(RESPONSE_TIMEOUT, done).await;
        done.map_err(|error| self.failed(operation, error))
    }

    /// Proves that the transaction is open, unless nothing has happened since the last proof.
    pub(super) async fn prove(&mut self, operation: &'static str) -> Result<(), StoreError> {
        if self.connection.is_none() {
            return Err(StoreError::permanent(NAME, operation, Ended));
        }
        if !self.unverified {
            return Ok(());
        }
        if Manager::get_transaction_depth(self.connection()) > BASE_DEPTH {
            self.close();
            return Err(StoreError::permanent(NAME, operation, Ended));
        }
        let proof = format!("{}; {}", self.xid.prove(), self.statements.shown);
        let health = self.health.clone();
        let proved = message(proof).fetch_all(self.own_connection());
        let rows = health.exchange(RESPONSE_TIMEOUT, proved).await;
        let rows = rows.map_err(|error| self.failed(operation, error))?;
        if !rows.last().is_some_and(is_permanent_table) {
            self.close();
            return Err(StoreError::permanent(NAME, operation, Shadowed));
        }
        self.unverified = false;
        Ok(())
    }

    /// Undoes the handler's writes. The transaction stays open.
    pub(super) async fn undo(&mut self) -> Result<(), StoreError> {
        if self.connection.is_none() {
            return Err(StoreError::permanent(NAME, "undo", Ended));
        }
        let undone = async {
            // Savepoints of sqlx that the handler has left open.
            let health = self.health.clone();
            while Manager::get_transaction_depth(self.connection()) > BASE_DEPTH {
                let rolled_back = Manager::rollback(self.own_connection());
                health.exchange(RESPONSE_TIMEOUT, rolled_back).await?;
            }
            let undo = self.xid.undo();
            self.send(undo).await
        };
        undone.await.map(drop).map_err(|error| self.failed("undo", error))
    }

    /// The error of a statement of the store. The connection is closed if it cannot be used.
    fn failed(&mut self, operation: &'static str, error: sqlx::Error) -> StoreError {
        if number(&error) == Some(NO_SAVEPOINT) {
            self.close();
            return StoreError::permanent(NAME, operation, Ended);
        }
        self.close_after(&error);
        store_error(operation, &self.statements.names.table, error)
    }

    /// Closes the connection after an error that makes it unusable.
    fn close_after(&mut self, error: &sqlx::Error) {
        if error_kind(error) == ErrorKind::NoResponse {
            // The server may still be executing the statement.
            drop(self.connection.take());
        } else if is_unusable(error) {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }

    /// Ends the transaction after a statement has failed with which it was begun.
    async fn end_after(mut self, error: &sqlx::Error) {
        self.close_after(error);
        if self.connection.is_some() {
            self.roll_back().await;
        }
    }

    /// Commits the transaction, which was proved to be open.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let commit = self.xid.commit();
        match self.send(commit).await {
            Ok(_) => {
                self.give_back();
                Ok(())
            }
            Err(error) => {
                let error = self.failed("commit", error);
                self.close();
                Err(error)
            }
        }
    }

    /// Rolls back. Returns whether the server has confirmed the end of the transaction.
    pub(super) async fn roll_back(mut self) -> bool {
        if self.connection.is_none() {
            return true;
        }
        let roll_back = self.xid.roll_back();
        // The handler may have been dropped in the middle of a statement, which must not be
        // mistaken for an unresponsive server.
        let rolled_back = {
            let rolled_back = message(roll_back).execute(self.own_connection());
            timeout(STATEMENT_GRACE, rolled_back).await
        };
        match rolled_back {
            Ok(Ok(_)) if Manager::get_transaction_depth(self.connection()) == BASE_DEPTH => {
                self.give_back();
                true
            }
            Ok(Ok(_)) => {
                self.close();
                true
            }
            // Dropping the connection kills its session.
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn give_back(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.used {
            give_back(connection, self.health.clone());
        } else {
            connection.give_back();
        }
    }
}

/// Whether the row of `SHOW CREATE TABLE` is that of the table of the records. The server finds a
/// temporary table of the session first, even by a name with a database.
fn is_permanent_table(row: &MySqlRow) -> bool {
    let statement = row.try_get::<Vec<u8>, _>(1);
    statement.is_ok_and(|text| text.starts_with(b"CREATE TABLE "))
}

impl Drop for GuardedTransaction {
    fn drop(&mut self) {
        let connection = self.connection.take();
        IO_THREAD.enter(|| drop(connection));
    }
}

/// The transaction is not in the state in which the store began it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the handler left a savepoint open, or the server has rolled the transaction back, as after a \
     deadlock"
)]
struct Ended;

/// The name of the table of the records means a temporary table.
#[derive(Debug, thiserror::Error)]
#[error("the handler created a temporary table of the name of the table of the records")]
struct Shadowed;
