//! What goes wrong, and what can be done about it.

use std::{error::Error, fmt};

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::NAME;
use crate::{
    error::StoreError,
    store::sql::{MissingTable, TableName},
};

/// What an error says about the statement that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It lost against another transaction, and nothing of it happened.
    Conflict,
    /// Its connection is gone. It may have happened.
    Lost,
    /// There was no response in time, or the store is known to be down. It may have happened.
    Unanswered,
    /// It waited too long for a lock, and nothing of it happened.
    Locked,
    /// The server refused it for a reason that passes.
    Passing,
    /// The table is not there.
    MissingTable,
    /// Its prepared form is not there, or is another one: something between here and the server hands connections around.
    Pooled,
    /// Anything else.
    Other,
}

pub(super) fn kind(error: &sqlx::Error) -> Kind {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
    if let Some(reply) = error.as_database_error().and_then(|reply| reply.try_downcast_ref::<PgDatabaseError>()) {
        kind_of_code(reply.code(), reply.severity())
    } else if matches!(error, Io(error) if error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())) {
        Kind::Unanswered
    } else if matches!(error, Io(_) | Protocol(_)) {
        Kind::Lost
    } else if matches!(error, PoolTimedOut | PoolClosed | WorkerCrashed) {
        Kind::Passing
    } else {
        Kind::Other
    }
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn kind_of_code(code: &str, severity: PgSeverity) -> Kind {
    match code {
        // What PgBouncer reports of itself before it hangs up: that a client has waited too long, or a session could not be opened.
        "08P01" if severity == PgSeverity::Fatal => Kind::Lost,
        "40001" | "40P01" => Kind::Conflict,
        LOCKED => Kind::Locked,
        // An undefined table.
        "42P01" => Kind::MissingTable,
        // No such prepared statement; one of that name is there already; another one's parameters.
        "26000" | "42P05" | "08P01" => Kind::Pooled,
        // Shut down by the administrator or a crash, starting up, dropped; and a primary that has become a standby, where a new
        // connection may find the new primary.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" => Kind::Lost,
        _ => match code.get(..2) {
            Some("08") => Kind::Lost,
            // Rolled back, out of resources, locked, cancelled, an error of the system.
            Some("40" | "53" | "55" | "57" | "58") => Kind::Passing,
            _ => Kind::Other,
        },
    }
}

/// `lock_not_available`: the wait was too long.
pub(super) const LOCKED: &str = "55P03";

/// Whether an error is a reply of the server's, which is then alive.
pub(super) fn is_reply(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some()
}

/// `query_canceled`: by an operator, or because the statement took longer than the role's `statement_timeout`.
const CANCELLED: &str = "57014";

/// Whether a statement waited too long for a record that another transaction has. One that waited for the whole table has no context.
pub(super) fn waited_for_a_record(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| [LOCKED, CANCELLED].contains(&error.code()) && error.r#where().is_some())
}

pub(super) fn store_error(operation: &'static str, table: &TableName, source: sqlx::Error) -> StoreError {
    let kind = kind(&source);
    let source = cause(source);
    match kind {
        Kind::Conflict | Kind::Lost | Kind::Unanswered | Kind::Locked | Kind::Passing => {
            StoreError::transient(NAME, operation, source)
        }
        Kind::MissingTable => StoreError::permanent(NAME, operation, MissingTable { table: table.clone(), source }),
        Kind::Pooled => StoreError::permanent(NAME, operation, Pooled { source }),
        Kind::Other => StoreError::permanent(NAME, operation, source),
    }
}

/// An error without what the server quotes of rows and values. `Debug` of sqlx's error shows all of it, such as `Failing row contains (…)`.
fn cause(error: sqlx::Error) -> Cause {
    match error.as_database_error().map(|reply| reply.try_downcast_ref::<PgDatabaseError>()) {
        Some(Some(reply)) => {
            let (code, message) = (reply.code().to_owned(), reply.message().to_owned());
            Box::new(Reply { severity: reply.severity(), code, message })
        }
        Some(None) | None => error.into(),
    }
}

type Cause = Box<dyn Error + Send + Sync>;

/// An error that the server has sent.
#[derive(Debug)]
struct Reply {
    severity: PgSeverity,
    code: String,
    message: String,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server returned {:?} {}: {}", self.severity, self.code, self.message)
    }
}

impl Error for Reply {}

/// Why a call has had no response. Its outcome is unknown.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The server took longer than anyone waits.
    TooSlow,
    /// The server is known not to respond.
    Down,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooSlow => "the server did not respond in time",
            Self::Down => "the server does not respond",
        })
    }
}

impl Error for Unanswered {}

impl From<Unanswered> for sqlx::Error {
    fn from(unanswered: Unanswered) -> Self {
        Self::Io(std::io::Error::other(unanswered))
    }
}

/// A pooler came between.
#[derive(Debug)]
struct Pooled {
    source: Cause,
}

impl fmt::Display for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pooler mixed up prepared statements; add `?statement-cache-capacity=0` to the store's URL")
    }
}

impl Error for Pooled {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_whether_to_try_again() {
        for (code, expected) in [
            ("40001", Kind::Conflict),
            ("40003", Kind::Passing),
            ("08006", Kind::Lost),
            ("08P01", Kind::Pooled),
            ("57P01", Kind::Lost),
            ("57014", Kind::Passing),
            ("55P03", Kind::Locked),
            ("53300", Kind::Passing),
            ("25006", Kind::Lost),
            ("42P01", Kind::MissingTable),
            ("42501", Kind::Other),
            ("28P01", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(kind_of_code(code, PgSeverity::Error), expected, "{code}");
        }
        assert_eq!(kind_of_code("08P01", PgSeverity::Fatal), Kind::Lost);
        assert_eq!(kind(&sqlx::Error::PoolTimedOut), Kind::Passing);
        assert_eq!(kind(&sqlx::Error::RowNotFound), Kind::Other);
        assert_eq!(kind(&Unanswered::Down.into()), Kind::Unanswered);
    }
}
