//! Postgres errors, classified by what the store does about them.

use std::error::Error;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use self::sqlstates::{LOCKED, classify_reply};
use idempotent_core::{
    StoreError,
    store::{
        Cause::{Permanent, Temporary},
        ConnectionState::{Good, Unusable},
        Effect::{None as NoEffect, Unknown},
        ErrorClass,
    },
};
use idempotent_sql::{MissingTable, TableName, server::NoResponse};

mod sqlstates;

pub(crate) use self::sqlstates::PgErrorKind;

/// The name of the store in errors.
pub(crate) const NAME: &str = "postgres";

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
    let kind = match NoResponse::of(error) {
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

fn reply(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether an error was sent by the server, which is therefore responding.
pub(crate) fn is_reply(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some()
}

/// Whether the server, or a pooler, has ended the session with this error.
pub(crate) fn ends_session(error: &sqlx::Error) -> bool {
    reply(error).is_some_and(|reply| sqlstates::ends_session(reply.severity()))
}

/// Whether the server lacks what a statement uses: `undefined_function`, `feature_not_supported`.
pub(crate) fn is_undefined(error: &sqlx::Error) -> bool {
    reply(error).is_some_and(|reply| ["42883", "0A000"].contains(&reply.code()))
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

/// The error of opening a store.
pub(crate) fn connect_error(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
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
