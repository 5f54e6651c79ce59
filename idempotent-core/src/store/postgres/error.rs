//! Postgres errors, classified by what the store does about them.

use std::error::Error;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::NAME;
use crate::{
    error::StoreError,
    store::sql::{MissingTable, TableName},
};

/// What an error means for the statement that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// Lost against another transaction; the statement had no effect.
    Conflict,
    /// The connection is lost; the statement may have taken effect.
    ConnectionLost,
    /// There was no response in time, or the server is known to be down; the statement may have
    /// taken effect.
    NoResponse,
    /// Waited too long for a lock; the statement had no effect.
    LockTimeout,
    /// Refused by the server for a transient reason.
    Transient,
    /// The table does not exist.
    MissingTable,
    /// The prepared statement is missing or another one's: a pooler shares the session between
    /// clients.
    PoolerInterference,
    /// Any other error.
    Other,
}

/// Why a call got no response, if it got none.
pub(super) fn no_response(error: &sqlx::Error) -> Option<&NoResponse> {
    let sqlx::Error::Io(error) = error else { return None };
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

pub(super) fn error_kind(error: &sqlx::Error) -> ErrorKind {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
    if let Some(reply) =
        error.as_database_error().and_then(|reply| reply.try_downcast_ref::<PgDatabaseError>())
    {
        kind_of_code(reply.code(), reply.severity())
    } else if no_response(error).is_some() {
        ErrorKind::NoResponse
    } else if matches!(error, Io(_) | Protocol(_)) {
        ErrorKind::ConnectionLost
    } else if matches!(error, PoolTimedOut | PoolClosed | WorkerCrashed) {
        ErrorKind::Transient
    } else {
        ErrorKind::Other
    }
}

/// See <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn kind_of_code(code: &str, severity: PgSeverity) -> ErrorKind {
    match code {
        // PgBouncer's own errors before it closes a connection: a client waited too long, or no
        // session could be opened.
        "08P01" if severity == PgSeverity::Fatal => ErrorKind::ConnectionLost,
        "40001" | "40P01" => ErrorKind::Conflict,
        LOCKED => ErrorKind::LockTimeout,
        // `undefined_table`.
        "42P01" => ErrorKind::MissingTable,
        // No such prepared statement; a duplicate name; the parameters of another statement.
        "26000" | "42P05" | "08P01" => ErrorKind::PoolerInterference,
        // Shut down, crashed, starting up, or dropped; and a primary that has become a standby,
        // where a new connection may reach the new primary.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" => ErrorKind::ConnectionLost,
        _ => match code.get(..2) {
            Some("08") => ErrorKind::ConnectionLost,
            // Rolled back, out of resources, locked, cancelled, or a system error.
            Some("40" | "53" | "55" | "57" | "58") => ErrorKind::Transient,
            _ => ErrorKind::Other,
        },
    }
}

/// `lock_not_available`: the wait for a lock exceeded `lock_timeout`.
pub(super) const LOCKED: &str = "55P03";

/// Whether an error was sent by the server, which is therefore responding.
pub(super) fn is_reply(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some()
}

/// `query_canceled`: by an operator, or because the statement exceeded `statement_timeout`.
const CANCELLED: &str = "57014";

/// Whether a statement waited too long for a record that another transaction holds. The error of a
/// wait for the whole table has no context.
pub(super) fn waited_for_a_record(error: &sqlx::Error) -> bool {
    let error =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| {
        [LOCKED, CANCELLED].contains(&error.code()) && error.r#where().is_some()
    })
}

/// The same for a statement that changes a record which has just been read. If several sessions
/// wait for one record, the errors of all but the first have no context.
pub(super) fn waited_for_an_existing_record(error: &sqlx::Error) -> bool {
    waited_for_a_record(error) || error_kind(error) == ErrorKind::LockTimeout
}

pub(super) fn store_error(
    operation: &'static str,
    table: &TableName,
    source: sqlx::Error,
) -> StoreError {
    let kind = error_kind(&source);
    let source = without_row_values(source);
    match kind {
        ErrorKind::Conflict
        | ErrorKind::ConnectionLost
        | ErrorKind::NoResponse
        | ErrorKind::LockTimeout
        | ErrorKind::Transient => StoreError::transient(NAME, operation, source),
        ErrorKind::MissingTable => {
            StoreError::permanent(NAME, operation, MissingTable { table: table.clone(), source })
        }
        ErrorKind::PoolerInterference => {
            StoreError::permanent(NAME, operation, PoolerInterference { source })
        }
        ErrorKind::Other => StoreError::permanent(NAME, operation, source),
    }
}

/// Removes the row values that the server quotes. The `Debug` output of sqlx's error contains all
/// of them, such as `Failing row contains (…)`.
fn without_row_values(error: sqlx::Error) -> BoxedError {
    match error.as_database_error().map(|reply| reply.try_downcast_ref::<PgDatabaseError>()) {
        Some(Some(reply)) => {
            let (code, message) = (reply.code().to_owned(), reply.message().to_owned());
            Box::new(ServerError { severity: reply.severity(), code, message })
        }
        Some(None) | None => error.into(),
    }
}

type BoxedError = Box<dyn Error + Send + Sync>;

/// An error that the server sent.
#[derive(Debug, thiserror::Error)]
#[error("the server returned {severity:?} {code}: {message}")]
struct ServerError {
    severity: PgSeverity,
    code: String,
    message: String,
}

/// Why a call got no response. Its outcome is unknown.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum NoResponse {
    /// The time limit of the call was exceeded.
    #[error("the server did not respond in time")]
    TimedOut,
    /// The server is known not to respond.
    #[error("the server does not respond")]
    Down,
}

impl From<NoResponse> for sqlx::Error {
    fn from(no_response: NoResponse) -> Self {
        Self::Io(std::io::Error::other(no_response))
    }
}

/// A pooler shares the server's session with another client.
#[derive(Debug, thiserror::Error)]
#[error(
    "a pooler mixed up prepared statements; add `?statement-cache-capacity=0` to the store's URL"
)]
struct PoolerInterference {
    source: BoxedError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_how_to_handle_them() {
        for (code, expected) in [
            ("40001", ErrorKind::Conflict),
            ("40003", ErrorKind::Transient),
            ("08006", ErrorKind::ConnectionLost),
            ("08P01", ErrorKind::PoolerInterference),
            ("57P01", ErrorKind::ConnectionLost),
            ("57014", ErrorKind::Transient),
            ("55P03", ErrorKind::LockTimeout),
            ("53300", ErrorKind::Transient),
            ("25006", ErrorKind::ConnectionLost),
            ("42P01", ErrorKind::MissingTable),
            ("42501", ErrorKind::Other),
            ("28P01", ErrorKind::Other),
            ("", ErrorKind::Other),
        ] {
            assert_eq!(kind_of_code(code, PgSeverity::Error), expected, "{code}");
        }
        assert_eq!(kind_of_code("08P01", PgSeverity::Fatal), ErrorKind::ConnectionLost);
        assert_eq!(error_kind(&sqlx::Error::PoolTimedOut), ErrorKind::Transient);
        assert_eq!(error_kind(&sqlx::Error::RowNotFound), ErrorKind::Other);
        assert_eq!(error_kind(&NoResponse::Down.into()), ErrorKind::NoResponse);
    }
}
