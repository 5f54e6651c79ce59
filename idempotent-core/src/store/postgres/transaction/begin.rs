//! Beginning transactions, with or without a claim. The values of a claim are never part of a
//! statement's text, because the server logs the text of a statement that waits in vain for a lock.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr, postgres::PgRow};

use super::{PgTransaction, TransactionToken, claim_settings};
use crate::{
    record_id::RecordId,
    store::{
        Claim,
        postgres::{
            PostgresStore,
            error::{ErrorKind, error_kind},
            server::{Server, StatementMode},
            statement::Statement,
            timeouts::RESPONSE_TIMEOUT,
        },
        sql::{OpenTransaction, PooledConnection},
    },
};

/// Undoes the session changes of an earlier handler. It keeps prepared statements and takes no
/// snapshot, so the next handler can still choose an isolation level.
const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

impl PostgresStore {
    pub(super) async fn begin_transaction(&self) -> Result<PgTransaction, sqlx::Error> {
        let token = TransactionToken::new();
        let open = self
            .begin_retrying(RESPONSE_TIMEOUT, |connection| self.open(connection, token, ""))
            .await?;
        Ok(self.new_transaction(open, token))
    }

    /// Begins with a claim and returns its rows.
    /// [`restore_settings`](PgTransaction::restore_settings) undoes the settings of the claim.
    pub(super) async fn begin_claiming(
        &self,
        id: &RecordId,
        claim: &Claim,
        max_wait: Duration,
    ) -> Result<(PgTransaction, Vec<PgRow>), sqlx::Error> {
        let (token, settings) =
            (TransactionToken::new(), set_for_claim(self.pools.server, max_wait));
        let statement = self.statements.claim_in_transaction(id, claim);
        let begin = async |connection| {
            let open = self.open(connection, token, &settings).await?;
            run_claim(open, &statement, self.pools.server.mode).await
        };
        let (open, rows) = self.begin_retrying(max_wait + RESPONSE_TIMEOUT, begin).await?;
        Ok((self.new_transaction(open, token), rows))
    }

    async fn open(
        &self,
        connection: PooledConnection<PgConnection>,
        token: TransactionToken,
        settings: &str,
    ) -> Result<OpenTransaction<PgConnection>, sqlx::Error> {
        let server = self.pools.server;
        if !connection.is_own() {
            let begin = format!("BEGIN; {}{settings}", token.set_and_bound(server));
            return OpenTransaction::begin(connection, AssertSqlSafe(begin).into_sql_str()).await;
        }
        let begin = if server.own_sessions {
            // The session's settings apply to this message's own transaction until they are reset.
            let isolation = server.settings.isolation.0;
            format!(
                "{CLEAN}BEGIN ISOLATION LEVEL {isolation}, READ WRITE; {}{settings}",
                token.set()
            )
        } else {
            format!("BEGIN; {}{settings}", token.set_and_bound(server))
        };
        let mut open = OpenTransaction::by_message(connection).await?;
        match sqlx::raw_sql(AssertSqlSafe(begin)).execute(open.connection_mut()).await {
            Ok(_) => Ok(open),
            Err(error) => {
                if matches!(
                    error_kind(&error),
                    ErrorKind::ConnectionLost | ErrorKind::PoolerInterference
                ) {
                    open.close();
                }
                Err(error)
            }
        }
    }
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

async fn run_claim(
    mut open: OpenTransaction<PgConnection>,
    claim: &Statement<'_>,
    mode: StatementMode,
) -> Result<(OpenTransaction<PgConnection>, Vec<PgRow>), sqlx::Error> {
    match claim
        .prepared()
        .persistent(mode == StatementMode::Prepared)
        .fetch_all(open.connection_mut())
        .await
    {
        Ok(rows) => Ok((open, rows)),
        Err(error) => {
            match error_kind(&error) {
                ErrorKind::LockTimeout | ErrorKind::Conflict | ErrorKind::Transient => {
                    open.roll_back().await;
                }
                ErrorKind::ConnectionLost | ErrorKind::PoolerInterference => open.close(),
                ErrorKind::NoResponse | ErrorKind::MissingTable | ErrorKind::Other => {}
            }
            Err(error)
        }
    }
}

impl PgTransaction {
    /// Rolls back a transaction without any writes.
    pub(super) async fn roll_back_empty(mut self) {
        if let Some(open) = self.open.take() {
            open.roll_back().await;
        }
    }

    /// Executes a further claim statement in the transaction.
    pub(super) async fn write(
        &mut self,
        statement: Statement<'_>,
        max_wait: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = statement.prepared().persistent(self.server.mode == StatementMode::Prepared);
        let health = self.health.clone();
        health.exchange(max_wait + RESPONSE_TIMEOUT, query.fetch_all(self.connection_mut())).await
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
