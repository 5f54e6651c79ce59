//! Migrations of the table. The store keeps its own list of applied migrations, beside the one that
//! sqlx keeps for the application.

use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};

use crate::{
    engine::Engine,
    error::{ErrorKind, NAME, error_kind},
    server::timeouts::RESPONSE_TIMEOUT,
    sql::{Names, positional::message},
};
use idempotent_core::{Lease, OwnerToken, RecordId, StoreError};
use idempotent_sql::{AppliedVersion, Migration, Migrations};

mod guard;
mod table;

const LIST: &str = include_str!("sql/migrations.sql");
const APPLIED: &str = "SELECT version, compatible_from FROM {schema}`{table}_migrations` \
                       ORDER BY version DESC LIMIT 1";
const APPLY: &str = "INSERT INTO {schema}`{table}_migrations` \
                     (version, compatible_from, applied_at) \
                     VALUES ({version}, {compatible_from}, {now})";
/// A released migration never changes. The server commits each of its statements by itself, so each
/// can be executed again.
const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    list: &[Migration { text: include_str!("sql/migrate_1.sql"), compatible_from: 1 }],
};
/// Taken by the session, which is closed afterwards. Names of locks have at most 64 characters.
const LOCK: &str = "SELECT GET_LOCK(SHA1('idempotent {quoted_schema}.{table}'), 60) = 1 AS locked";
/// A large table takes time, and another process may be migrating.
const PATIENT: &str = "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60; ";

/// Creates or upgrades the table, and verifies what the store needs.
pub(crate) async fn migrate(engine: &Engine) -> Result<(), StoreError> {
    apply_migrations(engine).await?;
    table::verify(engine, "migrate").await
}

/// Verifies what the store needs.
pub(crate) async fn check(engine: &Engine) -> Result<(), StoreError> {
    MIGRATIONS.verify("check", applied_version(engine, "check").await?)?;
    table::verify(engine, "check").await?;
    check_privileges(engine).await?;
    guard::verify(engine).await
}

/// Applies the pending migrations. An up-to-date database is only read, so that a start needs no
/// privilege to create tables.
async fn apply_migrations(engine: &Engine) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error("migrate", error);
    let applied = applied_version(engine, "migrate").await?;
    if MIGRATIONS.pending("migrate", applied)?.next().is_none() {
        return Ok(());
    }
    // Between the first check and the lock another process may migrate; reading the list again
    // under the lock prevents a second application (case `migrations_side_by_side_all_pass`).
    let mut connection = engine.pools.steps.get_verified().await.map_err(to_store_error)?;
    let migrated = apply_under_lock(&engine.statements.names, &mut connection).await;
    // Its session is not as it was, and has the lock.
    connection.close();
    migrated.map_err(to_store_error)?
}

async fn apply_under_lock(
    names: &Names,
    connection: &mut MySqlConnection,
) -> Result<Result<(), StoreError>, sqlx::Error> {
    let unlimited =
        if is_mariadb(connection).await? { "SET SESSION max_statement_time = 0; " } else { "" };
    let locked = text(names, connection, &format!("{PATIENT}{unlimited}{LOCK}")).await?;
    let locked = locked.first().map(|row| row.try_get::<i64, _>("locked")).transpose()?;
    if locked != Some(1) {
        return Err(sqlx::Error::AnyDriverError(MigrationLocked.into()));
    }
    text(names, connection, LIST).await?;
    match MIGRATIONS.pending("migrate", last(&text(names, connection, APPLIED).await?)?) {
        Ok(pending) => {
            for (version, migration) in pending {
                text(names, connection, migration.text).await?;
                let apply = APPLY
                    .replace("{version}", &version.to_string())
                    .replace("{compatible_from}", &migration.compatible_from.to_string());
                text(names, connection, &apply).await?;
            }
            Ok(Ok(()))
        }
        Err(later) => Ok(Err(later)),
    }
}

async fn is_mariadb(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let version = message("SELECT VERSION()").fetch_one(connection).await?;
    Ok(version.try_get::<String, _>(0)?.contains("MariaDB"))
}

async fn applied_version(
    engine: &Engine,
    operation: &'static str,
) -> Result<AppliedVersion, StoreError> {
    let to_store_error = |error| engine.store_error(operation, error);
    let mut connection = engine.pools.steps.get_verified().await.map_err(to_store_error)?;
    let rows = text(&engine.statements.names, &mut connection, APPLIED);
    let rows = engine.pools.health.exchange(RESPONSE_TIMEOUT, rows).await;
    engine.put_back(connection, rows.as_ref().err());
    match rows.and_then(|rows| last(&rows)) {
        Err(error) if error_kind(&error) == ErrorKind::MissingTable => Ok(AppliedVersion::NOTHING),
        applied => applied.map_err(to_store_error),
    }
}

/// Executes one or more statements as plain text, which leaves nothing prepared in the session.
async fn text(
    names: &Names,
    connection: &mut MySqlConnection,
    text: &str,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    message(names.fill(text)).fetch_all(connection).await
}

fn last(rows: &[MySqlRow]) -> Result<AppliedVersion, sqlx::Error> {
    use sqlx::FromRow as _;
    rows.first().map(<(i64, i64)>::from_row).transpose().map(AppliedVersion::last)
}

/// Statements that need every privilege of the store, and change nothing.
const PRIVILEGES: [&str; 5] = [
    "INSERT INTO {schema}`{table}` (id, state, fingerprint, owner, attempt, abandoned, lease, \
     lease_until, first_seen, expires_at) SELECT '', 1, '', '', 1, 0, 0, 0, 0, 0 FROM \
     (SELECT 1) AS one WHERE 1 = 0",
    "UPDATE {schema}`{table}` SET state = 1 WHERE 1 = 0",
    "DELETE FROM {schema}`{table}` WHERE 1 = 0",
    "SELECT COUNT(*) FROM {schema}`{table}_audit` WHERE 1 = 0",
    "INSERT INTO {schema}`{table}_audit` (at, action, record_id, operation, `before`, after, \
     actor, reason) SELECT 0, '', '', '', '', '', '', '' FROM (SELECT 1) AS one WHERE 1 = 0",
];

/// Refuses a user that lacks a privilege, by asking the server with each kind of statement, and
/// connections of which one meets another server or another user.
async fn check_privileges(engine: &Engine) -> Result<(), StoreError> {
    const OPERATION: &str = "check";
    let to_store_error = |error| engine.store_error(OPERATION, error);
    let nothing =
        Lease { id: RecordId::from_bytes([0; 32]), owner: OwnerToken::from_bytes([0; 16]) };
    engine.read(OPERATION, &nothing.id).await?;
    for (_, connections) in engine.pools.kinds() {
        let mut connection = match connections.get_verified().await {
            Ok(connection) => connection,
            // Steps or handlers use all of them, and the next check may find one.
            Err(sqlx::Error::PoolTimedOut) => continue,
            Err(error) => return Err(to_store_error(error)),
        };
        let asked = async {
            for statement in PRIVILEGES {
                text(&engine.statements.names, &mut connection, statement).await?;
            }
            Ok(())
        };
        let asked = engine.pools.health.exchange(RESPONSE_TIMEOUT, asked).await;
        engine.put_back(connection, asked.as_ref().err());
        asked.map_err(to_store_error)?;
    }
    Ok(())
}

/// Another process is migrating.
#[derive(Debug, thiserror::Error)]
#[error("another process has the lock of the migration for more than a minute")]
struct MigrationLocked;
