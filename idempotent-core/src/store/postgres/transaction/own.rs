//! Transactions on connections of the store's own, which one message begins and another ends: sqlx gives the rows of such messages, but
//! writes their text into its log, so that these connections log nothing.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};

use super::{CHANGED, Mark, OTHER, PgTransaction, code, has_temporary_tables, in_flight, is_of_completion};
use crate::{
    error::StoreError,
    lease::Lease,
    record::{Record, RecordId},
    store::{
        Claim, ClaimedWithin, Fence,
        postgres::{
            NAME, PostgresStore,
            claiming::ROUNDS,
            error::{Kind, kind, waited_for_a_record},
            run::{LIMIT, record},
            statements::checked,
        },
        sql::{Contended, Lent, NotOurs, Open, out_of_step},
    },
    transition::{self, Change},
};

/// What became of a claim's own write.
enum Taken {
    Yes,
    /// The record is no longer the one that was seen.
    No,
    /// Another transaction is at it.
    Locked,
}

impl PostgresStore {
    /// Claims in the message that begins, which tells what stands in the way; that is taken over by another one, in the same transaction.
    pub(super) async fn claim_within(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<ClaimedWithin, StoreError> {
        // While handlers have every connection, what is there already is told without one.
        if !self.pools.transactions.has_one_free()
            && let Some((Some(record), now)) = self.read("claim", self.statements.read(id)).await?
            && let (Change::Keep, outcome) = transition::claim(Some(&record), claim, now)
        {
            return Ok(ClaimedWithin::Told(outcome));
        }
        for _ in 0..ROUNDS {
            let (mut transaction, rows) = match self.begin_claiming(id, claim, patience).await {
                Ok(begun) => begun,
                Err(error) if waited_for_a_record(&error) => return Ok(in_flight()),
                Err(error) if kind(&error) == Kind::Conflict => continue,
                Err(error) => return Err(self.failed("claim", error)),
            };
            let (record, now) = match record("claim", &rows)? {
                Some((Some(record), now)) => (record, now),
                Some((None, _)) => {
                    return Ok(ClaimedWithin::Granted { attempt: 1, transaction: Box::new(transaction) });
                }
                // A record came between the look and the insert of this statement, which cannot see it.
                None => {
                    transaction.end().await;
                    continue;
                }
            };
            let (change, outcome) = transition::claim(Some(&record), claim, now);
            let Change::Put(new) = change else {
                transaction.end().await;
                return Ok(ClaimedWithin::Told(outcome));
            };
            // What is not granted is written outside of the transaction.
            if new.owner != claim.owner {
                transaction.end().await;
                match self.write_claim(id, claim, &record, false, &new).await {
                    Ok(true) => return Ok(ClaimedWithin::Told(outcome)),
                    Ok(false) => continue,
                    Err(error) if waited_for_a_record(&error) => return Ok(in_flight()),
                    Err(error) => return Err(self.failed("claim", error)),
                }
            }
            // Between the look and the write the record may change; the statement repeats every guard and names the owner that was seen
            // (case `one_of_many_concurrent_takeovers_wins`).
            match transaction.take_over(id, claim, (&record, record.expired(now)), patience).await {
                Ok(Taken::Yes) => {
                    return Ok(ClaimedWithin::Granted { attempt: new.attempt, transaction: Box::new(transaction) });
                }
                Ok(Taken::No) => transaction.end().await,
                Ok(Taken::Locked) => {
                    transaction.end().await;
                    return Ok(in_flight());
                }
                Err(error) => return Err(self.failed("claim", error)),
            }
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    async fn begin_claiming(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<(PgTransaction, Vec<PgRow>), sqlx::Error> {
        let statement = self.statements.claim(id, claim);
        let mark = Mark::new();
        let message = |own_sessions: bool, text: &mut String| {
            text.push_str("; ");
            text.push_str(&waiting(patience));
            if own_sessions {
                statement.write_execute(&self.statements.claim_name, text)
            } else {
                statement.write(text)
            }
            resume(mark, text);
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
            let _ = write!(text, "BEGIN ISOLATION LEVEL {}, READ WRITE; {}", self.pools.server.isolation.0, mark.set());
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
                    Kind::Locked | Kind::Conflict => open.roll_back().await,
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

/// From here on locks are waited for no longer than this.
fn waiting(patience: Duration) -> String {
    let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    format!("SET LOCAL lock_timeout = {patience}; ")
}

/// And from here on as long as ever; what comes now can be undone.
fn resume(mark: Mark, text: &mut String) {
    text.push_str("; SET LOCAL lock_timeout TO DEFAULT; SAVEPOINT ");
    text.push_str(&mark.savepoint());
}

impl PgTransaction {
    /// Rolls back what has nothing in it.
    async fn end(mut self) {
        if let Some(open) = self.open.take() {
            open.roll_back().await;
        }
    }

    async fn take_over(
        &mut self,
        id: &RecordId,
        claim: &Claim,
        (seen, expired): (&Record, bool),
        patience: Duration,
    ) -> Result<Taken, sqlx::Error> {
        let statements = self.statements.clone();
        let statement = if expired {
            statements.start_over(id, claim, &seen.owner)
        } else {
            statements.take_over(id, claim, &seen.owner)
        };
        let mut text = waiting(patience);
        statement.write(&mut text);
        resume(self.mark, &mut text);
        let health = self.health.clone();
        let sent = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(self.connection_mut());
        match health.exchange(patience + LIMIT, sent).await {
            Ok(rows) if rows.is_empty() => Ok(Taken::No),
            Ok(_) => Ok(Taken::Yes),
            Err(error) if waited_for_a_record(&error) => Ok(Taken::Locked),
            Err(error) if kind(&error) == Kind::Conflict => Ok(Taken::No),
            Err(error) => Err(error),
        }
    }

    /// Completes and commits in one message, which breaks off before the commit if the completion changes nothing.
    pub(super) async fn commit_by_message(
        mut self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let Some(mut open) = self.open.take() else { return Ok(Fence::Fenced) };
        if !open.is_ours() {
            return Err(StoreError::permanent(NAME, "commit", NotOurs));
        }
        let statement = self.statements.complete_within(lease, recording, self.mark.0);
        let mut text = String::with_capacity(512 + 2 * recording.len());
        if self.server.own_sessions {
            statement.write_execute(&self.statements.complete_name, &mut text);
        } else {
            statement.write_changed(checked, &mut text);
        }
        text.push_str("; COMMIT");
        let sent = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(open.connection_mut());
        match self.health.exchange(LIMIT, sent).await {
            Ok(rows) if is_of_completion(&rows) => {
                if has_temporary_tables(&rows) {
                    open.retire();
                }
                open.committed();
                Ok(Fence::Passed)
            }
            // The server has yet to run the commit, whose outcome is unknown.
            Ok(_) => {
                drop(open);
                Err(self.failed("commit", out_of_step()))
            }
            Err(error) => {
                match (code(&error).as_deref(), kind(&error)) {
                    // Nobody knows what the handler has done to this session.
                    (Some(OTHER), _) | (_, Kind::Lost | Kind::Pooled) => open.close(),
                    (Some(_), _) => open.roll_back().await,
                    (None, _) => drop(open),
                }
                match code(&error).as_deref() {
                    Some(CHANGED) => Ok(Fence::Fenced),
                    _ => Err(self.failed("commit", error)),
                }
            }
        }
    }
}
