//! Postgres errors, classified by what the store does about them.

use std::error::Error;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use idempotent_core::{
    StoreError,
    store::{
        Cause::{self, Permanent, Temporary},
        ConnectionState::{self, Good, Unusable},
        Effect::{self, None as NoEffect, Unknown},
        ErrorClass,
    },
};
use idempotent_sql::{MissingTable, TableName};

/// The name of the store in errors.
pub(crate) const NAME: &str = "postgres";

/// An error to which the store has a special reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PgErrorKind {
    /// Lost against another transaction.
    Conflict,
    /// Waited too long for a lock.
    LockTimeout,
    /// There was no response in time, or the server is known to be down.
    NoResponse,
    /// The table does not exist.
    MissingTable,
    /// The prepared statement is missing or another one's: a pooler shares the session between
    /// clients, or a handler has dropped the statement.
    PoolerInterference,
    /// The other connections are presumed unusable too: their server has become a standby, or a
    /// migration has changed what the statements that were prepared on them return.
    StaleConnections,
    /// Any other error, about which its class says everything.
    Other,
}

/// An SQLSTATE, or the first two characters of several; its kind; and the answers to the three
/// questions.
type Row = (&'static str, PgErrorKind, ErrorClass);

const fn row(
    code: &'static str,
    kind: PgErrorKind,
    effect: Effect,
    cause: Cause,
    connection: ConnectionState,
) -> Row {
    (code, kind, ErrorClass::new(effect, cause, connection))
}

/// The table of all errors that a server sends; the first row that fits applies. After an error
/// that ends its session (`FATAL`), the connection is unusable whatever its row says; and unless
/// the row names the whole code, the effect is unknown then. Any other error means that the
/// statement and its transaction had no effect.
///
/// See <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
#[rustfmt::skip]
const SQLSTATES: &[Row] = &[
    // `connection_exception`, of the server or of a pooler, which has mixed up statements if the
    // number of parameters is wrong; `transaction_resolution_unknown`.
    row("08P01", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable),
    row("08",    PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    // `BEGIN READ WRITE` on a standby; "cached plan must not change result type".
    row("0A000", PgErrorKind::StaleConnections,   NoEffect, Temporary, Unusable),
    // `invalid_transaction_state`. The server has become a standby, or somebody has made it
    // read-only; it has ended the session of a transaction that was idle, or open, for too long.
    row("25006", PgErrorKind::StaleConnections,   NoEffect, Temporary, Unusable),
    row("25P03", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("25P04", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("25",    PgErrorKind::Other,              NoEffect, Permanent, Unusable),
    row("26000", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable), // not prepared
    // `invalid_catalog_name`: the database does not exist while it is restored.
    row("3D000", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    // `transaction_rollback`: not serializable, a deadlock; `statement_completion_unknown`.
    row("40001", PgErrorKind::Conflict,           NoEffect, Temporary, Good),
    row("40P01", PgErrorKind::Conflict,           NoEffect, Temporary, Good),
    row("40003", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("40",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `syntax_error_or_access_rule_violation`: what `check` and `migrate` report.
    row("42P01", PgErrorKind::MissingTable,       NoEffect, Permanent, Good),
    row("42P05", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable), // prepared twice
    row("42",    PgErrorKind::Other,              NoEffect, Permanent, Good),
    // `insufficient_resources`: the disk, the memory, the connections.
    row("53300", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("53",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `object_not_in_prerequisite_state`.
    row(LOCKED,  PgErrorKind::LockTimeout,        NoEffect, Temporary, Good),
    row("55",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `operator_intervention`: the server shuts down, or crashed while it may have committed; it
    // starts up; the database was dropped; the session was idle for too long; cancelled.
    row("57P01", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("57P02", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("57P03", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57P04", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57P05", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `system_error`, such as a failed read; `snapshot_too_old`.
    row("58",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    row("72",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `data_corrupted`, `index_corrupted`; `internal_error` of this session, or of a pooler.
    row("XX001", PgErrorKind::Other,              NoEffect, Permanent, Good),
    row("XX002", PgErrorKind::Other,              NoEffect, Permanent, Good),
    row("XX",    PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    // A wrong password, a violated constraint, an error that a trigger raises, and so on.
    row("",      PgErrorKind::Other,              NoEffect, Permanent, Good),
];

/// What an error means for the call that failed.
pub(crate) fn error_class(error: &sqlx::Error) -> ErrorClass {
    classify(error).1
}

/// Whether the connection on which the error occurred must not be used again.
pub(crate) fn is_unusable(error: &sqlx::Error) -> bool {
    error_class(error).connection == Unusable
}

pub(crate) fn error_kind(error: &sqlx::Error) -> PgErrorKind {
    classify(error).0
}

fn classify(error: &sqlx::Error) -> (PgErrorKind, ErrorClass) {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
    if let Some(reply) = reply(error) {
        return classify_reply(reply.code(), reply.severity());
    }
    let kind = match no_response(error) {
        Some(_) => PgErrorKind::NoResponse,
        None => PgErrorKind::Other,
    };
    let class = if matches!(error, Io(_) | Protocol(_)) {
        ErrorClass::new(Unknown, Temporary, Unusable)
    } else if matches!(error, PoolTimedOut | PoolClosed | WorkerCrashed) {
        ErrorClass::new(NoEffect, Temporary, Good)
    } else {
        // The options of a connection are refused, or a row cannot be decoded.
        ErrorClass::new(Unknown, Permanent, Good)
    };
    (kind, class)
}

fn classify_reply(code: &str, severity: PgSeverity) -> (PgErrorKind, ErrorClass) {
    let ends_session = matches!(severity, PgSeverity::Fatal | PgSeverity::Panic);
    // PgBouncer's own errors before it closes a connection: a client waited too long, or no session
    // could be opened.
    let code = if code == "08P01" && ends_session { "08" } else { code };
    let row = SQLSTATES.iter().find(|(prefix, ..)| code.starts_with(prefix));
    let Some(&(prefix, kind, mut class)) = row else {
        return (PgErrorKind::Other, ErrorClass::new(Unknown, Permanent, Unusable));
    };
    if ends_session {
        class.connection = Unusable;
        if prefix != code {
            class.effect = Unknown;
        }
    }
    (kind, class)
}

fn reply(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Why a call got no response, if it got none.
pub(crate) fn no_response(error: &sqlx::Error) -> Option<&NoResponse> {
    let sqlx::Error::Io(error) = error else { return None };
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// `lock_not_available`: the wait for a lock exceeded `lock_timeout`.
pub(crate) const LOCKED: &str = "55P03";

/// Whether an error was sent by the server, which is therefore responding.
pub(crate) fn is_reply(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some()
}

/// `query_canceled`: by an operator, or because the statement exceeded `statement_timeout`.
const CANCELLED: &str = "57014";

/// Whether a statement waited too long for a record that another transaction holds. The error of a
/// wait for the whole table has no context.
pub(crate) fn waited_for_a_record(error: &sqlx::Error) -> bool {
    reply(error).is_some_and(|reply| {
        [LOCKED, CANCELLED].contains(&reply.code()) && reply.r#where().is_some_and(names_a_record)
    })
}

/// The same for a statement that changes a record which has just been read. If several sessions
/// wait for one record, the errors of all but the first have no context.
pub(crate) fn waited_for_an_existing_record(error: &sqlx::Error) -> bool {
    let waited = |reply: &PgDatabaseError| reply.code() == LOCKED && reply.r#where().is_none();
    waited_for_a_record(error) || reply(error).is_some_and(waited)
}

/// Whether the context of an error is that of a wait for a record, in whatever language the server
/// has: a single line with the record's place in the table, such as `(0,1)`. Of a statement in a
/// trigger or in another function, the context has more lines, or no such place.
fn names_a_record(context: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_place = |rest: &str| {
        let place = rest.split_once(')').and_then(|(place, _)| place.split_once(','));
        place.is_some_and(|(page, item)| is_number(page) && is_number(item))
    };
    context.lines().count() == 1 && context.split('(').skip(1).any(is_place)
}

pub(crate) fn store_error(
    operation: &'static str,
    table: &TableName,
    source: sqlx::Error,
) -> StoreError {
    let (kind, class) = classify(&source);
    let source = without_row_values(source);
    match kind {
        PgErrorKind::MissingTable => class.into_error(
            NAME,
            operation,
            MissingTable { operation, table: table.clone(), source: Some(source) },
        ),
        PgErrorKind::PoolerInterference => {
            class.into_error(NAME, operation, PoolerInterference { source })
        }
        PgErrorKind::Conflict
        | PgErrorKind::LockTimeout
        | PgErrorKind::NoResponse
        | PgErrorKind::StaleConnections
        | PgErrorKind::Other => class.into_error(NAME, operation, source),
    }
}

/// Removes the row values that the server quotes. The `Debug` output of sqlx's error contains all
/// of them, such as `Failing row contains (…)`.
fn without_row_values(error: sqlx::Error) -> BoxedError {
    match reply(&error) {
        Some(reply) => {
            let (code, message) = (reply.code().to_owned(), reply.message().to_owned());
            Box::new(ServerError { severity: reply.severity(), code, message })
        }
        None => error.into(),
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
pub(crate) enum NoResponse {
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
    fn every_row_of_the_table_is_reached_by_a_code_of_its_own() {
        for &(prefix, kind, class) in SQLSTATES {
            let code = format!("{prefix:Z<5}");
            assert_eq!(classify_reply(&code, PgSeverity::Error), (kind, class), "{code}");
        }
        let rows =
            SQLSTATES.iter().map(|(prefix, ..)| prefix).collect::<std::collections::HashSet<_>>();
        assert_eq!(rows.len(), SQLSTATES.len());
    }

    #[test]
    fn after_an_error_that_ends_the_session_the_connection_is_unusable() {
        for (code, effect) in
            [("53100", Unknown), ("53300", NoEffect), ("25P03", NoEffect), ("42601", Unknown)]
        {
            let (_, class) = classify_reply(code, PgSeverity::Fatal);
            assert_eq!((class.connection, class.effect), (Unusable, effect), "{code}");
        }
        let pooler = classify_reply("08P01", PgSeverity::Fatal);
        let lost = ErrorClass::new(Unknown, Temporary, Unusable);
        assert_eq!(pooler, (PgErrorKind::Other, lost));
    }

    #[test]
    fn the_context_of_a_wait_for_a_record_is_told_from_that_of_a_trigger() {
        let record = "while inserting index tuple (0,1) in relation \"idempotency_records\"";
        let german = "beim Einfügen von Indextupel (12,3) in Relation »idempotency_records«";
        let simple = "PL/pgSQL function audit(integer,integer) line 3 at PERFORM";
        let nested = "SQL statement \"SELECT f(1,2)\"\nPL/pgSQL function audit() line 1 at PERFORM";
        let elsewhere =
            "while updating tuple (0,1) in relation \"audit\"\nSQL statement \"UPDATE\"";
        let are_waits = [record, german, simple, nested, elsewhere].map(names_a_record);
        assert_eq!(are_waits, [true, true, false, false, false]);
    }

    #[test]
    fn errors_without_a_response_are_classified_too() {
        let lost = ErrorClass::new(Unknown, Temporary, Unusable);
        assert_eq!(classify(&NoResponse::Down.into()), (PgErrorKind::NoResponse, lost));
        assert_eq!(classify(&std::io::Error::other("").into()), (PgErrorKind::Other, lost));
        let unsent = ErrorClass::new(NoEffect, Temporary, Good);
        assert_eq!(classify(&sqlx::Error::PoolTimedOut), (PgErrorKind::Other, unsent));
        assert_eq!(error_class(&sqlx::Error::RowNotFound).cause, Permanent);
    }
}
