//! The table, and how it came to be. The list of what was applied is the store's own, beside the
//! one that sqlx keeps for the application.

use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

use super::{
    NAME, SqliteStore,
    error::is_missing_table,
    statements::filled,
    steps::{Tries, given_back},
};
use crate::{
    error::StoreError,
    store::sql::{self, Applied, Migration},
};

const LIST: &str = include_str!("../../sql/sqlite/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM main."{table}_migrations" ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO main."{table}_migrations" (version, compatible_from, applied_at) VALUES (?1, ?2, {now})"#;
/// Version 1 first. What was released never changes.
const MIGRATIONS: [Migration; 1] =
    [Migration { text: include_str!("../../sql/sqlite/migrate_1.sql"), compatible_from: 1 }];

impl SqliteStore {
    /// Applies what is missing. A database that is up to date is only read, so that a start does
    /// not wait for a writer.
    pub(super) async fn apply_migrations(&self) -> Result<(), StoreError> {
        let applied = self.applied("migrate").await?;
        if self.missing("migrate", applied)?.next().is_none() {
            return Ok(());
        }
        let tries = Tries::on(&self.writer);
        loop {
            let mut connection = self.writer.get().await.map_err(|error| self.failed("migrate", error))?;
            let migrated = self.migrate_locked(&mut connection).await;
            match given_back(connection, migrated) {
                Err(error) if tries.again(&error) => {}
                migrated => return migrated.map_err(|error| self.failed("migrate", error))?,
            }
        }
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
        let mut connection = self.readers.get().await.map_err(|error| self.failed(operation, error))?;
        let select = sqlx::query_as::<_, (i64, i64)>(self.fill(APPLIED));
        let applied = select.fetch_optional(&mut *connection).await;
        match given_back(connection, applied) {
            Ok(applied) => Ok(applied.map_or(Applied::NOTHING, Applied::from)),
            Err(error) if is_missing_table(&error) => Ok(Applied::NOTHING),
            Err(error) => Err(self.failed(operation, error)),
        }
    }

    /// Between the look and the lock another process may migrate; the list is read again under the
    /// lock (case `migrations_side_by_side_all_pass`).
    async fn migrate_locked(&self, connection: &mut SqliteConnection) -> Result<Result<(), StoreError>, sqlx::Error> {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::raw_sql(self.fill(LIST)).execute(&mut *transaction).await?;
        let applied = sqlx::query_as::<_, (i64, i64)>(self.fill(APPLIED)).fetch_optional(&mut *transaction).await?;
        match self.missing("migrate", applied.map_or(Applied::NOTHING, Applied::from)) {
            Ok(missing) => {
                for (version, migration) in missing {
                    self.apply(&mut transaction, version, migration).await?;
                }
            }
            Err(later) => return Ok(Err(later)),
        }
        transaction.commit().await.map(Ok)
    }

    async fn apply(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        version: i64,
        migration: &Migration,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(self.fill(migration.text)).execute(&mut **transaction).await?;
        let apply = sqlx::query(self.fill(APPLY)).bind(version).bind(migration.compatible_from);
        apply.execute(&mut **transaction).await.map(drop)
    }

    fn missing(
        &self,
        operation: &'static str,
        applied: Applied,
    ) -> Result<impl Iterator<Item = (i64, &'static Migration)> + use<>, StoreError> {
        sql::missing(&MIGRATIONS, applied).map_err(|later| StoreError::permanent(NAME, operation, later))
    }

    fn fill(&self, statement: &str) -> sqlx::SqlStr {
        filled(&self.statements.table, statement)
    }
}
