//! What the rooms of the store work with: it sends statements, with retries.

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt as _;
use sqlx::{Either, Executor as _, MySqlConnection, mysql::MySqlRow};
use tokio::time::sleep;

use crate::{
    connect::Pools,
    error::{ErrorKind, NAME, error_class, error_kind, is_unusable, store_error},
    server::timeouts::{BATCH_RESPONSE_TIMEOUT, RESPONSE_TIMEOUT},
    sql::{
        Statements,
        positional::{Positional, message, prepared},
    },
};
use idempotent_core::{RecordId, StoreError, clock::Timestamp, store::Effect};
use idempotent_sql::{ConnectionPool, PooledConnection, TimedRecord, statement::Statement};

/// How often a statement that lost against another transaction is repeated.
const CONFLICT_RETRIES: u32 = 4;
/// The longest pause before the first repetition; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(4);
/// How often a statement is repeated that met a locked record, and the longest pause before: about
/// a second in all. The connection is free for others meanwhile.
const LOCK_RETRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// When a statement may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    /// Always, except after it met a lock, which the caller handles.
    UnlessLocked,
    /// Always: the second execution has the same effect and result.
    Always,
    /// Not if the statement may have taken effect: the second execution would return another
    /// result.
    UnlessLost,
}

impl Resend {
    /// Whether a statement may be sent again on another connection after this error.
    fn allows(self, error: &sqlx::Error) -> bool {
        self != Self::UnlessLost || error_class(error).effect == Effect::None
    }
}

/// What a statement has returned.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) rows: Vec<MySqlRow>,
    /// How many records it has changed, or would have changed if they had not had the same values.
    pub(crate) changed: u64,
}

/// The connections to a database, and a table in it. Clones share both.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) pools: Pools,
    pub(crate) statements: Arc<Statements>,
}

impl Engine {
    /// Executes a statement and returns its rows.
    pub(crate) async fn rows(
        &self,
        operation: &'static str,
        statement: Statement<'_, Positional>,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let done = self.try_execute(&statement, Resend::Always, &mut false).await;
        done.map(|done| done.rows).map_err(|error| self.store_error(operation, error))
    }

    /// Executes a statement that changes a record if its guards hold; returns whether it did.
    pub(crate) async fn change(
        &self,
        operation: &'static str,
        statement: Statement<'_, Positional>,
        resend: Resend,
    ) -> Result<bool, StoreError> {
        let done = self.try_execute(&statement, resend, &mut false).await;
        done.map(|done| done.changed != 0).map_err(|error| self.store_error(operation, error))
    }

    /// Executes a statement by itself. Sets `repeated` if it was sent again without a response to
    /// the first one, which the server may still be executing.
    pub(crate) async fn try_execute(
        &self,
        statement: &Statement<'_, Positional>,
        resend: Resend,
        repeated: &mut bool,
    ) -> Result<Done, sqlx::Error> {
        let execute = async |mut connection: PooledConnection<MySqlConnection>| {
            let health = &self.pools.health;
            let sent = execute(&mut connection, statement);
            let sent = health.exchange(RESPONSE_TIMEOUT, sent).await;
            self.put_back(connection, sent.as_ref().err());
            sent
        };
        let steps = &self.pools.steps;
        let mut verified = resend == Resend::UnlessLost;
        let mut tries = Tries::default();
        loop {
            let connection =
                if verified { steps.get_verified().await? } else { steps.get().await? };
            let error = match execute(connection).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !tries.again(&error, resend, &mut verified, repeated).await {
                return Err(error);
            }
        }
    }

    /// Executes several statements in a transaction of their own. `work` gets the connection; the
    /// transaction is committed if it succeeds. It is executed again if it lost against another
    /// transaction.
    pub(crate) async fn transaction<T: Send>(
        &self,
        connections: &ConnectionPool<MySqlConnection>,
        resend: Resend,
        work: &dyn Work<T>,
    ) -> Result<T, sqlx::Error> {
        let mut verified = resend == Resend::UnlessLost;
        let mut tries = Tries::default();
        loop {
            let mut connection = if verified {
                connections.get_verified().await?
            } else {
                connections.get().await?
            };
            let done = async {
                message("START TRANSACTION").execute(&mut *connection).await?;
                let done = work.run(&mut connection).await?;
                message("COMMIT").execute(&mut *connection).await?;
                Ok(done)
            };
            let done = self.pools.health.exchange(RESPONSE_TIMEOUT, done).await;
            let error = match done {
                Ok(done) => {
                    connection.give_back();
                    return Ok(done);
                }
                Err(error) => error,
            };
            self.roll_back(connection, &error).await;
            if !tries.again(&error, resend, &mut verified, &mut false).await {
                return Err(error);
            }
        }
    }

    /// Executes the statements of a batch once, each of which is committed by itself.
    pub(crate) async fn batch<T>(
        &self,
        connection: Result<PooledConnection<MySqlConnection>, sqlx::Error>,
        work: &dyn Work<T>,
    ) -> Result<T, sqlx::Error> {
        let mut connection = connection?;
        let done = work.run(&mut connection);
        let done = self.pools.health.exchange(BATCH_RESPONSE_TIMEOUT, done).await;
        self.put_back(connection, done.as_ref().err());
        done
    }

    async fn roll_back(
        &self,
        mut connection: PooledConnection<MySqlConnection>,
        error: &sqlx::Error,
    ) {
        if error_kind(error) == ErrorKind::NoResponse || is_unusable(error) {
            return self.put_back(connection, Some(error));
        }
        let rolled_back = message("ROLLBACK").execute(&mut *connection);
        let rolled_back = self.pools.health.exchange(RESPONSE_TIMEOUT, rolled_back).await;
        self.put_back(connection, rolled_back.as_ref().err());
    }

    /// Returns a connection to its pool after a call, unless the call has failed with an error that
    /// makes it unusable.
    pub(crate) fn put_back(
        &self,
        connection: PooledConnection<MySqlConnection>,
        error: Option<&sqlx::Error>,
    ) {
        match error {
            // Dropped rather than returned, since the server may still be executing the statement.
            Some(error) if error_kind(error) == ErrorKind::NoResponse => drop(connection),
            Some(error) if is_unusable(error) => {
                connection.close();
                self.discard_if_stale(error);
            }
            _ => connection.give_back(),
        }
    }

    /// After an error that presumably concerns all connections, closes those that are idle, so that
    /// the next call opens one: to the primary, once the name of the server leads to it.
    pub(crate) fn discard_if_stale(&self, error: &sqlx::Error) {
        if error_kind(error) == ErrorKind::StaleConnections {
            self.pools.health.invalidate_idle();
        }
    }

    /// Reads what a claim is decided from.
    pub(crate) async fn existing(&self, id: &RecordId) -> Result<TimedRecord, StoreError> {
        let rows = self.rows("claim", self.statements.steps.existing(id)).await?;
        let row = rows.first().ok_or_else(|| self.no_row("claim"))?;
        idempotent_sql::claimed_from_row(row)
            .map_err(|source| StoreError::unreadable(NAME, "claim", source))
    }

    /// Reads a record.
    pub(crate) async fn read(
        &self,
        operation: &'static str,
        id: &RecordId,
    ) -> Result<TimedRecord, StoreError> {
        let rows = self.rows(operation, self.statements.steps.read(id)).await?;
        let row = rows.first().ok_or_else(|| self.no_row(operation))?;
        idempotent_sql::record_from_row(row)
            .map_err(|source| StoreError::unreadable(NAME, operation, source))
    }

    /// Reads the server's time.
    pub(crate) async fn now(&self, operation: &'static str) -> Result<Timestamp, StoreError> {
        let rows = self.rows(operation, self.statements.clock()).await?;
        time(&rows).map_err(|error| self.store_error(operation, error))
    }

    fn no_row(&self, operation: &'static str) -> StoreError {
        self.store_error(operation, sqlx::Error::RowNotFound)
    }

    pub(crate) fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.names.table, error)
    }
}

/// Statements that follow one another on a connection.
#[async_trait::async_trait]
pub(crate) trait Work<T>: Send + Sync {
    async fn run(&self, connection: &mut MySqlConnection) -> Result<T, sqlx::Error>;
}

/// How often a statement was sent.
#[derive(Default)]
struct Tries {
    conflicts: u32,
    waits: u32,
    replaced: bool,
}

impl Tries {
    /// Whether a statement that has failed is sent again. Waits before that.
    async fn again(
        &mut self,
        error: &sqlx::Error,
        resend: Resend,
        verified: &mut bool,
        repeated: &mut bool,
    ) -> bool {
        let kind = error_kind(error);
        let waits_again = resend != Resend::UnlessLocked && self.waits < LOCK_RETRIES;
        // The server may have restarted, so that every pooled connection is lost.
        let replace = !self.replaced
            && kind != ErrorKind::NoResponse
            && is_unusable(error)
            && resend.allows(error);
        if kind == ErrorKind::Conflict && self.conflicts < CONFLICT_RETRIES {
            sleep(PAUSE.mul_f64(fastrand::f64() * f64::from(1 << self.conflicts))).await;
            self.conflicts += 1;
            true
        } else if kind == ErrorKind::Locked && waits_again {
            sleep(LOCK_PAUSE.mul_f64(fastrand::f64())).await;
            self.waits += 1;
            true
        } else if replace {
            (*verified, self.replaced) = (true, true);
            *repeated |= error_class(error).effect == Effect::Unknown;
            true
        } else {
            false
        }
    }
}

/// Executes a statement on a connection.
pub(crate) async fn execute(
    connection: &mut MySqlConnection,
    statement: &Statement<'_, Positional>,
) -> Result<Done, sqlx::Error> {
    let mut results = connection.fetch_many(prepared(statement));
    let mut done = Done::default();
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(result) => done.changed += result.rows_affected(),
            Either::Right(row) => done.rows.push(row),
        }
    }
    Ok(done)
}

/// Decodes the row of `clock.sql`.
pub(crate) fn time(rows: &[MySqlRow]) -> Result<Timestamp, sqlx::Error> {
    use sqlx::Row as _;
    let now: i64 = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get("now")?;
    Ok(Timestamp::from_millis(u64::try_from(now).unwrap_or(0)))
}
