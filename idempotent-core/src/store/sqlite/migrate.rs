//! The table, and how it came to be. The list of what was applied is the store's own, beside the one that sqlx keeps for the
//! application.

use sqlx::{Connection as _, Sqlite, Transaction};

use super::{NAME, SqliteStore, error::is_missing_table, statements::filled, steps::given_back};
use crate::{error::StoreError, store::sql};

const LIST: &str = include_str!("../../sql/sqlite/migrations.sql");
const APPLIED: &str = r#"SELECT coalesce(max(version), 0) FROM "{table}_migrations""#;
const APPLY: &str = r#"INSERT INTO "{table}_migrations" (version, applied_at) VALUES (?1, {now})"#;
/// Version 1 first. What was released never changes.
const MIGRATIONS: [&str; 1] = [include_str!("../../sql/sqlite/migrate_1.sql")];

impl SqliteStore {
    /// Applies what is missing. A database that is up to date is only read, so that a start does not wait for a writer.
    pub(super) async fn apply_migrations(&self) -> Result<(), StoreError> {
        if self.missing(self.applied().await?)?.next().is_none() {
            return Ok(());
        }
        self.migrate_locked().await
    }

    async fn applied(&self) -> Result<i64, StoreError> {
        let mut connection = self.readers.get().await.map_err(|error| self.failed("migrate", error))?;
        let applied = sqlx::query_scalar(self.fill(APPLIED)).fetch_one(&mut *connection).await;
        match given_back(connection, applied) {
            Err(error) if is_missing_table(&error) => Ok(0),
            applied => applied.map_err(|error| self.failed("migrate", error)),
        }
    }

    /// Between the look and the lock another process may migrate; the list is read again under the lock (case
    /// `migrations_side_by_side_all_pass`).
    async fn migrate_locked(&self) -> Result<(), StoreError> {
        let mut connection = self.writer.get().await.map_err(|error| self.failed("migrate", error))?;
        let begun = connection.begin_with("BEGIN IMMEDIATE").await;
        let mut transaction = begun.map_err(|error| self.failed("migrate", error))?;
        let applied = self.list(&mut transaction).await.map_err(|error| self.failed("migrate", error))?;
        for (version, migration) in self.missing(applied)? {
            self.apply(&mut transaction, version, migration).await.map_err(|error| self.failed("migrate", error))?;
        }
        transaction.commit().await.map_err(|error| self.failed("migrate", error))?;
        connection.give_back();
        Ok(())
    }

    async fn list(&self, transaction: &mut Transaction<'_, Sqlite>) -> Result<i64, sqlx::Error> {
        sqlx::raw_sql(self.fill(LIST)).execute(&mut **transaction).await?;
        sqlx::query_scalar(self.fill(APPLIED)).fetch_one(&mut **transaction).await
    }

    async fn apply(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        version: i64,
        migration: &str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(self.fill(migration)).execute(&mut **transaction).await?;
        sqlx::query(self.fill(APPLY)).bind(version).execute(&mut **transaction).await.map(drop)
    }

    fn missing(&self, applied: i64) -> Result<impl Iterator<Item = (i64, &'static str)> + use<>, StoreError> {
        sql::missing(MIGRATIONS, applied).map_err(|later| StoreError::permanent(NAME, "migrate", later))
    }

    fn fill(&self, statement: &str) -> sqlx::SqlStr {
        filled(&self.statements.table, statement)
    }
}
