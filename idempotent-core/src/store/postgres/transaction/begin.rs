//! Beginning transactions, with or without a claim. The values of a claim are never part of a
//! statement's text, because the server logs the text of a statement that waits in vain for a lock.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqlSafeStr, postgres::PgRow};

use super::{PgTransaction, TransactionToken, claim_settings};
use crate::{
    record_id::RecordId,
    store::{
        postgres::{
            PostgresStore,
            error::{ErrorKind, error_kind},
            server::{Server, StatementMode},
            statement::Statement,
            timeouts::RESPONSE_TIMEOUT,
        },
        sql::{OpenTransaction, PooledConnection, response_mismatch},
    },
};

/// Fails when the transaction is committed while the cursor is open, since the server then executes
/// the query of a cursor that was declared `WITH HOLD`. So a handler cannot commit its effects
/// without the record; the store closes the cursor before it commits. The server also refuses to
/// prepare such a transaction.
const GUARD: &str = "DECLARE idempotent_guard NO SCROLL CURSOR WITH HOLD FOR \
                     SELECT ('a handler must not commit the transaction of its Tx' || \
                     left(random()::text, 0))::int";
/// Closes the cursor of [`GUARD`].
pub(super) const CLOSE_GUARD: &str = "CLOSE idempotent_guard";

/// Undoes the session changes of an earlier handler. It keeps prepared statements and takes no
/// snapshot, so the next handler can still choose an isolation level.
const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

impl PostgresStore {
    pub(super) async fn begin_transaction(&self) -> Result<PgTransaction, sqlx::Error> {
        let token = TransactionToken::new();
        let begin = async |connection| {
            let (open, begun) = self.open(connection, token, "").await?;
            checked(open, begun).await.map(|(open, _)| open)
        };
        let open = self.begin_retrying(RESPONSE_TIMEOUT, begin).await?;
        Ok(self.new_transaction(open, token))
    }

    /// Begins a transaction and takes the lock of a key in it, for which it waits up to `max_wait`;
    /// `None` if another transaction has the lock.
    pub(super) async fn begin_locked(
        &self,
        id: &RecordId,
        max_wait: Duration,
    ) -> Result<Option<PgTransaction>, sqlx::Error> {
        let (server, token) = (self.pools.server, TransactionToken::new());
        let lock = lock(&self.statements.names.lock_key(id), max_wait, (server, token));
        let begin = async |connection| {
            let (open, rows) = self.open(connection, token, &lock).await?;
            if rows.as_ref().is_err_and(|error| error_kind(error) == ErrorKind::LockTimeout) {
                open.roll_back().await;
                return Ok(None);
            }
            let (open, rows) = checked(open, rows).await?;
            if is_locked(&rows)? {
                return Ok(Some(open));
            }
            open.roll_back().await;
            Ok(None)
        };
        let open = self.begin_retrying(max_wait + RESPONSE_TIMEOUT, begin).await?;
        Ok(open.map(|open| {
            let mut transaction = self.new_transaction(open, token);
            transaction.guarded = true;
            transaction
        }))
    }

    /// Begins a transaction, executes more statements in it, and returns their rows.
    async fn open(
        &self,
        connection: PooledConnection<PgConnection>,
        token: TransactionToken,
        more: &str,
    ) -> Result<Opened, sqlx::Error> {
        let server = self.pools.server;
        if !connection.is_own() {
            let begin = format!("BEGIN; {}", token.set_and_bound(server));
            let begin = AssertSqlSafe(begin).into_sql_str();
            let mut open = OpenTransaction::begin(connection, begin).await?;
            let rows = if more.is_empty() {
                Ok(Vec::new())
            } else {
                let more = AssertSqlSafe(more.to_owned());
                sqlx::raw_sql(more).fetch_all(open.connection_mut()).await
            };
            return Ok((open, rows));
        }
        let begin = if server.own_sessions {
            // The session's settings apply to this message's own transaction until they are reset.
            let isolation = server.settings.isolation.0;
            let set = token.set();
            format!("{CLEAN}BEGIN ISOLATION LEVEL {isolation}, READ WRITE; {set}; {more}")
        } else {
            format!("BEGIN; {}; {more}", token.set_and_bound(server))
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
    match error_kind(&error) {
        ErrorKind::LockTimeout | ErrorKind::Conflict | ErrorKind::Transient => {
            open.roll_back().await;
        }
        ErrorKind::ConnectionLost | ErrorKind::PoolerInterference => open.close(),
        ErrorKind::NoResponse | ErrorKind::MissingTable | ErrorKind::Other => {}
    }
    Err(error)
}

/// Limits the waits of a claim, and saves the session's settings.
fn set_for_claim(server: Server, max_wait: Duration) -> String {
    let set = claim_settings(max_wait, server).map(|(setting, value)| {
        format!(
            "; SELECT set_config('idempotent.{setting}', current_setting('{setting}'), true), \
             set_config('{setting}', '{value}', true)"
        )
    });
    set.collect()
}

/// Restores the session's settings after a claim, and sets the savepoint to which the handler's
/// writes can be undone.
fn reset_after_claim(token: TransactionToken, server: Server) -> AssertSqlSafe<String> {
    let reset = claim_settings(Duration::ZERO, server).map(|(setting, _)| {
        format!("SELECT set_config('{setting}', current_setting('idempotent.{setting}'), true); ")
    });
    AssertSqlSafe(format!("{}SAVEPOINT {}", reset.collect::<String>(), token.savepoint()))
}

/// Takes the lock of a key, and sets the savepoint to which the handler's writes can be undone.
/// Waiting for the lock needs time limits, which are then taken back.
fn lock(key: &str, max_wait: Duration, (server, token): (Server, TransactionToken)) -> String {
    if max_wait.is_zero() {
        let savepoint = token.savepoint();
        return format!(
            "{GUARD}; SELECT pg_try_advisory_xact_lock({key}) AS locked; SAVEPOINT {savepoint}"
        );
    }
    format!(
        "{GUARD}{}; SELECT pg_advisory_xact_lock({key}) IS NOT NULL AS locked; {}",
        set_for_claim(server, max_wait),
        reset_after_claim(token, server).0
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
        limit: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = statement.prepared().persistent(self.server.mode == StatementMode::Prepared);
        let health = self.health.clone();
        health.exchange(limit, query.fetch_all(self.connection_mut())).await
    }

    /// The same for a statement that writes, and waits up to `max_wait` for another transaction.
    /// [`restore_settings`](Self::restore_settings) undoes its settings.
    pub(super) async fn write(
        &mut self,
        statement: Statement<'_>,
        max_wait: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let settings = AssertSqlSafe(format!("SELECT 1{}", set_for_claim(self.server, max_wait)));
        let health = self.health.clone();
        health
            .exchange(RESPONSE_TIMEOUT, sqlx::raw_sql(settings).execute(self.connection_mut()))
            .await?;
        self.fetch(statement, max_wait + RESPONSE_TIMEOUT).await
    }

    /// Restores the settings that apply to the claim only.
    pub(super) async fn restore_settings(&mut self) -> Result<(), sqlx::Error> {
        let (health, reset) = (self.health.clone(), reset_after_claim(self.token, self.server));
        health
            .exchange(RESPONSE_TIMEOUT, sqlx::raw_sql(reset).execute(self.connection_mut()))
            .await
            .map(drop)
    }
}
