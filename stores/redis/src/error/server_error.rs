//! What the errors that a server returns mean.

use redis::{ErrorKind, RedisError};

use idempotent_core::store::{
    Cause::{self, Permanent, Temporary},
    ConnectionState::{self, Good, Unusable},
    Effect, ErrorClass,
};

/// An error to which the store has a special reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// The server currently refuses all writes. It still executes reads and scripts that may exceed
    /// its memory.
    Read,
    /// The server does not have the script in its cache.
    SendScript,
    /// The cluster does not currently serve the key's slot.
    RefreshView,
    /// The slot of the keys is moving, and one node does not have all of them.
    SendForOneKey,
    /// The key holds no record.
    Unreadable,
}

/// The codes of Redis and Valkey that a call of the store can meet.
const CODES: &[(&str, Option<Reaction>, ErrorClass)] = &[
    // The server refuses to begin the command for now.
    ("BUSY", None, refused(Temporary, Good)),
    ("LOADING", None, refused(Temporary, Good)),
    ("OOM", Some(Reaction::Read), refused(Temporary, Good)),
    ("NOREPLICAS", Some(Reaction::Read), refused(Temporary, Good)),
    ("MISCONF", Some(Reaction::Read), refused(Temporary, Good)),
    ("NOSCRIPT", Some(Reaction::SendScript), refused(Temporary, Good)),
    ("NOQUORUM", None, refused(Temporary, Good)),
    // The key is, or is about to be, on another node.
    ("MOVED", None, refused(Temporary, Good)),
    ("ASK", None, refused(Temporary, Good)),
    ("TRYAGAIN", Some(Reaction::SendForOneKey), refused(Temporary, Good)),
    ("CLUSTERDOWN", Some(Reaction::RefreshView), refused(Temporary, Good)),
    // The server has become a replica. Another one may be the master by now.
    ("READONLY", None, refused(Temporary, Unusable)),
    ("MASTERDOWN", None, refused(Temporary, Unusable)),
    ("UNBLOCKED", None, refused(Temporary, Unusable)),
    // Something has to be fixed. A new connection has the rights of a user that was changed.
    ("NOAUTH", None, refused(Permanent, Unusable)),
    ("WRONGPASS", None, refused(Permanent, Unusable)),
    ("DENIED", None, refused(Permanent, Unusable)),
    ("NOPROTO", None, refused(Permanent, Unusable)),
    ("NOPERM", None, refused(Permanent, Good)),
    ("CROSSSLOT", None, refused(Permanent, Good)),
    ("EXECABORT", None, refused(Permanent, Good)),
    ("UNKILLABLE", None, refused(Permanent, Good)),
    // The first is the error that `lua/record.lua` raises.
    ("DAMAGED", Some(Reaction::Unreadable), refused(Permanent, Good)),
    ("WRONGTYPE", Some(Reaction::Unreadable), refused(Permanent, Good)),
];
/// Errors with the code `ERR`, which is that of many, by a part of their text.
const TEXTS: &[(&str, ErrorClass)] = &[
    ("max number of clients", refused(Temporary, Unusable)),
    // A master that has become a replica since the step before.
    ("WAIT cannot be used with replica", refused(Temporary, Unusable)),
    // Only a script that has not written can be killed.
    ("Script killed by user", refused(Temporary, Good)),
];
/// Any other error that a server returns.
const OTHER: ErrorClass = ErrorClass::new(Effect::Unknown, Permanent, Good);
/// The connection was lost, possibly in the middle of a response.
pub(crate) const LOST: ErrorClass = ErrorClass::new(Effect::Unknown, Temporary, Unusable);

/// The text that precedes the arguments of an unknown command, which contain a key and possibly a
/// response.
const QUOTES: &str = "with args beginning with";

/// The class of an error with which a server refuses a command without beginning it.
pub(crate) const fn refused(cause: Cause, connection: ConnectionState) -> ErrorClass {
    ErrorClass::new(Effect::None, cause, connection)
}

fn find(code: &str) -> Option<(Option<Reaction>, ErrorClass)> {
    let row = CODES.iter().find(|(known, ..)| *known == code);
    row.map(|(_, reaction, class)| (*reaction, *class))
}

/// What the store does about errors with this code.
pub(crate) fn reaction(code: &str) -> Option<Reaction> {
    find(code)?.0
}

pub(crate) fn error_class(error: &RedisError) -> ErrorClass {
    if error.is_io_error() || error.kind() == ErrorKind::Parse {
        return LOST;
    }
    let Some(code) = error.code() else {
        // The client library has refused something before it sent it, or the server has refused
        // the password.
        return refused(Permanent, Unusable);
    };
    let by_text = || {
        let text = error.detail()?;
        TEXTS.iter().find(|(part, _)| text.contains(part)).map(|(_, class)| *class)
    };
    find(code).map(|(_, class)| class).or_else(by_text).unwrap_or(OTHER)
}

/// Whether an error that a script has met says that the server does not have the command. A user
/// who may not use it gets another one.
pub(crate) fn is_unknown(text: &str) -> bool {
    text.starts_with("ERR")
        && text.to_ascii_lowercase().contains("unknown")
        && text.contains("command")
}

/// Removes the arguments of an unknown command.
pub(crate) fn without_arguments(error: RedisError) -> RedisError {
    if !error.detail().is_some_and(|detail| detail.contains(QUOTES)) {
        return error;
    }
    let command =
        error.detail().and_then(|detail| detail.split(',').next()).unwrap_or_default().to_owned();
    (error.kind(), "the server refused a command", command).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_one_class() {
        for (at, (code, ..)) in CODES.iter().enumerate() {
            assert!(CODES[..at].iter().all(|(other, ..)| other != code), "{code}");
            let line = format!("-{code} some text\r\n");
            let value = redis::parse_redis_value(line.as_bytes()).unwrap();
            let error = value.extract_error().unwrap_err();
            assert_eq!(error.code(), Some(*code));
            assert_eq!(find(code).unwrap().1, error_class(&error));
        }
    }
}
