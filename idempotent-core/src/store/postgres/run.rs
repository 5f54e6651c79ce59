//! How statements are run.

use std::{collections::HashSet, time::Duration};

use sqlx::{PgConnection, Row, postgres::PgRow};
use tokio::time::{sleep, timeout};

use super::{
    NAME, PostgresStore,
    connect::Way,
    error::{Kind, TooSlow, kind, store_error},
    statement::Statement,
};
use crate::{
    error::StoreError,
    store::{
        RenewOutcome, Renewal,
        sql::{self, Connections, Read},
    },
};

/// How long the server has for one statement.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How often a statement that lost against another transaction is run again.
const RETRIES: u32 = 3;
/// The longest pause before the first of them; each next one is up to twice as long.
const PAUSE: Duration = Duration::from_millis(4);

/// What sending a statement twice does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
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
        let mut looked_at = again == Again::Differs;
        let mut conflicts = 0;
        loop {
            let connection = if looked_at { connections.live().await } else { connections.get().await };
            let mut connection = connection.map_err(|error| self.failed(operation, error))?;
            let Ok(sent) = timeout(LIMIT, self.send(&mut connection, &statement)).await else {
                // Whoever got this connection next would wait for the same answer.
                connection.close();
                return Err(StoreError::transient(NAME, operation, TooSlow));
            };
            let error = match sent {
                Ok(rows) => {
                    connection.give_back();
                    return Ok(rows);
                }
                Err(error) => error,
            };
            let kind = kind(&error);
            if kind == Kind::Lost {
                connection.close()
            } else {
                connection.give_back()
            }
            match kind {
                // Under REPEATABLE READ and SERIALIZABLE; nothing has happened.
                Kind::Conflict if conflicts < RETRIES => {
                    sleep(PAUSE.mul_f64(fastrand::f64() * f64::from(1 << conflicts))).await;
                    conflicts += 1;
                }
                // The server may have been started anew, and every connection be like this one.
                Kind::Lost if !looked_at => looked_at = true,
                Kind::Lost | Kind::Conflict | Kind::Passing | Kind::MissingTable | Kind::Pooled | Kind::Other => {
                    return Err(self.failed(operation, error));
                }
            }
        }
    }

    async fn send(&self, connection: &mut PgConnection, statement: &Statement<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        match self.pools.way {
            Way::Prepared => statement.prepared().fetch_all(connection).await,
            Way::Plain => sqlx::raw_sql(statement.plain()).fetch_all(connection).await,
        }
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
        let read = rows.first().map(sql::read).transpose();
        read.map_err(|source| StoreError::permanent(NAME, operation, source))
    }

    pub(super) async fn renew_leases(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let statement = self.statements.renew(leases);
        let rows = self.run_on(&self.pools.renewals, "renew", statement, Again::Safe).await?;
        let renewed = rows.iter().map(sql::lease).collect::<Result<HashSet<_>, _>>();
        let renewed = renewed.map_err(|source| StoreError::permanent(NAME, "renew", source))?;
        let passed = |renewal: &Renewal| renewed.contains(&renewal.lease);
        Ok(leases
            .iter()
            .map(|renewal| if passed(renewal) { RenewOutcome::Renewed } else { RenewOutcome::Fenced })
            .collect())
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
