//! SQLite's errors, and whether they are transient.

use super::{NAME, database_file::FileChanged};
use crate::{
    error::StoreError,
    store::sql::{MissingTable, TableName, UnsafeSetting},
};

/// SQLite's result codes that are transient: busy, locked, interrupted, and a race for the WAL
/// lock.
const TRANSIENT: [i32; 4] = [5, 6, 9, 15];
const BUSY: i32 = 5;
const BUSY_SNAPSHOT: i32 = 517;
const READ_ONLY: i32 = 8;
const FULL: i32 = 13;

pub(super) fn store_error(
    operation: &'static str,
    table: &TableName,
    error: sqlx::Error,
) -> StoreError {
    if is_transient(&error) || code(&error) == Some(FULL) {
        StoreError::transient(NAME, operation, error)
    } else if is_missing_table(&error) {
        StoreError::permanent(
            NAME,
            operation,
            MissingTable { operation, table: table.clone(), source: Some(error.into()) },
        )
    } else if code(&error) == Some(READ_ONLY) {
        StoreError::permanent(NAME, operation, ReadOnly(error))
    } else {
        StoreError::permanent(NAME, operation, error)
    }
}

pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| TRANSIENT.contains(&code))
        || matches!(
            error,
            sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::Io(_)
        )
        || matches!(error, sqlx::Error::AnyDriverError(source) if source.is::<FileChanged>())
}

/// Whether another connection holds the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    code(error) == Some(BUSY)
}

/// Whether the connection has a transaction that began before another connection wrote, so that it
/// cannot write.
pub(super) fn is_stale_snapshot(error: &sqlx::Error) -> bool {
    extended_code(error) == Some(BUSY_SNAPSHOT)
}

/// A setting under which records could be lost.
pub(super) fn unsafe_setting(
    setting: &'static str,
    actual: String,
    required: &'static str,
) -> sqlx::Error {
    let setting = UnsafeSetting { database: "SQLite", setting, actual, required };
    sqlx::Error::Configuration(Box::new(setting))
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    message_starts_with(error, "no such table: ")
}

pub(super) fn is_missing_savepoint(error: &sqlx::Error) -> bool {
    message_starts_with(error, "no such savepoint: ")
}

fn message_starts_with(error: &sqlx::Error, start: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with(start))
}

/// SQLite's result code. Its lowest byte is the code, the others give details.
fn code(error: &sqlx::Error) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database cannot be written: make the file and its directory writable for this user, and \
     open it without `mode=ro`, `immutable` and `PRAGMA query_only`"
)]
struct ReadOnly(#[source] sqlx::Error);
