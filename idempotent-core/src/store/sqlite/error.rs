//! What goes wrong, and whether it passes.

use super::NAME;
use crate::{
    error::StoreError,
    store::sql::{MissingTable, TableName},
};

/// SQLite's result codes whose cause goes away by itself: busy, locked, interrupted, and a race for the WAL's lock.
const PASSING: [i32; 4] = [5, 6, 9, 15];

pub(super) fn store_error(operation: &'static str, table: &TableName, error: sqlx::Error) -> StoreError {
    if is_passing(&error) {
        StoreError::transient(NAME, operation, error)
    } else if is_missing_table(&error) {
        StoreError::permanent(NAME, operation, MissingTable { table: table.clone(), source: error })
    } else {
        StoreError::permanent(NAME, operation, error)
    }
}

pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    // The lowest byte is the code, the others tell more of it.
    code.is_some_and(|code| PASSING.contains(&(code & 0xff)))
        || matches!(
            error,
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Io(_)
        )
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with("no such table: "))
}
