//! Transactions on connections of the store's own, which one message begins and another ends: sqlx gives the rows of such messages, but
//! writes their text into its log, so that these connections log nothing.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};
use tokio::time::timeout;

use super::{CHANGED, LOCKED, PgTransaction, code, in_flight, too_slow};
use crate::{
    error::StoreError,
    lease::Lease,
    record::{Record, RecordId, State},
    store::{
        Claim, ClaimedWithin, Fence,
        postgres::{
            NAME, PostgresStore, ROUNDS,
            error::{Kind, kind},
            run::LIMIT,
        },
        sql::{self, Contended, Lent, NotOurs, Open, SAVEPOINT},
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
                Err(error) if code(&error).as_deref() == Some(LOCKED) => return Ok(in_flight()),
                Err(error) if kind(&error) == Kind::Conflict => continue,
                Err(error) => return Err(self.failed("claim", error)),
            };
            let read = rows.first().map(sql::read).transpose();
            let (record, now) = match read.map_err(|source| StoreError::permanent(NAME, "claim", source))? {
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
            if new.state == State::Held {
                transaction.end().await;
                if self.write_claim(id, claim, &record, false, &new).await? {
                    return Ok(ClaimedWithin::Told(outcome));
                }
                continue;
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
        let message = |by_name: bool| {
            let mut text = waiting(patience);
            if by_name {
                statement.write_execute(&self.statements.claim_name, &mut text)
            } else {
                statement.write(&mut text)
            }
            resume(&mut text);
            text
        };
        let begin = |connection| self.begin_by_message(connection, message);
        let (open, rows) = self.begun(patience + LIMIT, begin).await?;
        Ok((self.opened(open), rows))
    }

    /// Begins by one message, with more in it; that is told whether it can name what was prepared.
    pub(super) async fn begin_by_message(
        &self,
        mut connection: Lent<PgConnection>,
        more: impl FnOnce(bool) -> String,
    ) -> Result<(Open<PgConnection>, Vec<PgRow>), sqlx::Error> {
        let mut text = String::with_capacity(1024);
        if self.pools.own_sessions && connection.prepares(&self.statements.claim_name) {
            self.statements.write_prepares(&mut text);
        }
        text.push_str("BEGIN");
        let more = more(self.pools.own_sessions);
        if !more.is_empty() {
            text.push_str("; ");
            text.push_str(&more);
        }
        let mut open = Open::by_message(connection).await?;
        match sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(open.connection_mut()).await {
            Ok(rows) => Ok((open, rows)),
            Err(error) => {
                // Any other may have come before something was prepared; then the connection is closed.
                if code(&error).as_deref() == Some(LOCKED) || kind(&error) == Kind::Conflict {
                    open.roll_back().await;
                }
                Err(error)
            }
        }
    }
}

/// From here on locks are waited for no longer than this.
fn waiting(patience: Duration) -> String {
    let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    format!("SET LOCAL lock_timeout = {patience}; ")
}

/// And from here on as long as ever; what comes now can be undone.
fn resume(text: &mut String) {
    text.push_str("; SET LOCAL lock_timeout TO DEFAULT; ");
    text.push_str(SAVEPOINT);
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
        resume(&mut text);
        let sent = timeout(patience + LIMIT, sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(self.connection_mut())).await;
        match sent.unwrap_or_else(|_| Err(too_slow())) {
            Ok(rows) if rows.is_empty() => Ok(Taken::No),
            Ok(_) => Ok(Taken::Yes),
            Err(error) if code(&error).as_deref() == Some(LOCKED) => Ok(Taken::Locked),
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
        let statement = self.statements.complete(lease, recording);
        let mut text = String::with_capacity(512 + 2 * recording.len());
        if self.own_sessions {
            statement.write_execute(&self.statements.complete_name, &mut text);
        } else {
            statement.write_checked(&mut text);
        }
        text.push_str("; COMMIT");
        let sent = timeout(LIMIT, sqlx::raw_sql(AssertSqlSafe(text)).execute(open.connection_mut())).await;
        match sent.unwrap_or_else(|_| Err(too_slow())) {
            Ok(_) => {
                open.committed();
                Ok(Fence::Passed)
            }
            Err(error) => {
                if error.as_database_error().is_some() {
                    open.roll_back().await;
                }
                match code(&error).as_deref() {
                    Some(CHANGED) => Ok(Fence::Fenced),
                    _ => Err(self.failed("commit", error)),
                }
            }
        }
    }
}
