//! A connection with an open transaction.

use sqlx::{AssertSqlSafe, Connection, Database, Executor, PgConnection, Row as _, SqlStr};
use sqlx_core::transaction::TransactionManager as _;

use idempotent_sql::PooledConnection;

/// The sqlx transaction manager of a connection type.
type Manager<C> = <<C as Connection>::Database as Database>::TransactionManager;

/// A connection with an open transaction. Dropping it rolls the transaction back, or closes the
/// connection, which has the same effect.
///
/// sqlx's own `Transaction` would return the connection to its pool even if the transaction is
/// still open: one whose `BEGIN` was cancelled, or whose rollback got no response.
pub(crate) struct OpenTransaction<C: Connection> {
    /// `None` once the transaction has ended.
    connection: Option<PooledConnection<C>>,
    /// sqlx's transaction depth on this connection while no transaction is open.
    base_depth: usize,
}

impl<C: Connection> OpenTransaction<C>
where
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    /// Begins a transaction with these statements.
    pub(crate) async fn begin(
        connection: PooledConnection<C>,
        statements: SqlStr,
    ) -> Result<Self, sqlx::Error> {
        let mut open = Self { connection: Some(connection), base_depth: 0 };
        Manager::<C>::begin(open.connection_mut(), Some(statements)).await?;
        Ok(open)
    }

    /// Prepares a connection for a transaction that the caller begins in one message with other
    /// statements.
    ///
    /// sqlx cannot know of such a transaction, so its depth counter is raised to 1 and stays there.
    /// A nested `begin()` of the application is then a savepoint, as on any other connection.
    pub(crate) async fn by_message(connection: PooledConnection<C>) -> Result<Self, sqlx::Error> {
        let mut open = Self { connection: Some(connection), base_depth: 1 };
        if Manager::<C>::get_transaction_depth(open.connection()) == 0 {
            Manager::<C>::begin(open.connection_mut(), None).await?;
            sqlx::raw_sql("ROLLBACK").execute(open.connection_mut()).await?;
        }
        Ok(open)
    }

    /// Closes the connection, which rolls the transaction back.
    pub(crate) fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }

    /// Closes the connection after the transaction; see [`PooledConnection::close_after_use`].
    pub(crate) fn close_after_use(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_after_use();
        }
    }

    #[expect(
        clippy::expect_used,
        reason = "only what consumes or drops the transaction takes its connection"
    )]
    pub(crate) fn connection(&self) -> &C {
        self.connection.as_ref().expect("the transaction is open")
    }

    #[expect(clippy::expect_used, reason = "as above")]
    pub(crate) fn connection_mut(&mut self) -> &mut C {
        self.connection.as_mut().expect("the transaction is open")
    }

    /// Whether a commit would commit this transaction, with no savepoint left open.
    pub(crate) fn is_outermost(&self) -> bool {
        Manager::<C>::get_transaction_depth(self.connection()) == 1
    }
}

impl OpenTransaction<PgConnection> {
    /// Executes a statement, if one is given, and commits. The connection must not have been used
    /// since the store last proved that the transaction is open. After an error the transaction may
    /// or may not have been committed, unless the error came from the server.
    pub(crate) async fn commit(mut self, before: Option<&'static str>) -> Result<(), sqlx::Error> {
        let committed = self.send_commit(before).await;
        match committed {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            Err(error) => {
                if error.as_database_error().is_some() {
                    self.roll_back().await;
                }
                Err(error)
            }
        }
    }

    async fn send_commit(&mut self, before: Option<&'static str>) -> Result<(), sqlx::Error> {
        let begun_by_message = self.base_depth > 0;
        let connection = self.connection_mut();
        if begun_by_message {
            let commit = before.map_or("COMMIT".into(), |before| format!("{before}; COMMIT"));
            return sqlx::raw_sql(AssertSqlSafe(commit)).execute(connection).await.map(drop);
        }
        if let Some(before) = before {
            sqlx::raw_sql(AssertSqlSafe(before)).execute(&mut *connection).await?;
        }
        Manager::<PgConnection>::commit(connection).await
    }

    /// Rolls back. Returns whether the server has confirmed the end of the transaction.
    pub(crate) async fn roll_back(mut self) -> bool {
        // The application may have left savepoints open.
        while Manager::<PgConnection>::get_transaction_depth(self.connection()) > self.base_depth {
            if Manager::<PgConnection>::rollback(self.connection_mut()).await.is_err() {
                return false;
            }
        }
        // After a rollback by sqlx this verifies that its response was not that of an earlier
        // statement.
        let last = if self.base_depth > 0 { "ROLLBACK" } else { "SELECT 1" };
        if execute_verified(last, self.connection_mut()).await.is_err() {
            return false;
        }
        self.give_back();
        true
    }
}

/// Executes a statement and verifies that the response belongs to it. On a connection that a
/// handler has used, the response may be that of an earlier statement: sqlx 0.9 does not read all
/// of the response to a `COPY … TO STDOUT` that the server refuses.
///
/// # Errors
/// The server's error, or [`sqlx::Error::Protocol`] where the response belongs to another
/// statement; the connection must not be used again then.
pub(crate) async fn execute_verified(
    statement: &str,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    // Always of the same length.
    let token = fastrand::i64(1_000_000_000_000_000_000..);
    let text = AssertSqlSafe(format!("{statement}; SELECT {token}::bigint AS token"));
    let rows = sqlx::raw_sql(text).fetch_all(connection).await?;
    let responds_to = rows.last().and_then(|row| row.try_get::<i64, _>("token").ok());
    if responds_to == Some(token) { Ok(()) } else { Err(response_mismatch()) }
}

/// The error for a response that belongs to another statement.
pub(crate) fn response_mismatch() -> sqlx::Error {
    sqlx::Error::Protocol("the connection returned the response of an earlier statement".into())
}

impl<C: Connection> OpenTransaction<C> {
    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.give_back();
        }
    }
}

impl<C: Connection> Drop for OpenTransaction<C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.give_up(self.base_depth);
        }
    }
}

/// The transaction is not in the state in which the store began it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the handler left a savepoint open, ended the transaction itself, or reset the settings of its \
     session (`RESET ALL`)"
)]
pub(crate) struct UnexpectedTransactionState;
