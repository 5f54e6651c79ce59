//! Beginning transactions, with or without a claim. The values of a claim are never part of a
//! statement's text, because the server logs the text of a statement that waits in vain for a lock.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqlSafeStr, postgres::PgRow};

use super::{PgTransaction, TransactionToken, claim_settings};
use crate::{
    connect::open_transaction::{OpenTransaction, response_mismatch},
    error::{PgErrorKind, error_kind, is_unusable},
    server::timeouts::RESPONSE_TIMEOUT,
    server::{Isolation, Server, StatementMode},
    sql::mark::{savepoint, set_mark, set_mark_and_bound},
    sql::statement::Statement,
    sql::statements::SessionStatements,
    store::PostgresStore,
};
use idempotent_core::RecordId;
use idempotent_sql::PooledConnection;

/// Fails when the transaction is committed while the cursor is open, since the server then executes
/// the query of a cursor that was declared `WITH HOLD`. So a handler cannot commit its effects
/// without the record; the store closes the cursor before it commits. The server also refuses to
/// prepare such a transaction.
const GUARD: &str = "DECLARE idempotent_guard NO SCROLL CURSOR WITH HOLD FOR SELECT \
                     set_config('a handler must not commit the transaction of its Tx', '', true)";
/// Closes the cursor of [`GUARD`].
pub(super) const CLOSE_GUARD: &str = "CLOSE idempotent_guard";

/// Limits the wait for a lock on the table. Records and keys are not waited for.
const BOUND: &str = "SET LOCAL lock_timeout = '100ms'";
/// The name of the table in a statement.
const TABLE: &str = r#"{schema}"{table}""#;

/// Undoes the session changes of an earlier handler. It keeps prepared statements.
pub(crate) const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

/// What a transaction that tries to take the lock of a key has found.
pub(super) struct Locking {
    /// `None` if another transaction has the lock.
    pub(super) transaction: Option<PgTransaction>,
    /// The rows of a read of the record that followed, if there was one in the same message.
    pub(super) read: Option<Vec<PgRow>>,
}

impl PostgresStore {
    pub(super) async fn begin_transaction(&self) -> Result<PgTransaction, sqlx::Error> {
        let key = TransactionToken::new().0.to_string();
        let lock = format!("; SELECT pg_advisory_xact_lock({key}); SAVEPOINT {}", savepoint());
        let begin = async |connection| {
            let (open, begun) = self.open(connection, &lock, None).await?;
            checked(open, begun).await.map(|(open, _)| open)
        };
        let statements = self.try_statements().await?;
        let connection = self.pools.transactions.get().await?;
        let open = self.begin_retrying(connection, RESPONSE_TIMEOUT, begin).await?;
        Ok(self.new_transaction(open, statements, key))
    }

    /// Begins a transaction and takes the lock of a key in it, unless another transaction has it.
    pub(super) async fn begin_locked(
        &self,
        connection: PooledConnection<PgConnection>,
        id: &RecordId,
    ) -> Result<Locking, sqlx::Error> {
        let (server, statements) = (self.pools.server, self.try_statements().await?);
        // Above READ COMMITTED the snapshot of the transaction is older than its lock. The settings
        // of an application's session have to stay, which a session of the store resets.
        let reads = connection.is_own()
            && server.own_sessions
            && server.settings.hex_output
            && server.settings.isolation == Isolation::READ_COMMITTED;
        let key = statements.names.lock_key(id);
        let lock = if reads {
            lock_and_read(&statements.in_session.lock_and_read(id))
        } else {
            lock(&key, &statements.names.fill(TABLE), server)
        };
        let begin = async |mut connection| {
            if reads {
                connection = self.prepared(connection, &statements.in_session).await?;
            }
            let (open, rows) = self.open(connection, "", Some(&lock)).await?;
            let (open, rows) = checked(open, rows).await?;
            if is_locked(&rows)? {
                return Ok((Some(open), rows));
            }
            open.roll_back().await;
            Ok((None, rows))
        };
        let (open, mut rows) = self.begin_retrying(connection, RESPONSE_TIMEOUT, begin).await?;
        let transaction = open.map(|open| self.new_transaction(open, statements, key));
        rows.retain(|row| row.try_column("now").is_ok());
        Ok(Locking { transaction, read: reads.then_some(rows) })
    }

    /// Prepares the statements once for each session.
    async fn prepared(
        &self,
        mut connection: PooledConnection<PgConnection>,
        statements: &SessionStatements,
    ) -> Result<PooledConnection<PgConnection>, sqlx::Error> {
        let prepared = connection.attachment::<Vec<u64>>();
        let prepared = prepared.as_deref().map_or(&[][..], Vec::as_slice);
        if prepared.contains(&statements.table) {
            return Ok(connection);
        }
        let tables = [prepared, &[statements.table]].concat();
        // The setting ends with the message, which is one transaction.
        let prepare = AssertSqlSafe(format!("{CLEAN}{BOUND}; {}", statements.prepare));
        let prepared = sqlx::raw_sql(prepare).execute(&mut *connection).await;
        if let Err(error) = prepared {
            self.put_back(connection, Err::<(), _>(&error));
            return Err(error);
        }
        connection.attach(Arc::new(tables));
        Ok(connection)
    }

    /// Begins a transaction that a handler cannot commit. Executes further statements, and those
    /// that lock a key, whose rows it returns. They take an advisory lock and set a savepoint; both
    /// show [whether the transaction has ended](PgTransaction::escaped).
    async fn open(
        &self,
        connection: PooledConnection<PgConnection>,
        more: &str,
        lock: Option<&str>,
    ) -> Result<Opened, sqlx::Error> {
        let server = self.pools.server;
        if !connection.is_own() {
            let set = set_mark_and_bound(server);
            let begin = AssertSqlSafe(format!("BEGIN READ WRITE; {set}; {GUARD}{more}"));
            let mut open = OpenTransaction::begin(connection, begin.into_sql_str()).await?;
            let rows = match lock {
                None => Ok(Vec::new()),
                Some(lock) => {
                    let lock = AssertSqlSafe(lock.to_owned());
                    sqlx::raw_sql(lock).fetch_all(open.connection_mut()).await
                }
            };
            return Ok((open, rows));
        }
        let lock = lock.map(|lock| format!("; {lock}")).unwrap_or_default();
        let begin = if server.own_sessions {
            // The session's settings apply to this message's own transaction until they are reset.
            let isolation = server.settings.isolation.0;
            let set = set_mark();
            format!(
                "{CLEAN}BEGIN ISOLATION LEVEL {isolation}, READ WRITE; {set}; {GUARD}{more}{lock}"
            )
        } else {
            format!("BEGIN READ WRITE; {}; {GUARD}{more}{lock}", set_mark_and_bound(server))
        };
        let mut open = OpenTransaction::by_message(connection).await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(open.connection_mut()).await;
        Ok((open, rows))
    }
}

/// A transaction, and the rows of the statements with which it was begun.
type Opened = (OpenTransaction<PgConnection>, Result<Vec<PgRow>, sqlx::Error>);

/// Ends the transaction if one of the statements has failed.
async fn checked(
    open: OpenTransaction<PgConnection>,
    rows: Result<Vec<PgRow>, sqlx::Error>,
) -> Result<(OpenTransaction<PgConnection>, Vec<PgRow>), sqlx::Error> {
    let error = match rows {
        Ok(rows) => return Ok((open, rows)),
        Err(error) => error,
    };
    if error_kind(&error) == PgErrorKind::NoResponse {
        // The server may still be executing the statements.
        drop(open);
    } else if is_unusable(&error) {
        open.close();
    } else {
        open.roll_back().await;
    }
    Err(error)
}

/// Limits the waits of a claim, and saves the session's settings.
fn set_for_claim(server: Server) -> String {
    let set = claim_settings(server).map(|(setting, value)| {
        format!(
            "; SELECT set_config('idempotent.{setting}', current_setting('{setting}'), true), \
             set_config('{setting}', '{value}', true)"
        )
    });
    set.collect()
}

/// Restores the session's settings after a claim, and sets the savepoint to which the handler's
/// writes can be undone.
fn reset_after_claim(server: Server) -> AssertSqlSafe<String> {
    let reset = claim_settings(server).map(|(setting, _)| {
        format!("SELECT set_config('{setting}', current_setting('idempotent.{setting}'), true); ")
    });
    AssertSqlSafe(format!("{}SAVEPOINT {}", reset.collect::<String>(), savepoint()))
}

/// Takes the lock of a key unless another transaction has it, and sets the savepoint to which the
/// handler's writes can be undone. The lock on the table, which later statements need, is waited
/// for here, where the wait is limited.
fn lock(key: &str, table: &str, server: Server) -> String {
    format!(
        "SELECT 1{}; SELECT pg_try_advisory_xact_lock({key}) AS locked; \
         LOCK TABLE {table} IN ACCESS SHARE MODE; {}",
        set_for_claim(server),
        reset_after_claim(server).0
    )
}

/// The same in a session of the store, whose settings are those with which it was opened, with a
/// read of the record.
fn lock_and_read(lock_and_read: &str) -> String {
    let savepoint = savepoint();
    format!(
        "{BOUND}; {lock_and_read}; SET LOCAL lock_timeout TO DEFAULT; \
         SAVEPOINT {savepoint}"
    )
}

/// Reads whether the lock was taken.
fn is_locked(rows: &[PgRow]) -> Result<bool, sqlx::Error> {
    let locked = |row: &PgRow| row.try_get("locked").ok();
    rows.iter().find_map(locked).ok_or_else(response_mismatch)
}

impl PgTransaction {
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
        let query = statement.prepared().persistent(self.server.mode == StatementMode::Prepared);
        let health = self.health.clone();
        health.exchange(RESPONSE_TIMEOUT, query.fetch_all(self.connection_mut())).await
    }

    /// The same for a statement that writes, and waits briefly for another transaction.
    /// [`restore_settings`](Self::restore_settings) undoes its settings.
    pub(super) async fn write(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let settings = AssertSqlSafe(format!("SELECT 1{}", set_for_claim(self.server)));
        let health = self.health.clone();
        health
            .exchange(RESPONSE_TIMEOUT, sqlx::raw_sql(settings).execute(self.connection_mut()))
            .await?;
        self.fetch(statement).await
    }

    /// Restores the settings that apply to the claim only.
    pub(super) async fn restore_settings(&mut self) -> Result<(), sqlx::Error> {
        let (health, reset) = (self.health.clone(), reset_after_claim(self.server));
        health
            .exchange(RESPONSE_TIMEOUT, sqlx::raw_sql(reset).execute(self.connection_mut()))
            .await
            .map(drop)
    }
}
