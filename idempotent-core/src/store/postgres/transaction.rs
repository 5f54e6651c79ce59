//! Transactions that the application's writes share with a record.

use std::{
    any::{Any, TypeId},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, SqlSafeStr, SqlStr};
use tokio::time::timeout;

use super::{
    NAME, PostgresStore, ROUNDS,
    connect::Way,
    driver::{driven, entered},
    error::{Kind, TooSlow, kind, store_error},
    run::LIMIT,
    statement::Statement,
    statements::Statements,
};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    record::{RecordId, State},
    store::{
        Claim, ClaimOutcome, ClaimedWithin, Fence, Transaction, Transactions,
        sql::{Contended, Lent, NotOurs, Open, SAVEPOINT, UNDO, fence},
    },
    transition::{self, Change},
};

/// The least time that a claim waits for another transaction. Zero would be without end.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// How a claim within a transaction is written.
#[derive(Clone, Copy)]
enum Write {
    Insert,
    StartOver(OwnerToken),
    TakeOver(OwnerToken),
}

struct PgTransaction {
    /// `None` once it has been ended.
    open: Option<Open<PgConnection>>,
    statements: Arc<Statements>,
    way: Way,
}

impl PostgresStore {
    /// Begins by a message, which is made for the connection that there is.
    async fn open(
        &self,
        message: impl Fn(&mut Lent<PgConnection>) -> SqlStr,
        limit: Duration,
    ) -> Result<PgTransaction, sqlx::Error> {
        let connections = &self.pools.transactions;
        let begin = |mut connection: Lent<PgConnection>| async {
            let message = message(&mut connection);
            let begun = timeout(limit, Open::begin(connection, message, leaves_nothing)).await;
            begun.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::Error::other(TooSlow))))
        };
        let open = match begin(connections.get().await?).await {
            // Nothing that was begun is left, and the server may have been started anew since the connection was used.
            Err(error) if kind(&error) == Kind::Lost => begin(connections.live().await?).await?,
            begun => begun?,
        };
        Ok(PgTransaction { open: Some(open), statements: self.statements.clone(), way: self.pools.way })
    }

    async fn claim_within(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<ClaimedWithin, StoreError> {
        let (mut write, mut attempt) = (Write::Insert, 1);
        for _ in 0..ROUNDS {
            let statement = match &write {
                Write::Insert => self.statements.insert(id, claim),
                Write::StartOver(seen) => self.statements.start_over(id, claim, seen),
                Write::TakeOver(seen) => self.statements.take_over(id, claim, seen),
            };
            let patience = patience.max(LEAST_PATIENCE);
            let begin = |connection: &mut Lent<PgConnection>| self.begin_with(connection, &write, &statement, patience);
            match self.open(begin, patience + LIMIT).await {
                Ok(transaction) => {
                    return Ok(ClaimedWithin::Granted { attempt, transaction: Box::new(transaction) });
                }
                Err(error) => match code(&error).as_deref() {
                    Some(LOCKED) => return Ok(in_flight()),
                    Some(TAKEN | CHANGED) => {}
                    _ if kind(&error) == Kind::Conflict => {}
                    _ => return Err(self.failed("claim", error)),
                },
            }
            // Between the write that failed and this read the record may change again; the write that follows repeats every guard
            // and names the owner that is seen here (case `one_of_many_concurrent_takeovers_wins`).
            let (record, now) = match self.read("claim", self.statements.read(id)).await? {
                Some((Some(record), now)) => (record, now),
                Some((None, _)) | None => {
                    (write, attempt) = (Write::Insert, 1);
                    continue;
                }
            };
            let (change, outcome) = transition::claim(Some(&record), claim, now);
            let Change::Put(new) = change else { return Ok(ClaimedWithin::Told(outcome)) };
            if new.state == State::Held {
                if self.write_claim(id, claim, &record, false, &new).await? {
                    return Ok(ClaimedWithin::Told(outcome));
                }
                continue;
            }
            attempt = new.attempt;
            write = if record.expired(now) { Write::StartOver(record.owner) } else { Write::TakeOver(record.owner) };
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    /// Claims, begins, and sets the savepoint, in one message and so one round trip. sqlx gives no rows of it, so a claim that changes
    /// nothing makes it fail. The application's own `lock_timeout` is as it was afterwards.
    fn begin_with(
        &self,
        connection: &mut Lent<PgConnection>,
        write: &Write,
        claim: &Statement<'_>,
        patience: Duration,
    ) -> SqlStr {
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let mut text = String::with_capacity(1024);
        let by_name = matches!(write, Write::Insert) && self.pools.own_sessions && connection.is_own();
        let name = &self.statements.insert_name;
        if by_name && connection.prepares(name) {
            claim.write_prepare(name, &mut text);
        }
        // On a connection of the application's the setting may be the session's, which no `DEFAULT` gives back.
        text.push_str(&match connection.is_own() {
            true => format!("SET LOCAL lock_timeout = {patience}; "),
            false => format!(
                "SELECT set_config('idempotent.lock_timeout', current_setting('lock_timeout'), true), \
                 set_config('lock_timeout', '{patience}', true); "
            ),
        });
        match write {
            Write::Insert if by_name => claim.write_execute(name, &mut text),
            Write::Insert => claim.write(&mut text),
            Write::StartOver(_) | Write::TakeOver(_) => {
                text.push_str("WITH claimed AS (");
                claim.write(&mut text);
                text.push_str(") SELECT 1 / count(*) FROM claimed");
            }
        }
        text.push_str("; BEGIN; ");
        text.push_str(match connection.is_own() {
            true => "SET LOCAL lock_timeout TO DEFAULT; ",
            false => "SELECT set_config('lock_timeout', current_setting('idempotent.lock_timeout'), true); ",
        });
        text.push_str(SAVEPOINT);
        AssertSqlSafe(text).into_sql_str()
    }
}

/// `lock_not_available`: the wait was too long.
const LOCKED: &str = "55P03";
/// `unique_violation`: there is a record.
const TAKEN: &str = "23505";
/// `division_by_zero`: the record is no longer the one that was seen.
const CHANGED: &str = "22012";

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|code| code.into_owned())
}

fn in_flight() -> ClaimedWithin {
    ClaimedWithin::Told(ClaimOutcome::InFlight { lease_left: Duration::ZERO })
}

/// Whether a message that begins a transaction has left nothing open. The claim comes before the `BEGIN`, so that a claim that fails ends
/// the transaction that the message by itself would be.
fn leaves_nothing(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some(LOCKED | TAKEN | CHANGED)) || kind(error) == Kind::Conflict
}

#[async_trait]
impl Transactions for PostgresStore {
    fn database(&self) -> TypeId {
        TypeId::of::<Postgres>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let begun =
            async { self.open(|_| "BEGIN".into_sql_str(), LIMIT).await.map_err(|error| self.failed("begin", error)) };
        Ok(Box::new(driven("begin", begun).await?))
    }

    async fn claim(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<ClaimedWithin, StoreError> {
        driven("claim", self.claim_within(id, claim, patience)).await
    }
}

impl PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection_mut(&mut self) -> &mut PgConnection {
        self.open.as_mut().expect("the transaction is open").connection_mut()
    }

    async fn change(&mut self, operation: &'static str, statement: Statement<'_>) -> Result<Fence, StoreError> {
        let query = statement.prepared().persistent(self.way == Way::Prepared);
        let rows = timeout(LIMIT, query.fetch_all(self.connection_mut())).await;
        let rows = rows.map_err(|_| StoreError::transient(NAME, operation, TooSlow))?;
        rows.map(|rows| fence(!rows.is_empty())).map_err(|error| self.failed(operation, error))
    }

    fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.names.table, error)
    }
}

#[async_trait]
impl Transaction for PgTransaction {
    #[expect(clippy::expect_used, reason = "only what consumes or drops the transaction takes it")]
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.open.as_ref().expect("the transaction is open").connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        let done = timeout(LIMIT, sqlx::raw_sql(UNDO).execute(self.connection_mut())).await;
        let done = done.map_err(|_| StoreError::transient(NAME, "undo", TooSlow))?;
        done.map(drop).map_err(|error| self.failed("undo", error))
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("complete", self.change("complete", statements.complete(lease, recording))).await
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.statements.clone();
        driven("abandon", self.change("abandon", statements.abandon(lease, policy))).await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if !open.is_ours() {
            return Err(StoreError::permanent(NAME, "commit", NotOurs));
        }
        let commit = async {
            let committed = timeout(LIMIT, open.commit()).await;
            let committed = committed.map_err(|_| StoreError::transient(NAME, "commit", TooSlow))?;
            committed.map_err(|error| self.failed("commit", error))
        };
        driven("commit", commit).await
    }

    async fn roll_back(mut self: Box<Self>) {
        let Some(open) = self.open.take() else { return };
        let rolled_back = async {
            // Too late is as good: the connection is closed.
            let _ = timeout(LIMIT, open.roll_back()).await;
            Ok(())
        };
        let _ = driven("roll back", rolled_back).await;
    }
}

impl Drop for PgTransaction {
    fn drop(&mut self) {
        let open = self.open.take();
        entered(|| drop(open));
    }
}
