//! Transactions on connections of the store's own, which one message begins: sqlx gives the rows of such messages, but writes their text into
//! its log, so that these connections log nothing. The text has digests in it, and never a response.

use std::{fmt::Write as _, time::Duration};

use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};

use super::{Mark, PgTransaction, while_claiming};
use crate::{
    record::RecordId,
    store::{
        Claim,
        postgres::{
            PostgresStore,
            connect::Server,
            error::{Kind, kind},
            run::LIMIT,
            statement::Statement,
        },
        sql::{Lent, Open},
    },
};

impl PostgresStore {
    pub(super) async fn begin_claiming_by_message(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<(PgTransaction, Vec<PgRow>), sqlx::Error> {
        let statement = self.statements.claim_within(id, claim);
        let (mark, server) = (Mark::new(), self.pools.server);
        let message = |own_sessions: bool, text: &mut String| {
            text.push_str("; ");
            text.push_str(&waiting(patience, server));
            if own_sessions {
                statement.write_execute(&self.statements.claim_name, text)
            } else {
                statement.write(text)
            }
            resume(mark, server, text);
        };
        let begin = |connection| self.begin_by_message(connection, mark, message);
        let (open, rows) = self.begun(patience + LIMIT, begin).await?;
        Ok((self.opened(open, mark), rows))
    }

    /// Begins by one message, to which `more` adds; it is passed whether it can name what was prepared.
    pub(super) async fn begin_by_message(
        &self,
        mut connection: Lent<PgConnection>,
        mark: Mark,
        more: impl FnOnce(bool, &mut String),
    ) -> Result<(Open<PgConnection>, Vec<PgRow>), sqlx::Error> {
        let mut text = String::with_capacity(1024);
        let own_sessions = self.pools.server.own_sessions;
        if own_sessions {
            if connection.prepares(&self.statements.claim_name) {
                // A message of its own: it takes a snapshot.
                sqlx::raw_sql(AssertSqlSafe(self.statements.prepares())).execute(&mut *connection).await?;
            }
            text.push_str(CLEAN);
            // The message began as a transaction of its own, with what the session had until it was cleaned.
            let _ = write!(
                text,
                "BEGIN ISOLATION LEVEL {}, READ WRITE; {}",
                self.pools.server.settings.isolation.0,
                mark.set()
            );
        } else {
            let _ = write!(text, "BEGIN; {}", mark.set_and_bound(self.pools.server));
        }
        more(own_sessions, &mut text);
        let mut open = Open::by_message(connection).await?;
        match sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(open.connection_mut()).await {
            Ok(rows) => Ok((open, rows)),
            Err(error) => {
                // Any other may have come before something was prepared; then the connection is not used again.
                match kind(&error) {
                    Kind::Locked | Kind::Conflict => {
                        open.roll_back().await;
                    }
                    Kind::Lost | Kind::Pooled => open.close(),
                    Kind::Unanswered | Kind::Passing | Kind::MissingTable | Kind::Other => {}
                }
                Err(error)
            }
        }
    }
}

/// Undoes what a handler before may have done to the session, which would reach the store's statements and the next handler's. It does
/// not touch what is prepared, and takes no snapshot: the handler may still choose an isolation level.
const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

/// From here on locks are waited for no longer than this, and rows have their bytes in the one form that the driver reads in a text.
fn waiting(patience: Duration, server: Server) -> String {
    let mut text = String::from("SET LOCAL bytea_output = hex; ");
    for (setting, value) in while_claiming(patience, server) {
        let _ = write!(text, "SET LOCAL {setting} = {value}; ");
    }
    text
}

/// And from here on as ever; what comes now can be undone.
fn resume(mark: Mark, server: Server, text: &mut String) {
    for (setting, _) in while_claiming(Duration::ZERO, server) {
        let _ = write!(text, "; SET LOCAL {setting} TO DEFAULT");
    }
    let _ = write!(text, "; SET LOCAL bytea_output TO DEFAULT; SAVEPOINT {}", mark.savepoint());
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
        if !self.is_by_message() {
            return self.write_shared(statement, patience).await;
        }
        let mut text = waiting(patience, self.server);
        statement.write(&mut text);
        resume(self.mark, self.server, &mut text);
        let health = self.health.clone();
        let sent = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(self.connection_mut());
        health.exchange(patience + LIMIT, sent).await
    }

    /// Ends what is set for the claim only. What a message has begun has done so.
    pub(super) async fn resume(&mut self) -> Result<(), sqlx::Error> {
        if self.is_by_message() { Ok(()) } else { self.resume_shared().await }
    }

    fn is_by_message(&self) -> bool {
        self.open.as_ref().is_some_and(Open::is_by_message)
    }
}
