//! MySQL's and MariaDB's errors, classified by what the store does about them.

use std::error::Error;

use sqlx::mysql::MySqlDatabaseError;

use self::numbers::classify_reply;
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

mod numbers;

pub(crate) use self::numbers::ErrorKind;

/// The name of the store in errors.
pub(crate) const NAME: &str = "mysql";

/// What an error means for the call that failed.
pub(crate) fn error_class(error: &sqlx::Error) -> ErrorClass {
    classify(error).1
}

/// Whether the connection on which the error occurred must not be used again.
pub(crate) fn is_unusable(error: &sqlx::Error) -> bool {
    error_class(error).connection == Unusable
}

pub(crate) fn error_kind(error: &sqlx::Error) -> ErrorKind {
    classify(error).0
}

fn classify(error: &sqlx::Error) -> (ErrorKind, ErrorClass) {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, WorkerCrashed};
    if let Some(reply) = reply(error) {
        return classify_reply(reply.number());
    }
    let kind = match NoResponse::of(error) {
        Some(_) => ErrorKind::NoResponse,
        None => ErrorKind::Other,
    };
    let class = if matches!(error, Io(_) | Protocol(_)) {
        ErrorClass::new(Unknown, Temporary, Unusable)
    } else if matches!(error, PoolTimedOut | PoolClosed | WorkerCrashed) {
        ErrorClass::new(NoEffect, Temporary, Good)
    } else {
        // The options of a connection are refused, or a row cannot be decoded.
        ErrorClass::new(Unknown, Permanent, Unusable)
    };
    (kind, class)
}

fn reply(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether an error was sent by the server, which is therefore responding.
pub(crate) fn is_reply(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some()
}

/// The number of an error that the server sent.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    reply(error).map(MySqlDatabaseError::number)
}

pub(crate) fn store_error(
    operation: &'static str,
    table: &TableName,
    source: sqlx::Error,
) -> StoreError {
    let (kind, class) = classify(&source);
    match kind {
        ErrorKind::MissingTable => class.into_error(
            NAME,
            operation,
            MissingTable { operation, table: table.clone(), source: Some(without_values(source)) },
        ),
        ErrorKind::Denied => {
            class.into_error(NAME, operation, MissingPrivilege(without_values(source)))
        }
        ErrorKind::PacketTooLarge => {
            class.into_error(NAME, operation, PacketTooLarge(without_values(source)))
        }
        ErrorKind::NoGuard => class.into_error(NAME, operation, NoGuard(without_values(source))),
        ErrorKind::Conflict
        | ErrorKind::Exists
        | ErrorKind::Locked
        | ErrorKind::NoResponse
        | ErrorKind::StaleConnections
        | ErrorKind::Other => class.into_error(NAME, operation, without_values(source)),
    }
}

/// The error of opening a store.
pub(crate) fn connect_error(error: sqlx::Error) -> StoreError {
    store_error("connect", &TableName::default(), error)
}

type BoxedError = Box<dyn Error + Send + Sync>;

/// Removes the values that the server quotes, such as `Duplicate entry '…' for key …`.
fn without_values(error: sqlx::Error) -> BoxedError {
    match reply(&error) {
        Some(reply) => {
            let state = reply.code().unwrap_or_default().to_owned();
            let message = without_quotes(reply.message());
            Box::new(ServerError { number: reply.number(), state, message })
        }
        None if matches!(error, sqlx::Error::AnyDriverError(_)) => own(error),
        None => error.into(),
    }
}

/// The store's own error in an error of the driver.
fn own(error: sqlx::Error) -> BoxedError {
    if let sqlx::Error::AnyDriverError(own) = error { own } else { error.into() }
}

/// Removes what a message quotes with `'`, but for the names of users and tables.
fn without_quotes(message: &str) -> String {
    let is_name = |part: &str| {
        !part.is_empty()
            && part.len() <= 64
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-%@`".contains(&byte))
    };
    let mut shown = String::new();
    for (index, part) in message.split('\'').enumerate() {
        if index % 2 == 0 || is_name(part) {
            shown.push_str(part);
        } else {
            shown.push('…');
        }
    }
    shown
}

/// An error that the server sent.
#[derive(Debug, thiserror::Error)]
#[error("the server returned {number} ({state}): {message}")]
struct ServerError {
    number: u16,
    state: String,
    message: String,
}

/// The user lacks a privilege.
#[derive(Debug, thiserror::Error)]
#[error(
    "the store's user lacks a privilege; grant it SELECT, INSERT, UPDATE and DELETE on the table \
     of the records, and SELECT and INSERT on the table with the suffix `_audit`"
)]
struct MissingPrivilege(#[source] BoxedError);

/// A statement is larger than the server accepts.
#[derive(Debug, thiserror::Error)]
#[error(
    "a recording or a note is larger than the server accepts; raise its `max_allowed_packet`, or \
     lower the limit of recorded responses"
)]
struct PacketTooLarge(#[source] BoxedError);

/// The server cannot begin the transaction of a handler.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has no XA transactions, which keep a handler from committing without its \
     response; do not use `Tx` with this server"
)]
struct NoGuard(#[source] BoxedError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_removed_from_messages() {
        let duplicate = "Duplicate entry '\\x8F\\x01 secret' for key 'PRIMARY'";
        assert_eq!(without_quotes(duplicate), "Duplicate entry … for key PRIMARY");
        let denied = "INSERT command denied to user 'app'@'localhost' for table `shop`.`t`";
        assert_eq!(
            without_quotes(denied),
            "INSERT command denied to user app@localhost for table `shop`.`t`"
        );
    }

    #[test]
    fn errors_without_a_response_are_classified_too() {
        let lost = ErrorClass::new(Unknown, Temporary, Unusable);
        assert_eq!(classify(&NoResponse::Down.into()), (ErrorKind::NoResponse, lost));
        assert_eq!(classify(&std::io::Error::other("").into()), (ErrorKind::Other, lost));
        let unsent = ErrorClass::new(NoEffect, Temporary, Good);
        assert_eq!(classify(&sqlx::Error::PoolTimedOut), (ErrorKind::Other, unsent));
        assert_eq!(error_class(&sqlx::Error::RowNotFound).cause, Permanent);
    }
}
