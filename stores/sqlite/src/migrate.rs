//! Migrations of the table. The store keeps its own list of applied migrations, beside the one that
//! sqlx keeps for the application.

use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

use crate::{
    connect::connections::{Access, return_connection},
    engine::retry::RetryDeadline,
    error::is_missing_table,
    sql::filled,
    store::NAME,
    store::SqliteStore,
};
use idempotent_core::StoreError;
use idempotent_sql::{AppliedVersion, Migration};

pub(crate) mod table;

const LIST: &str = include_str!("sql/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM main."{table}_migrations" ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO main."{table}_migrations" (version, compatible_from, applied_at)
    VALUES (?1, ?2, {now})"#;
/// In order, beginning with version 1. A released migration never changes.
const MIGRATIONS: [Migration; 1] =
    [Migration { text: include_str!("sql/migrate_1.sql"), compatible_from: 1 }];

impl SqliteStore {
    /// Applies the pending migrations. An up-to-date database is only read, so that a start does
    /// not wait for a writer.
    pub(crate) async fn apply_migrations(&self) -> Result<(), StoreError> {
        let applied = self.applied_version("migrate").await?;
        if self.pending("migrate", applied)?.next().is_none() {
            return Ok(());
        }
        let deadline = RetryDeadline::on(&self.writer);
        loop {
            let mut connection = self
                .connection(Access::Write)
                .await
                .map_err(|error| self.store_error("migrate", error))?;
            let migrated = self.migrate_locked(&mut connection).await;
            match return_connection(connection, migrated) {
                Err(error) if deadline.allows_retry(&error) => {}
                migrated => return migrated.map_err(|error| self.store_error("migrate", error))?,
            }
        }
    }

    /// Refuses a table that is older than this release needs, or newer than it can use.
    pub(crate) async fn check_version(&self) -> Result<(), StoreError> {
        let applied = self.applied_version("check").await?;
        if self.pending("check", applied)?.next().is_some() {
            return Err(StoreError::permanent(
                NAME,
                "check",
                idempotent_sql::SchemaTooOld::new(&MIGRATIONS, applied),
            ));
        }
        Ok(())
    }

    async fn applied_version(&self, operation: &'static str) -> Result<AppliedVersion, StoreError> {
        let mut connection = self
            .connection(Access::Read)
            .await
            .map_err(|error| self.store_error(operation, error))?;
        let select = sqlx::query_as::<_, (i64, i64)>(self.fill(APPLIED));
        let applied = select.fetch_optional(&mut *connection).await;
        match return_connection(connection, applied) {
            Ok(applied) => Ok(applied.map_or(AppliedVersion::NOTHING, AppliedVersion::from)),
            Err(error) if is_missing_table(&error) => Ok(AppliedVersion::NOTHING),
            Err(error) => Err(self.store_error(operation, error)),
        }
    }

    /// Between the first check and the lock another process may migrate; reading the list again
    /// under the lock prevents a second application (case `migrations_side_by_side_all_pass`).
    async fn migrate_locked(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Result<(), StoreError>, sqlx::Error> {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::raw_sql(self.fill(LIST)).execute(&mut *transaction).await?;
        let applied = sqlx::query_as::<_, (i64, i64)>(self.fill(APPLIED))
            .fetch_optional(&mut *transaction)
            .await?;
        match self.pending("migrate", applied.map_or(AppliedVersion::NOTHING, AppliedVersion::from))
        {
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

    fn pending(
        &self,
        operation: &'static str,
        applied: AppliedVersion,
    ) -> Result<impl Iterator<Item = (i64, &'static Migration)> + use<>, StoreError> {
        idempotent_sql::pending_migrations(&MIGRATIONS, applied)
            .map_err(|later| StoreError::permanent(NAME, operation, later))
    }

    fn fill(&self, statement: &str) -> sqlx::SqlStr {
        filled(&self.statements.table, statement)
    }
}
