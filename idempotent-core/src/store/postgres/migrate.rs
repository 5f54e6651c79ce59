//! The table, and how it came to be. The list of what was applied is the store's own, beside the one that sqlx keeps for the
//! application.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Row, Transaction, postgres::PgRow};

use super::{
    NAME, PostgresStore,
    error::{Kind, kind},
};
use crate::{
    error::StoreError,
    store::sql::{self, Applied, Migration},
};

const LIST: &str = include_str!("../../sql/postgres/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM {schema}"{table}_migrations" ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO {schema}"{table}_migrations" (version, compatible_from, applied_at)
    VALUES ({version}, {compatible_from}, {now})"#;
/// Version 1 first. What was released never changes.
const MIGRATIONS: [Migration; 1] =
    [Migration { text: include_str!("../../sql/postgres/migrate_1.sql"), compatible_from: 1 }];
const ROOM: &str = include_str!("../../sql/postgres/room.sql");
const PARTITION: &str = include_str!("../../sql/postgres/partition.sql");

/// Another process may migrate meanwhile, and a large table takes its time: the bounds of other statements are too short.
const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1min'; SET LOCAL statement_timeout = 0";
/// Held by the transaction, so that a pooler keeps the session with it and nothing is left to unlock. One for all tables of a schema,
/// which the first of them creates.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('idempotent {schema}', 0))";
/// Reads the catalogue itself: what a session remembers of it may be older than the lock.
const SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}')";
/// Each version of a record is a row; new versions that fit into the page of the old one write no index. A record has at least
/// two, so that there is always something to vacuum.
const STORAGE: &str = "WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = false)";

impl PostgresStore {
    /// Applies what is missing. A database that is up to date is only read, so that a start needs no right to create tables.
    pub(super) async fn apply_migrations(&self) -> Result<(), StoreError> {
        let failed = |error| self.failed("migrate", error);
        if self.missing("migrate", self.applied("migrate").await?)?.next().is_none() {
            return Ok(());
        }
        // Between the look and the lock another process may migrate; the list is read again under the lock (case
        // `migrations_side_by_side_all_pass`), by statements that see what was committed while they waited.
        let mut connection = self.pools.steps.get().await.map_err(failed)?;
        self.apply_under_lock(&mut connection).await?;
        connection.give_back();
        Ok(())
    }

    async fn apply_under_lock(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let failed = |error| self.failed("migrate", error);
        let mut transaction = connection.begin_with(BEGIN).await.map_err(failed)?;
        let applied = self.list(&mut transaction).await.map_err(failed)?;
        for (version, migration) in self.missing("migrate", applied)? {
            self.apply(&mut transaction, version, migration).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Refuses a table that has not all that this release needs, or more than it can use.
    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let applied = self.applied("check").await?;
        if self.missing("check", applied)?.next().is_some() {
            return Err(StoreError::permanent(NAME, "check", sql::NotMigrated::new(&MIGRATIONS, applied)));
        }
        Ok(())
    }

    async fn applied(&self, operation: &'static str) -> Result<Applied, StoreError> {
        let mut connection = self.pools.steps.live().await.map_err(|error| self.failed(operation, error))?;
        let rows = sqlx::raw_sql(AssertSqlSafe(self.fill(APPLIED))).fetch_all(&mut *connection).await;
        if rows.is_ok() {
            connection.give_back();
        }
        match rows.and_then(|rows| last(&rows)) {
            Err(error) if kind(&error) == Kind::MissingTable => Ok(Applied::NOTHING),
            applied => applied.map_err(|error| self.failed(operation, error)),
        }
    }

    async fn list(&self, transaction: &mut Transaction<'_, Postgres>) -> Result<Applied, sqlx::Error> {
        self.text(transaction, &self.fill(LOCK).replace('"', "")).await?;
        if let Some(schema) = &self.statements.names.schema {
            let there = self.text(transaction, &SCHEMA.replace("{name}", schema.as_str())).await?;
            if !there.first().map_or(Ok(false), |row| row.try_get(0))? {
                self.text(transaction, &format!("CREATE SCHEMA \"{}\"", schema.as_str())).await?;
            }
        }
        self.text(transaction, LIST).await?;
        last(&self.text(transaction, APPLIED).await?)
    }

    async fn apply(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        version: i64,
        migration: &Migration,
    ) -> Result<(), sqlx::Error> {
        let parts = if version == 1 { self.partitions } else { 0 };
        let storage = if parts > 1 { "PARTITION BY HASH (id)" } else { STORAGE };
        self.text(transaction, &migration.text.replace("{storage}", storage)).await?;
        for part in 0..if parts > 1 { parts } else { 0 } {
            let text = PARTITION.replace("{parts}", &parts.to_string()).replace("{part}", &part.to_string());
            self.text(transaction, &text.replace("{storage}", STORAGE)).await?;
        }
        if version == 1 {
            self.text(transaction, &ROOM.replace("{parts}", &parts.max(1).to_string())).await?;
        }
        let compatible_from = migration.compatible_from.to_string();
        let apply = APPLY.replace("{version}", &version.to_string()).replace("{compatible_from}", &compatible_from);
        self.text(transaction, &apply).await.map(drop)
    }

    /// Runs a text of one or more statements; unlike prepared ones they leave nothing with the session.
    async fn text(&self, transaction: &mut Transaction<'_, Postgres>, text: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(self.fill(text))).fetch_all(&mut **transaction).await
    }

    fn missing(
        &self,
        operation: &'static str,
        applied: Applied,
    ) -> Result<impl Iterator<Item = (i64, &'static Migration)> + use<>, StoreError> {
        sql::missing(&MIGRATIONS, applied).map_err(|later| StoreError::permanent(NAME, operation, later))
    }

    fn fill(&self, text: &str) -> String {
        self.statements.names.fill(text)
    }
}

fn last(rows: &[PgRow]) -> Result<Applied, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(Applied::NOTHING) };
    Ok(Applied { version: row.try_get(0)?, compatible_from: row.try_get(1)? })
}
