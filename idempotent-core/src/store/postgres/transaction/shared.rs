//! Claims in transactions on connections of the application's, where sqlx writes the text of each statement into its log: what a statement
//! is about is apart from its text.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr, SqlStr, postgres::PgRow};

use super::{Mark, PgTransaction, while_claiming};
use crate::{
    record::RecordId,
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

impl PostgresStore {
    pub(super) async fn begin_claiming_shared(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<(PgTransaction, Vec<PgRow>), sqlx::Error> {
        let (mark, server) = (Mark::new(), self.pools.server);
        let statement = self.statements.claim_within(id, claim);
        let begins = begins(mark, server, patience);
        let begin = |connection| begin(connection, begins.clone(), &statement, server.way);
        let (open, rows) = self.begun(patience + LIMIT, begin).await?;
        Ok((self.opened(open, mark), rows))
    }
}

/// The settings of the application's session are as they were [after the claim](resumes).
fn begins(mark: Mark, server: Server, patience: Duration) -> SqlStr {
    let set = while_claiming(patience, server).map(|(setting, value)| {
        format!(
            "; SELECT set_config('idempotent.{setting}', current_setting('{setting}'), true), \
             set_config('{setting}', '{value}', true)"
        )
    });
    AssertSqlSafe(format!("BEGIN; {}{}", mark.set_and_bound(server), set.collect::<String>())).into_sql_str()
}

/// What comes after the claim can be undone.
fn resumes(mark: Mark, server: Server) -> AssertSqlSafe<String> {
    let reset = while_claiming(Duration::ZERO, server)
        .map(|(setting, _)| format!("SELECT set_config('{setting}', current_setting('idempotent.{setting}'), true); "));
    AssertSqlSafe(format!("{}SAVEPOINT {}", reset.collect::<String>(), mark.savepoint()))
}

async fn begin(
    connection: Lent<PgConnection>,
    begins: SqlStr,
    claim: &Statement<'_>,
    way: Way,
) -> Result<(Open<PgConnection>, Vec<PgRow>), sqlx::Error> {
    let mut open = Open::begin(connection, begins, |_| false).await?;
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
    /// Runs a claim that follows the one with which the transaction began.
    pub(super) async fn write_shared(
        &mut self,
        statement: Statement<'_>,
        patience: Duration,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = statement.prepared().persistent(self.server.way == Way::Prepared);
        let health = self.health.clone();
        health.exchange(patience + LIMIT, query.fetch_all(self.connection_mut())).await
    }

    pub(super) async fn resume_shared(&mut self) -> Result<(), sqlx::Error> {
        let (health, resumes) = (self.health.clone(), resumes(self.mark, self.server));
        health.exchange(LIMIT, sqlx::raw_sql(resumes).execute(self.connection_mut())).await.map(drop)
    }
}
