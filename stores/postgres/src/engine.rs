//! What the rooms of the store work with: it finds the table, and sends statements, with retries.

use std::{sync::Arc, time::Duration};

use sqlx::{PgConnection, SqlStr, postgres::PgRow};
use tokio::time::sleep;

use crate::{
    connect::{open_transaction::OpenTransaction, pools::Pools},
    error::{NAME, PgErrorKind, error_class, error_kind, is_unusable, store_error},
    server::{
        StatementMode,
        timeouts::{BATCH_RESPONSE_TIMEOUT, RESPONSE_TIMEOUT, ServerLimits},
    },
    sql::{
        names::Names,
        statement::{BY_ID, BY_INDEX, begins, plain, prepared},
        statements::Statements,
        table::Table,
    },
};
use idempotent_core::{StoreError, store::Effect};
use idempotent_sql::{ConnectionPool, PooledConnection, TimedRecord, statement::Statement};

/// How often a statement that lost against another transaction is repeated.
const CONFLICT_RETRIES: u32 = 3;
/// The longest pause before the first repetition; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(4);
/// How often a statement that waited in vain for a lock, each time 100 ms, is repeated.
const LOCK_RETRIES: u32 = 9;

/// When a statement may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    /// Always, except after a wait for a lock, which the caller handles.
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

/// The connections to a database, and a table in it. Clones share both.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) pools: Pools,
    pub(crate) table: Arc<Table>,
}

impl Engine {
    /// The names that the application has set.
    pub(crate) fn names(&self) -> &Names {
        &self.table.names
    }

    /// The statements for the table, which the first call looks up.
    pub(crate) async fn try_statements(&self) -> Result<&Arc<Statements>, sqlx::Error> {
        match self.table.statements.get() {
            Some(statements) => Ok(statements),
            // Boxed: keeps the futures of all other calls small.
            None => Box::pin(self.look_up_table()).await,
        }
    }

    /// The same, with the error of an operation.
    pub(crate) async fn statements(
        &self,
        operation: &'static str,
    ) -> Result<&Arc<Statements>, StoreError> {
        self.try_statements().await.map_err(|error| self.store_error(operation, error))
    }

    async fn look_up_table(&self) -> Result<&Arc<Statements>, sqlx::Error> {
        let found = async {
            let text = self.table.look_up();
            // The session of these connections is never used by a handler.
            let look_up = Statement::new(&text, Vec::new());
            let rows = self.try_execute_on(&self.pools.renewals, &look_up, Resend::Always).await?;
            self.table.statements_for(&rows)
        };
        self.table.statements.get_or_try_init(|| found).await
    }

    /// Executes a statement, including its commit, and returns its rows.
    pub(crate) async fn execute(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
        resend: Resend,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.execute_on(&self.pools.steps, operation, statement, resend).await
    }

    /// The same on these connections.
    pub(crate) async fn execute_on(
        &self,
        connections: &ConnectionPool<PgConnection>,
        operation: &'static str,
        statement: Statement<'_>,
        resend: Resend,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.try_execute_on(connections, &statement, resend)
            .await
            .map_err(|error| self.store_error(operation, error))
    }

    /// Executes a statement on these connections and returns the error of sqlx.
    pub(crate) async fn try_execute_on(
        &self,
        connections: &ConnectionPool<PgConnection>,
        statement: &Statement<'_>,
        resend: Resend,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        self.try_execute_noting(connections, statement, resend, &mut false).await
    }

    /// The same. Sets `repeated` if the statement was sent again without a response to the first
    /// one, which the server may still be executing.
    pub(crate) async fn try_execute_noting(
        &self,
        connections: &ConnectionPool<PgConnection>,
        statement: &Statement<'_>,
        resend: Resend,
        repeated: &mut bool,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut verified = resend == Resend::UnlessLost;
        let (mut conflicts, mut waits, mut replaced) = (0, 0, false);
        loop {
            let connection = if verified {
                connections.get_verified().await?
            } else {
                connections.get().await?
            };
            let error = match self.send(connection, statement, RESPONSE_TIMEOUT).await {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            let kind = error_kind(&error);
            let waits_again = resend != Resend::UnlessLocked && waits < LOCK_RETRIES;
            // The server may have restarted, so that every pooled connection is lost.
            let replace = !replaced
                && kind != PgErrorKind::NoResponse
                && is_unusable(&error)
                && resend.allows(&error);
            if kind == PgErrorKind::Conflict && conflicts < CONFLICT_RETRIES {
                // Under REPEATABLE READ and SERIALIZABLE; the statement had no effect.
                sleep(PAUSE.mul_f64(fastrand::f64() * f64::from(1 << conflicts))).await;
                conflicts += 1;
            } else if kind == PgErrorKind::LockTimeout && waits_again {
                // The connection was available to others in between.
                waits += 1;
            } else if replace {
                (verified, replaced) = (true, true);
                *repeated |= error_class(&error).effect == Effect::Unknown;
            } else {
                return Err(error);
            }
        }
    }

    /// Executes a batch of steps once.
    pub(crate) async fn execute_batch(
        &self,
        connection: PooledConnection<PgConnection>,
        statement: &Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.pools.server.own_sessions {
            return self.send(connection, statement, BATCH_RESPONSE_TIMEOUT).await;
        }
        // The session lacks the settings of batches.
        let persistent = self.pools.server.mode == StatementMode::Prepared;
        let planner = BY_INDEX.into_iter().chain([BY_ID]);
        let begins = begins(ServerLimits::BATCH, planner);
        let executed = execute_in_transaction(connection, begins, statement, persistent);
        self.pools.health.exchange(BATCH_RESPONSE_TIMEOUT, executed).await
    }

    async fn send(
        &self,
        mut connection: PooledConnection<PgConnection>,
        statement: &Statement<'_>,
        limit: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let (health, mode) = (&self.pools.health, self.pools.server.mode);
        let persistent = mode == StatementMode::Prepared;
        if statement.by_index || statement.confidential && !persistent {
            let begins = begins(ServerLimits::STEP, BY_INDEX);
            let executed = execute_in_transaction(connection, begins, statement, persistent);
            return health.exchange(limit, executed).await;
        }
        let sent = match mode {
            StatementMode::Prepared => {
                health.exchange(limit, prepared(statement).fetch_all(&mut *connection)).await
            }
            StatementMode::Plain => {
                let plain = sqlx::raw_sql(plain(statement));
                health.exchange(limit, plain.fetch_all(&mut *connection)).await
            }
        };
        self.put_back(connection, sent.as_ref());
        sent
    }

    /// Returns a connection to its pool after a call, unless the call has failed with an error that
    /// makes it unusable.
    pub(crate) fn put_back<T>(
        &self,
        connection: PooledConnection<PgConnection>,
        sent: Result<T, &sqlx::Error>,
    ) {
        match sent {
            // Dropped rather than returned, since the server may still be executing the statement.
            Err(error) if error_kind(error) == PgErrorKind::NoResponse => drop(connection),
            Err(error) if is_unusable(error) => {
                connection.close();
                self.pools.discard_if_stale(error);
            }
            _ => connection.give_back(),
        }
    }

    /// Executes a statement that changes a record if its guards hold; returns whether it did.
    pub(crate) async fn change(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
        resend: Resend,
    ) -> Result<bool, StoreError> {
        Ok(!self.execute(operation, statement, resend).await?.is_empty())
    }

    /// Reads a record; `None` if the statement returned no row.
    pub(crate) async fn read(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Option<TimedRecord>, StoreError> {
        let rows = self.execute(operation, statement, Resend::Always).await?;
        record(operation, &rows)
    }

    pub(crate) fn store_error(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.names().table, error)
    }
}

/// Executes a statement in a transaction with the store's settings: its values must not be part of
/// its text, or its session lacks the settings. `persistent` says whether prepared statements
/// outlive the transaction.
async fn execute_in_transaction(
    connection: PooledConnection<PgConnection>,
    begins: SqlStr,
    statement: &Statement<'_>,
    persistent: bool,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut open = OpenTransaction::begin(connection, begins).await?;
    match prepared(statement).persistent(persistent).fetch_all(open.connection_mut()).await {
        Ok(rows) => open.commit(None).await.map(|()| rows),
        Err(error) => {
            if error_kind(&error) != PgErrorKind::NoResponse && is_unusable(&error) {
                open.close();
            } else {
                open.roll_back().await;
            }
            Err(error)
        }
    }
}

/// Decodes the record in the first row; `None` if there is no row.
fn record(operation: &'static str, rows: &[PgRow]) -> Result<Option<TimedRecord>, StoreError> {
    let read = rows.first().map(idempotent_sql::record_from_row).transpose();
    read.map_err(|source| StoreError::unreadable(NAME, operation, source))
}
