//! How statements are run.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgConnection, Row, postgres::PgRow};
use tokio::time::sleep;

use super::{
    NAME, PostgresStore,
    connect::Way,
    error::{Kind, kind, store_error},
    statement::Statement,
};
use crate::{
    error::StoreError,
    lease::Lease,
    protocol::{RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record::Record,
    record_id::RecordId,
    store::sql::{self, Connections, Lent, Open, Read},
};

/// How long the server has for one statement.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How often a statement that lost against another transaction is run again.
const RETRIES: u32 = 3;
/// The longest pause before the first of them; each next one is up to twice as long.
const PAUSE: Duration = Duration::from_millis(4);

/// How often a statement that waited in vain for a lock, for a tenth of a second each time, waits again.
const WAITS: u32 = 9;
/// How many leases one statement renews at most, so that it ends well before the server's limit.
const BATCH: usize = 1_000;

/// What sending a statement twice does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The same as sending it once; but where it waits for a lock, its caller decides.
    Waits,
    /// The same as sending it once, with the same answer.
    Safe,
    /// Its second answer would be another one.
    Differs,
}

impl PostgresStore {
    /// Runs a statement to its end, commit included, and gives its rows.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
        again: Again,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.run_on(&self.pools.steps, operation, statement, again).await
    }

    async fn run_on(
        &self,
        connections: &Connections<PgConnection>,
        operation: &'static str,
        statement: Statement<'_>,
        again: Again,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.try_on(connections, &statement, again).await.map_err(|error| self.failed(operation, error))
    }

    /// The same, with the server's error. A claim is not sent again where it waits for a lock: its key is in flight.
    pub(super) async fn try_on(
        &self,
        connections: &Connections<PgConnection>,
        statement: &Statement<'_>,
        again: Again,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut looked_at = again == Again::Differs;
        let (mut conflicts, mut waits) = (0, 0);
        loop {
            let connection = if looked_at { connections.live().await? } else { connections.get().await? };
            let error = match self.send(connection, statement).await {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            match kind(&error) {
                // Under REPEATABLE READ and SERIALIZABLE; nothing has happened.
                Kind::Conflict if conflicts < RETRIES => {
                    sleep(PAUSE.mul_f64(fastrand::f64() * f64::from(1 << conflicts))).await;
                    conflicts += 1;
                }
                // The connection was free for others in between.
                Kind::Locked if again != Again::Waits && waits < WAITS => waits += 1,
                // The server may have been started anew, and every connection be like this one.
                Kind::Lost if !looked_at => looked_at = true,
                Kind::Conflict | Kind::Lost | Kind::Unanswered | Kind::Locked | Kind::Passing => return Err(error),
                Kind::MissingTable | Kind::Pooled | Kind::Other => return Err(error),
            }
        }
    }

    async fn send(
        &self,
        mut connection: Lent<PgConnection>,
        statement: &Statement<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let health = &self.pools.health;
        let sent = match self.pools.server.way {
            Way::Prepared => health.exchange(LIMIT, statement.prepared().fetch_all(&mut *connection)).await,
            Way::Plain if statement.confidential => {
                return health.exchange(LIMIT, in_a_transaction(connection, statement)).await;
            }
            Way::Plain => health.exchange(LIMIT, sqlx::raw_sql(statement.plain()).fetch_all(&mut *connection)).await,
        };
        match sent.as_ref().map_err(kind) {
            // By its drop: the server may still be at it.
            Err(Kind::Unanswered) => drop(connection),
            Err(Kind::Lost) => connection.close(),
            Ok(_) => connection.give_back(),
            Err(Kind::Conflict | Kind::Locked | Kind::Passing | Kind::MissingTable | Kind::Pooled | Kind::Other) => {
                connection.give_back();
            }
        }
        sent
    }

    /// Runs a statement that changes a record if it still is what its guards say.
    pub(super) async fn change(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
        again: Again,
    ) -> Result<bool, StoreError> {
        Ok(!self.run(operation, statement, again).await?.is_empty())
    }

    /// Reads a record; `None` where the statement gave no row.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        statement: Statement<'_>,
    ) -> Result<Option<Read>, StoreError> {
        let rows = self.run(operation, statement, Again::Safe).await?;
        record(operation, &rows)
    }

    pub(super) async fn renew_leases(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = HashMap::new();
        for leases in leases.chunks(BATCH) {
            let statement = self.statements.renew(leases);
            for row in self.run_on(&self.pools.renewals, "renew", statement, Again::Waits).await? {
                let (lease, renewed) = renewed(&row).map_err(|source| StoreError::permanent(NAME, "renew", source))?;
                found.insert(lease, renewed);
            }
        }
        let outcome = |renewal: &Renewal| match found.get(&renewal.lease) {
            Some(true) => RenewOutcome::Renewed,
            // Another transaction has its record locked.
            Some(false) => RenewOutcome::Unknown,
            None => RenewOutcome::Fenced,
        };
        Ok(leases.iter().map(outcome).collect())
    }

    pub(super) async fn resolve_held(
        &self,
        seen: &Lease,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let statement = match resolution {
            Resolution::Complete(recording) => self.statements.resolve_complete(seen, recording),
            Resolution::Release => self.statements.resolve_release(seen),
        };
        if self.change("resolve", statement, Again::Differs).await? {
            return Ok(ResolveOutcome::Resolved);
        }
        self.change("resolve", self.statements.shorten(seen), Again::Safe).await?;
        Ok(ResolveOutcome::Conflict)
    }

    pub(super) async fn remove_expired(&self, limit: u32) -> Result<u64, StoreError> {
        let removed = self.count_removed(self.statements.purge(limit)).await?;
        if removed < u64::from(limit) {
            self.run("purge", self.statements.shorten_expired(), Again::Safe).await?;
        }
        Ok(removed)
    }

    pub(super) async fn found(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let read = self.read("look up", self.statements.read(id)).await?;
        let record =
            |(record, at): (Option<Record>, _)| record.filter(|record| !record.expired(at)).map(|record| (record, at));
        Ok(read.and_then(record).map(|(record, at)| Snapshot { record, at }))
    }

    pub(super) async fn count_removed(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let rows = self.run("purge", statement, Again::Safe).await?;
        let count = rows.first().map(|row| row.try_get::<i64, _>("removed")).transpose();
        let count = count.map_err(|error| self.failed("purge", error))?;
        Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
    }

    pub(super) fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        store_error(operation, &self.statements.names.table, error)
    }
}

/// Runs a statement whose values must not be part of its text, where nothing that is prepared outlives a transaction.
async fn in_a_transaction(
    connection: Lent<PgConnection>,
    statement: &Statement<'_>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut open = Open::begin(connection, Statement::begins(), |_| false).await?;
    match statement.prepared().persistent(false).fetch_all(open.connection_mut()).await {
        Ok(rows) => open.commit().await.map(|()| rows),
        Err(error) => {
            if kind(&error) == Kind::Lost {
                open.close();
            } else {
                open.roll_back().await;
            }
            Err(error)
        }
    }
}

/// What the first of the rows says of a record; `None` where there is none.
pub(super) fn record(operation: &'static str, rows: &[PgRow]) -> Result<Option<Read>, StoreError> {
    let read = rows.first().map(sql::read).transpose();
    read.map_err(|source| StoreError::unreadable(NAME, operation, source))
}

/// A row of `renew.sql`.
fn renewed(row: &PgRow) -> Result<(Lease, bool), Box<dyn std::error::Error + Send + Sync>> {
    Ok((sql::lease(row)?, row.try_get("renewed")?))
}
