//! What goes wrong, and whether it passes.

use std::{error::Error, fmt};

use super::NAME;
use crate::{
    error::StoreError,
    store::sql::{MissingTable, TableName},
};

/// SQLite's result codes whose cause goes away without anybody's doing: busy, locked, interrupted,
/// and a race for the WAL's lock.
const PASSING: [i32; 4] = [5, 6, 9, 15];
const BUSY: i32 = 5;
const READ_ONLY: i32 = 8;
const FULL: i32 = 13;

pub(super) fn store_error(operation: &'static str, table: &TableName, error: sqlx::Error) -> StoreError {
    if is_passing(&error) || code(&error) == Some(FULL) {
        StoreError::transient(NAME, operation, error)
    } else if is_missing_table(&error) {
        StoreError::permanent(NAME, operation, MissingTable { table: table.clone(), source: error.into() })
    } else if code(&error) == Some(READ_ONLY) {
        StoreError::permanent(NAME, operation, ReadOnly(error))
    } else {
        StoreError::permanent(NAME, operation, error)
    }
}

pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| PASSING.contains(&code))
        || matches!(
            error,
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Io(_)
        )
}

/// Whether another connection has the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    code(error) == Some(BUSY)
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    says(error, "no such table: ")
}

pub(super) fn is_missing_savepoint(error: &sqlx::Error) -> bool {
    says(error, "no such savepoint: ")
}

fn says(error: &sqlx::Error, start: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with(start))
}

/// The result code of SQLite. Its lowest byte is the code, the others give details.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}

/// The file cannot be written.
#[derive(Debug)]
struct ReadOnly(sqlx::Error);

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the database cannot be written: make the file and its directory writable for this user, and open it without \
             `mode=ro`, `immutable` and `PRAGMA query_only`",
        )
    }
}

impl Error for ReadOnly {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
