//! How transactions begin, and the claims in them. The values of a claim are never part of a statement's text: the server writes the
//! text of a statement that waits for a lock in vain into its log.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr, postgres::PgRow};

use super::{Mark, PgTransaction, while_claiming};
use crate::{
    record_id::RecordId,
    store::{
        Claim,
        postgres::{
            PostgresStore,
            connect::{Server, Way},
            error::{Kind, kind},
            run::LIMIT,
            statement::Statement,
        },
        sql::{Lent, Open},
    },
};

/// Undoes what a handler before may have done to the session, which would reach the store's statements and the next handler's. It does
/// not touch what is prepared, and takes no snapshot: the handler may still choose an isolation level.
const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

impl PostgresStore {
    pub(super) async fn begin_transaction(&self) -> Result<PgTransaction, sqlx::Error> {
        let mark = Mark::new();
        let open = self.begun(LIMIT, |connection| self.open(connection, mark, "")).await?;
        Ok(self.opened(open, mark))
    }

    /// Begins with a claim, whose rows are returned. What it sets for itself is undone by [`resume`](PgTransaction::resume).
    pub(super) async fn begin_claiming(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<(PgTransaction, Vec<PgRow>), sqlx::Error> {
        let (mark, settings) = (Mark::new(), set_for_claim(self.pools.server, patience));
        let statement = self.statements.claim_within(id, claim);
        let begin = async |connection| {
            let open = self.open(connection, mark, &settings).await?;
            run_claim(open, &statement, self.pools.server.way).await
        };
        let (open, rows) = self.begun(patience + LIMIT, begin).await?;
        Ok((self.opened(open, mark), rows))
    }

    async fn open(
        &self,
        connection: Lent<PgConnection>,
        mark: Mark,
        settings: &str,
    ) -> Result<Open<PgConnection>, sqlx::Error> {
        let server = self.pools.server;
        if !connection.is_own() {
            let begin = format!("BEGIN; {}{settings}", mark.set_and_bound(server));
            return Open::begin(connection, AssertSqlSafe(begin).into_sql_str(), |_| false).await;
        }
        let begin = if server.own_sessions {
            // The message starts as a transaction of its own, with what the session had until it is cleaned.
            let isolation = server.settings.isolation.0;
            format!("{CLEAN}BEGIN ISOLATION LEVEL {isolation}, READ WRITE; {}{settings}", mark.set())
        } else {
            format!("BEGIN; {}{settings}", mark.set_and_bound(server))
        };
        let mut open = Open::by_message(connection).await?;
        match sqlx::raw_sql(AssertSqlSafe(begin)).execute(open.connection_mut()).await {
            Ok(_) => Ok(open),
            Err(error) => {
                if matches!(kind(&error), Kind::Lost | Kind::Pooled) {
                    open.close();
                }
                Err(error)
            }
        }
    }
}

/// Bounds the waits of a claim. The session's own settings are kept for afterwards.
fn set_for_claim(server: Server, patience: Duration) -> String {
    let set = while_claiming(patience, server).map(|(setting, value)| {
        format!(
            "; SELECT set_config('idempotent.{setting}', current_setting('{setting}'), true), \
             set_config('{setting}', '{value}', true)"
        )
    });
    set.collect()
}

/// What comes after the claim has the session's own settings, and can be undone.
fn reset_after_claim(mark: Mark, server: Server) -> AssertSqlSafe<String> {
    let reset = while_claiming(Duration::ZERO, server)
        .map(|(setting, _)| format!("SELECT set_config('{setting}', current_setting('idempotent.{setting}'), true); "));
    AssertSqlSafe(format!("{}SAVEPOINT {}", reset.collect::<String>(), mark.savepoint()))
}

async fn run_claim(
    mut open: Open<PgConnection>,
    claim: &Statement<'_>,
    way: Way,
) -> Result<(Open<PgConnection>, Vec<PgRow>), sqlx::Error> {
    match claim.prepared().persistent(way == Way::Prepared).fetch_all(open.connection_mut()).await {
        Ok(rows) => Ok((open, rows)),
        Err(error) => {
            match kind(&error) {
                Kind::Locked | Kind::Conflict | Kind::Passing => {
                    open.roll_back().await;
                }
                Kind::Lost | Kind::Pooled => open.close(),
                Kind::Unanswered | Kind::MissingTable | Kind::Other => {}
            }
            Err(error)
        }
    }
}

impl PgTransaction {
    /// Rolls back what has nothing in it.
    pub(super) async fn end(mut self) {
        if let Some(open) = self.open.take() {
            open.roll_back().await;
        }
    }

    /// Runs a claim that follows the one with which the transaction began.
    pub(super) async fn write(
        &mut self,
        statement: Statement<'_>,
        patience: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = statement.prepared().persistent(self.server.way == Way::Prepared);
        let health = self.health.clone();
        health.exchange(patience + LIMIT, query.fetch_all(self.connection_mut())).await
    }

    /// Ends what is set for the claim only.
    pub(super) async fn resume(&mut self) -> Result<(), sqlx::Error> {
        let (health, reset) = (self.health.clone(), reset_after_claim(self.mark, self.server));
        health.exchange(LIMIT, sqlx::raw_sql(reset).execute(self.connection_mut())).await.map(drop)
    }
}
