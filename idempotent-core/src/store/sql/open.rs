//! A connection with an open transaction.

use std::{error::Error, fmt};

use sqlx::{AssertSqlSafe, Connection, Database, Executor, PgConnection, Row as _, SqlStr};
use sqlx_core::transaction::TransactionManager as _;

use super::Lent;

/// What manages transactions on a connection.
type Manager<C> = <<C as Connection>::Database as Database>::TransactionManager;

/// A connection with an open transaction. If it is dropped, the transaction is rolled back, or the connection closed, which does the
/// same.
///
/// sqlx's own `Transaction` would give the connection back to its pool, where a transaction that began unnoticed stays open, and where
/// one that cannot be rolled back for want of an answer keeps its place.
pub(crate) struct Open<C: Connection> {
    /// Taken by what ends the transaction.
    connection: Option<Lent<C>>,
    /// How deep in transactions sqlx takes the connection to be while there is none.
    at_rest: usize,
}

impl<C: Connection> Open<C>
where
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    /// Begins by these statements. Where they fail for a reason that `leaves_nothing`, the connection is used again.
    pub(crate) async fn begin(
        connection: Lent<C>,
        statements: SqlStr,
        leaves_nothing: impl FnOnce(&sqlx::Error) -> bool,
    ) -> Result<Self, sqlx::Error> {
        let mut open = Self { connection: Some(connection), at_rest: 0 };
        let begun = Manager::<C>::begin(open.connection_mut(), Some(statements)).await;
        if let Err(error) = begun {
            if leaves_nothing(&error) {
                open.give_back();
            }
            return Err(error);
        }
        Ok(open)
    }

    /// Makes a connection ready on which a message of the caller's begins the transaction, which may be one with more in it. sqlx, which
    /// cannot know of that, takes the connection to be in a transaction for good; so what an application begins on it is a savepoint, as it
    /// is on others.
    pub(crate) async fn by_message(connection: Lent<C>) -> Result<Self, sqlx::Error> {
        let mut open = Self { connection: Some(connection), at_rest: 1 };
        if Manager::<C>::get_transaction_depth(open.connection()) == 0 {
            Manager::<C>::begin(open.connection_mut(), None).await?;
            sqlx::raw_sql("ROLLBACK").execute(open.connection_mut()).await?;
        }
        Ok(open)
    }

    /// Closes the connection, and so rolls back.
    pub(crate) fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }

    /// Has the connection closed after the transaction; see [`Lent::retire`].
    pub(crate) fn retire(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.retire();
        }
    }

    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes its connection")]
    pub(crate) fn connection(&self) -> &C {
        self.connection.as_ref().expect("the transaction is open")
    }

    #[expect(clippy::expect_used, reason = "as above")]
    pub(crate) fn connection_mut(&mut self) -> &mut C {
        self.connection.as_mut().expect("the transaction is open")
    }

    /// Whether a commit would commit this, and all of it.
    pub(crate) fn is_ours(&self) -> bool {
        Manager::<C>::get_transaction_depth(self.connection()) == 1
    }
}

impl Open<PgConnection> {
    /// Commits. After an error it may or may not be committed, unless the error is the server's.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let committed = match self.at_rest {
            0 => Manager::<PgConnection>::commit(self.connection_mut()).await,
            _ => in_step("COMMIT", self.connection_mut()).await,
        };
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

    /// Returns whether the server has said that the transaction has ended.
    pub(crate) async fn roll_back(mut self) -> bool {
        // Savepoints of the application's may be left.
        while Manager::<PgConnection>::get_transaction_depth(self.connection()) > self.at_rest {
            if Manager::<PgConnection>::rollback(self.connection_mut()).await.is_err() {
                return false;
            }
        }
        // Where sqlx has rolled back, it may have read the response to an earlier statement.
        let last = if self.at_rest > 0 { "ROLLBACK" } else { "SELECT 1" };
        if in_step(last, self.connection_mut()).await.is_err() {
            return false;
        }
        self.give_back();
        true
    }
}

/// Runs a statement, and verifies that the response is the response to it. On a connection that a handler has had it may be
/// that of an earlier statement: sqlx 0.9 does not read all of the response to a `COPY … TO STDOUT` that the server refuses.
///
/// # Errors
/// The server's, or [`sqlx::Error::Protocol`] where the response is another statement's. The connection cannot be used again then.
pub(crate) async fn in_step(statement: &'static str, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let token = fastrand::i64(1..);
    let text = AssertSqlSafe(format!("{statement}; SELECT {token}::bigint AS token"));
    let rows = sqlx::raw_sql(text).fetch_all(connection).await?;
    let responds_to = rows.last().and_then(|row| row.try_get::<i64, _>("token").ok());
    if responds_to == Some(token) { Ok(()) } else { Err(out_of_step()) }
}

/// The response is another statement's.
pub(crate) fn out_of_step() -> sqlx::Error {
    sqlx::Error::Protocol("the response is that of an earlier statement".into())
}

impl<C: Connection> Open<C> {
    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.give_back();
        }
    }
}

impl<C: Connection> Drop for Open<C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.abandon(self.at_rest);
        }
    }
}

/// A savepoint of the application's was never ended, or the transaction was.
#[derive(Debug)]
pub(crate) struct NotOurs;

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handler left a savepoint open, ended the transaction itself, or reset the settings of its session (`RESET ALL`)")
    }
}

impl Error for NotOurs {}
