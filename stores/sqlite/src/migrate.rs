//! Migrations of the table. The store keeps its own list of applied migrations, beside the one that
//! sqlx keeps for the application.

use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

use self::table::verify_table;
use crate::{
    connect::connections::{Access, return_connection},
    engine::{Engine, retry::RetryDeadline},
    error::{NAME, is_busy, is_missing_table},
    sql::{filled, query::query},
};
use idempotent_core::{Lease, OwnerToken, RecordId, StoreError};
use idempotent_sql::{AppliedVersion, Migration, Migrations};

mod table;

const LIST: &str = include_str!("sql/migrations.sql");
const APPLIED: &str = r#"
    SELECT version, compatible_from FROM main."{table}_migrations" ORDER BY version DESC LIMIT 1"#;
const APPLY: &str = r#"
    INSERT INTO main."{table}_migrations" (version, compatible_from, applied_at)
    VALUES (?1, ?2, {now})"#;
/// A released migration never changes.
const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    list: &[Migration { text: include_str!("sql/migrate_1.sql"), compatible_from: 1 }],
};

/// Creates or upgrades the table, and verifies it.
pub(crate) async fn migrate(engine: &Engine) -> Result<(), StoreError> {
    apply_migrations(engine).await?;
    verify_table(engine, "migrate").await
}

/// Verifies the version of the schema, the table and the file.
pub(crate) async fn check(engine: &Engine) -> Result<(), StoreError> {
    MIGRATIONS.verify("check", applied_version(engine, "check").await?)?;
    verify_table(engine, "check").await?;
    check_file(engine).await
}

/// Applies the pending migrations. An up-to-date database is only read, so that a start does
/// not wait for a writer.
async fn apply_migrations(engine: &Engine) -> Result<(), StoreError> {
    let applied = applied_version(engine, "migrate").await?;
    if MIGRATIONS.pending("migrate", applied)?.next().is_none() {
        return Ok(());
    }
    let deadline = RetryDeadline::on(&engine.connections.writer);
    loop {
        let mut connection = engine.connection("migrate", Access::Write).await?;
        let migrated = migrate_locked(engine, &mut connection).await;
        match return_connection(connection, migrated) {
            Err(error) if deadline.allows_retry(&error) => {}
            migrated => return migrated.map_err(|error| engine.store_error("migrate", error))?,
        }
    }
}

async fn applied_version(
    engine: &Engine,
    operation: &'static str,
) -> Result<AppliedVersion, StoreError> {
    let mut connection = engine.connection(operation, Access::Read).await?;
    let select = sqlx::query_as::<_, (i64, i64)>(fill(engine, APPLIED));
    let applied = select.fetch_optional(&mut *connection).await;
    match return_connection(connection, applied) {
        Ok(applied) => Ok(AppliedVersion::last(applied)),
        Err(error) if is_missing_table(&error) => Ok(AppliedVersion::NOTHING),
        Err(error) => Err(engine.store_error(operation, error)),
    }
}

/// Between the first check and the lock another process may migrate; reading the list again
/// under the lock prevents a second application (case `migrations_side_by_side_all_pass`).
async fn migrate_locked(
    engine: &Engine,
    connection: &mut SqliteConnection,
) -> Result<Result<(), StoreError>, sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(fill(engine, LIST)).execute(&mut *transaction).await?;
    let applied = sqlx::query_as::<_, (i64, i64)>(fill(engine, APPLIED))
        .fetch_optional(&mut *transaction)
        .await?;
    match MIGRATIONS.pending("migrate", AppliedVersion::last(applied)) {
        Ok(missing) => {
            for (version, migration) in missing {
                apply(engine, &mut transaction, version, migration).await?;
            }
        }
        Err(later) => return Ok(Err(later)),
    }
    transaction.commit().await.map(Ok)
}

async fn apply(
    engine: &Engine,
    transaction: &mut Transaction<'_, Sqlite>,
    version: i64,
    migration: &Migration,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(fill(engine, migration.text)).execute(&mut **transaction).await?;
    let apply = sqlx::query(fill(engine, APPLY)).bind(version).bind(migration.compatible_from);
    apply.execute(&mut **transaction).await.map(drop)
}

fn fill(engine: &Engine, statement: &str) -> sqlx::SqlStr {
    filled(&engine.statements.table, statement)
}

/// Refuses a file that cannot be read or written, by reading and releasing a record that does not
/// exist.
async fn check_file(engine: &Engine) -> Result<(), StoreError> {
    const OPERATION: &str = "check";
    let lease = Lease { id: RecordId::from_bytes([0; 32]), owner: OwnerToken::from_bytes([0; 16]) };
    engine.read(OPERATION, &lease.id).await?;
    let mut connection = engine.connection(OPERATION, Access::Write).await?;
    let released = query(engine.statements.steps.release(&lease)).execute(&mut *connection).await;
    match return_connection(connection, released) {
        // SQLite checks whether the file is writable before it waits for the lock, so a busy file
        // is writable.
        Err(error) if !is_busy(&error) => Err(engine.store_error(OPERATION, error)),
        Ok(_) | Err(_) => Ok(()),
    }
}
