//! Migrations of the table. The store keeps its own list of applied migrations, beside the one that
//! sqlx keeps for the application.

use sqlx::{
    AssertSqlSafe, Connection as _, FromRow, PgConnection, Postgres, Row, Transaction,
    postgres::PgRow,
};

use crate::{
    engine::Engine,
    error::{NAME, PgErrorKind, error_kind, is_unusable},
    sql::names::Names,
};
use idempotent_core::StoreError;
use idempotent_sql::{AppliedVersion, Migration, Migrations};

mod privileges;
mod sessions;
mod table_facts;

const LIST: &str = include_str!("sql/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM {schema}"{table}_migrations"
    ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO {schema}"{table}_migrations" (version, compatible_from, applied_at)
    VALUES ({version}, {compatible_from}, {now})"#;
/// A released migration never changes.
const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    list: &[Migration { text: include_str!("sql/migrate_1.sql"), compatible_from: 1 }],
};
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

/// Creates or upgrades the table, and verifies what the store needs. A new table has this number of
/// partitions.
pub(crate) async fn migrate(engine: &Engine, partitions: u16) -> Result<(), StoreError> {
    apply_migrations(engine, partitions).await?;
    privileges::verify(engine, "migrate").await?;
    table_facts::verify(engine, "migrate").await
}

/// Verifies what the store needs.
pub(crate) async fn check(engine: &Engine) -> Result<(), StoreError> {
    privileges::verify(engine, "check").await?;
    MIGRATIONS.verify("check", applied_version(engine, "check").await?)?;
    table_facts::verify(engine, "check").await
}

/// Applies the pending migrations. An up-to-date database is only read, so that a start needs no
/// privilege to create tables.
async fn apply_migrations(engine: &Engine, partitions: u16) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error("migrate", error);
    let applied = applied_version(engine, "migrate").await?;
    if MIGRATIONS.pending("migrate", applied)?.next().is_none() {
        return Ok(());
    }
    // Between the first check and the lock another process may migrate; reading the list again
    // under the lock, with statements that see what was committed meanwhile, prevents a second
    // application (case `migrations_side_by_side_all_pass`).
    let mut connection = engine.pools.steps.get().await.map_err(to_store_error)?;
    let migrated = apply_under_lock(engine.names(), &mut connection, partitions).await;
    match &migrated {
        Ok(Ok(())) => connection.give_back(),
        Err(error) if is_unusable(error) => connection.close(),
        // Dropped, so that the transaction is rolled back first.
        Ok(Err(_)) | Err(_) => drop(connection),
    }
    migrated.map_err(to_store_error)?
}

async fn apply_under_lock(
    names: &Names,
    connection: &mut PgConnection,
    partitions: u16,
) -> Result<Result<(), StoreError>, sqlx::Error> {
    let mut transaction = connection.begin_with(BEGIN).await?;
    let applied = list(names, &mut transaction).await?;
    match MIGRATIONS.pending("migrate", applied) {
        Ok(pending) => {
            for (version, migration) in pending {
                apply(names, &mut transaction, (version, migration), partitions).await?;
            }
        }
        Err(later) => return Ok(Err(later)),
    }
    transaction.commit().await.map(Ok)
}

async fn applied_version(
    engine: &Engine,
    operation: &'static str,
) -> Result<AppliedVersion, StoreError> {
    let mut connection = engine
        .pools
        .steps
        .get_verified()
        .await
        .map_err(|error| engine.store_error(operation, error))?;
    let rows = sqlx::raw_sql(AssertSqlSafe(engine.names().fill(APPLIED)))
        .fetch_all(&mut *connection)
        .await;
    engine.put_back(connection, rows.as_ref());
    match rows.and_then(|rows| last(&rows)) {
        Err(error) if error_kind(&error) == PgErrorKind::MissingTable => {
            Ok(AppliedVersion::NOTHING)
        }
        applied => applied.map_err(|error| engine.store_error(operation, error)),
    }
}

async fn list(
    names: &Names,
    transaction: &mut Transaction<'_, Postgres>,
) -> Result<AppliedVersion, sqlx::Error> {
    text(names, transaction, &names.fill(LOCK).replace('"', "")).await?;
    if let Some(schema) = &names.schema {
        let there = text(names, transaction, &SCHEMA.replace("{name}", schema.as_str())).await?;
        if !there.first().map_or(Ok(false), |row| row.try_get(0))? {
            text(names, transaction, &format!("CREATE SCHEMA \"{}\"", schema.as_str())).await?;
        }
    }
    text(names, transaction, LIST).await?;
    last(&text(names, transaction, APPLIED).await?)
}

async fn apply(
    names: &Names,
    transaction: &mut Transaction<'_, Postgres>,
    (version, migration): (i64, &Migration),
    partitions: u16,
) -> Result<(), sqlx::Error> {
    let parts = if version == 1 { partitions } else { 0 };
    let storage = if parts > 1 { "PARTITION BY HASH (id)" } else { STORAGE };
    text(names, transaction, &migration.text.replace("{storage}", storage)).await?;
    for part in 0..if parts > 1 { parts } else { 0 } {
        let partition = PARTITION
            .replace("{parts}", &parts.to_string())
            .replace("{part}", &part.to_string())
            .replace("{storage}", STORAGE);
        text(names, transaction, &partition).await?;
    }
    if version == 1 {
        text(names, transaction, &ROOM.replace("{parts}", &parts.max(1).to_string())).await?;
    }
    let compatible_from = migration.compatible_from.to_string();
    let apply = APPLY
        .replace("{version}", &version.to_string())
        .replace("{compatible_from}", &compatible_from);
    text(names, transaction, &apply).await.map(drop)
}

/// Executes one or more statements as plain text, which leaves nothing prepared in the session.
async fn text(
    names: &Names,
    transaction: &mut Transaction<'_, Postgres>,
    text: &str,
) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(names.fill(text))).fetch_all(&mut **transaction).await
}

fn last(rows: &[PgRow]) -> Result<AppliedVersion, sqlx::Error> {
    rows.first().map(FromRow::from_row).transpose().map(AppliedVersion::last)
}
