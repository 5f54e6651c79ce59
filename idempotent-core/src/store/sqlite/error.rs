//! What goes wrong, and whether it passes.

use std::{error::Error, fmt};

use super::NAME;
use crate::{error::StoreError, store::sql::TableName};

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

/// The table is not there.
#[derive(Debug)]
struct MissingTable {
    table: TableName,
    source: sqlx::Error,
}

impl fmt::Display for MissingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no table `{}`; call `migrate()` on the store at start", self.table.as_str())
    }
}

impl Error for MissingTable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Other claims were faster each time.
#[derive(Debug)]
pub(super) struct Contended;

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("other claims for the same key came between, each time")
    }
}

impl Error for Contended {}
