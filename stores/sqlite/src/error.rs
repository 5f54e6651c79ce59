//! SQLite errors, classified by what the store does about them.

use std::path::PathBuf;

use idempotent_core::{
    StoreError,
    store::{
        Cause::{self, Permanent, Temporary},
        ConnectionState::{self, Good, Unusable},
        Effect::{self, None as NoEffect, Unknown},
        ErrorClass,
    },
};
use idempotent_sql::{MissingTable, TableName, UnsafeSetting};

#[cfg(test)]
mod tests;

/// The name of the store in its errors.
pub(crate) const NAME: &str = "sqlite";

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READ_ONLY: i32 = 8;
const CANNOT_OPEN: i32 = 14;
const PROTOCOL: i32 = 15;

/// A result code, or the lowest byte of several; and the answers to the three questions.
type Row = (i32, ErrorClass);

const fn row(code: i32, effect: Effect, cause: Cause, connection: ConnectionState) -> Row {
    (code, ErrorClass::new(effect, cause, connection))
}

/// The table of SQLite's result codes; the first row that fits applies. SQLite undoes a statement
/// that fails. A commit that could not be written completely is undone too, but may be found in the
/// write-ahead log after a crash.
///
/// The error may be caused by the state of the connection, so only one that another connection has
/// caused, or the data, leaves it good.
///
/// See <https://www.sqlite.org/rescode.html>.
#[rustfmt::skip]
const CODES: &[Row] = &[
    // `BUSY_SNAPSHOT`: the connection reads what was there before another one wrote.
    row(517,         NoEffect, Temporary, Unusable),
    // `BUSY`: another connection has the lock; `LOCKED_SHAREDCACHE`, `LOCKED`: the same, with a
    // shared cache or an unfinished statement.
    row(BUSY,        NoEffect, Temporary, Good),
    row(262,         NoEffect, Temporary, Good),
    row(LOCKED,      NoEffect, Temporary, Unusable),
    // `ABORT`: rolled back by another statement; `NOMEM`; `INTERRUPT`: by a dropped handler.
    row(4,           NoEffect, Temporary, Unusable),
    row(7,           NoEffect, Temporary, Unusable),
    row(9,           NoEffect, Temporary, Unusable),
    // `READONLY_DBMOVED`, as `FileChanged`; `READONLY`: opened without the right to write.
    row(1032,        NoEffect, Temporary, Unusable),
    row(READ_ONLY,   NoEffect, Permanent, Unusable),
    // `IOERR`: a disk or a file system fails.
    row(10,          Unknown,  Temporary, Unusable),
    // `FULL`: the disk; `CANTOPEN`: too many open files, or the directory is not mounted.
    row(13,          NoEffect, Temporary, Unusable),
    row(CANNOT_OPEN, NoEffect, Temporary, Unusable),
    // `PROTOCOL`: a race for the write-ahead log; `SCHEMA`: the schema keeps changing.
    row(PROTOCOL,    NoEffect, Temporary, Unusable),
    row(17,          NoEffect, Temporary, Unusable),
    // `TOOBIG`, `CONSTRAINT`, `MISMATCH`: a value that the table refuses, or a trigger.
    row(18,          NoEffect, Permanent, Good),
    row(19,          NoEffect, Permanent, Good),
    row(20,          NoEffect, Permanent, Good),
];

/// The class of all other codes: `ERROR`, such as a missing table; `CORRUPT`, `NOTADB`, `PERM`,
/// `AUTH` and so on.
const OTHER: ErrorClass = ErrorClass::new(NoEffect, Permanent, Unusable);

/// What an error means for the call that failed.
pub(crate) fn error_class(error: &sqlx::Error) -> ErrorClass {
    use sqlx::Error::{AnyDriverError, Io, PoolClosed, PoolTimedOut, WorkerCrashed};
    if let Some(code) = code(error) {
        let fits = |row: &&Row| row.0 == code || row.0 == code & 0xff;
        return CODES.iter().find(fits).map_or(OTHER, |row| row.1);
    }
    let is_changed = matches!(error, AnyDriverError(source) if source.is::<FileChanged>());
    if is_changed || matches!(error, PoolTimedOut | PoolClosed) {
        ErrorClass::new(NoEffect, Temporary, Good)
    } else if matches!(error, WorkerCrashed | Io(_)) {
        // The thread of the connection, or opening one.
        ErrorClass::new(Unknown, Temporary, Unusable)
    } else {
        // The options of a connection are refused, or a row cannot be decoded.
        ErrorClass::new(Unknown, Permanent, Unusable)
    }
}

pub(crate) fn store_error(
    operation: &'static str,
    table: &TableName,
    error: sqlx::Error,
) -> StoreError {
    let class = error_class(&error);
    if is_missing_table(&error) {
        let missing = MissingTable { operation, table: table.clone(), source: Some(error.into()) };
        class.into_error(NAME, operation, missing)
    } else if has_code(&error, &[READ_ONLY]) && class.cause == Permanent {
        class.into_error(NAME, operation, ReadOnly(error))
    } else if let sqlx::Error::AnyDriverError(own) = error {
        class.into_error(NAME, operation, own)
    } else {
        class.into_error(NAME, operation, error)
    }
}

pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    error_class(error).cause == Temporary
}

/// Whether the connection on which the error occurred must not be used again.
pub(crate) fn is_unusable(error: &sqlx::Error) -> bool {
    error_class(error).connection == Unusable
}

/// Whether the error proves that the call had no effect.
pub(crate) fn had_no_effect(error: &sqlx::Error) -> bool {
    error_class(error).effect == NoEffect
}

/// Whether another connection holds the lock.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    has_code(error, &[BUSY])
}

/// Whether another connection opened the file at the same time.
pub(crate) fn is_lost_race(error: &sqlx::Error) -> bool {
    has_code(error, &[BUSY, LOCKED, PROTOCOL])
}

/// Whether the file could not be opened.
pub(crate) fn cannot_open(error: &sqlx::Error) -> bool {
    has_code(error, &[CANNOT_OPEN])
}

/// A setting under which records could be lost.
pub(crate) fn unsafe_setting(
    setting: &'static str,
    actual: String,
    required: &'static str,
) -> sqlx::Error {
    let setting = UnsafeSetting { database: "SQLite", setting, actual, required };
    sqlx::Error::Configuration(Box::new(setting))
}

pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    message_starts_with(error, "no such table: ")
}

pub(crate) fn is_missing_savepoint(error: &sqlx::Error) -> bool {
    message_starts_with(error, "no such savepoint: ")
}

fn message_starts_with(error: &sqlx::Error, start: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with(start))
}

fn has_code(error: &sqlx::Error, codes: &[i32]) -> bool {
    code(error).is_some_and(|code| codes.contains(&(code & 0xff)))
}

/// SQLite's extended result code. Its lowest byte is the code, the others give details.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database cannot be written: make the file and its directory writable for this user, and \
     open it without `mode=ro`, `immutable` and `PRAGMA query_only`"
)]
struct ReadOnly(#[source] sqlx::Error);

/// The path of the database leads to another file than the one that is open, or to none.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database file `{}` was moved, replaced or deleted while it was open, so nothing is \
     written to it any more; restart the process, or put the file back in its place",
    path.display()
)]
pub(crate) struct FileChanged {
    pub(crate) path: PathBuf,
}
