//! Migrations of the table. The store keeps its own list of applied migrations, beside the one that
//! sqlx keeps for the application.

use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Postgres, Row, Transaction, postgres::PgRow,
};

use crate::{
    error::NAME,
    error::{PgErrorKind, error_kind, is_unusable},
    store::PostgresStore,
};
use idempotent_core::StoreError;
use idempotent_sql::{AppliedVersion, Migration};

pub(crate) mod privileges;
pub(crate) mod sessions;
pub(crate) mod table_facts;

const LIST: &str = include_str!("sql/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM {schema}"{table}_migrations"
    ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO {schema}"{table}_migrations" (version, compatible_from, applied_at)
    VALUES ({version}, {compatible_from}, {now})"#;
/// In order, beginning with version 1. A released migration never changes.
const MIGRATIONS: [Migration; 1] =
    [Migration { text: include_str!("sql/migrate_1.sql"), compatible_from: 1 }];
const ROOM: &str = include_str!("sql/room.sql");
const PARTITION: &str = include_str!("sql/partition.sql");

/// Another process may be migrating, and a large table takes time, so the usual time limits are too
/// short.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1min'; \
                     SET LOCAL statement_timeout = 0";
/// Held by the transaction, so that a pooler keeps the session and nothing has to be unlocked. One
/// lock for all tables of a schema, because the first migration creates the schema.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('idempotent {schema}', 0))";
/// Reads the catalog itself, because a session's cached view of it may be older than the lock.
const SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}')";
/// Each update of a record writes a new row version; one that fits into the same page writes no
/// index. Each record has at least two versions, so there is always something to vacuum.
const STORAGE: &str =
    "WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = false)";

impl PostgresStore {
    /// Applies the pending migrations. An up-to-date database is only read, so that a start needs
    /// no privilege to create tables.
    pub(crate) async fn apply_migrations(&self) -> Result<(), StoreError> {
        let to_store_error = |error| self.store_error("migrate", error);
        if self.pending("migrate", self.applied_version("migrate").await?)?.next().is_none() {
            return Ok(());
        }
        // Between the first check and the lock another process may migrate; reading the list again
        // under the lock, with statements that see what was committed meanwhile, prevents a second
        // application (case `migrations_side_by_side_all_pass`).
        let mut connection = self.pools.steps.get().await.map_err(to_store_error)?;
        let migrated = self.apply_under_lock(&mut connection).await;
        match &migrated {
            Ok(Ok(())) => connection.give_back(),
            Err(error) if is_unusable(error) => connection.close(),
            // Dropped, so that the transaction is rolled back first.
            Ok(Err(_)) | Err(_) => drop(connection),
        }
        migrated.map_err(to_store_error)?
    }

    async fn apply_under_lock(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Result<(), StoreError>, sqlx::Error> {
        let mut transaction = connection.begin_with(BEGIN).await?;
        let applied = self.list(&mut transaction).await?;
        match self.pending("migrate", applied) {
            Ok(pending) => {
                for (version, migration) in pending {
                    self.apply(&mut transaction, version, migration).await?;
                }
            }
            Err(later) => return Ok(Err(later)),
        }
        transaction.commit().await.map(Ok)
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
            .pools
            .steps
            .get_verified()
            .await
            .map_err(|error| self.store_error(operation, error))?;
        let rows =
            sqlx::raw_sql(AssertSqlSafe(self.fill(APPLIED))).fetch_all(&mut *connection).await;
        self.put_back(connection, rows.as_ref());
        match rows.and_then(|rows| last(&rows)) {
            Err(error) if error_kind(&error) == PgErrorKind::MissingTable => {
                Ok(AppliedVersion::NOTHING)
            }
            applied => applied.map_err(|error| self.store_error(operation, error)),
        }
    }

    async fn list(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
    ) -> Result<AppliedVersion, sqlx::Error> {
        self.text(transaction, &self.fill(LOCK).replace('"', "")).await?;
        if let Some(schema) = &self.names().schema {
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
            let text = PARTITION
                .replace("{parts}", &parts.to_string())
                .replace("{part}", &part.to_string());
            self.text(transaction, &text.replace("{storage}", STORAGE)).await?;
        }
        if version == 1 {
            self.text(transaction, &ROOM.replace("{parts}", &parts.max(1).to_string())).await?;
        }
        let compatible_from = migration.compatible_from.to_string();
        let apply = APPLY
            .replace("{version}", &version.to_string())
            .replace("{compatible_from}", &compatible_from);
        self.text(transaction, &apply).await.map(drop)
    }

    /// Executes one or more statements as plain text, which leaves nothing prepared in the session.
    async fn text(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        text: &str,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(self.fill(text))).fetch_all(&mut **transaction).await
    }

    fn pending(
        &self,
        operation: &'static str,
        applied: AppliedVersion,
    ) -> Result<impl Iterator<Item = (i64, &'static Migration)> + use<>, StoreError> {
        idempotent_sql::pending_migrations(&MIGRATIONS, applied)
            .map_err(|later| StoreError::permanent(NAME, operation, later))
    }

    fn fill(&self, text: &str) -> String {
        self.names().fill(text)
    }
}

fn last(rows: &[PgRow]) -> Result<AppliedVersion, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(AppliedVersion::NOTHING) };
    Ok(AppliedVersion { version: row.try_get(0)?, compatible_from: row.try_get(1)? })
}
