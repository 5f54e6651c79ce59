//! What the errors that a server returns mean.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Transient error codes: out of memory, busy with a script, too few replicas, disk full, failing
/// over.
const TRANSIENT: [&str; 6] = ["OOM", "BUSY", "NOREPLICAS", "MISCONF", "UNBLOCKED", "NOQUORUM"];
/// The error of a server that accepts no more connections, which has no code.
const TOO_MANY_CLIENTS: &str = "max number of clients";
/// The error of a master that has become a replica since the step before, which has no code.
const DEMOTED: &str = "WAIT cannot be used with replica";
/// The text that precedes the arguments of an unknown command, which contain a key and possibly a
/// response.
const QUOTES: &str = "with args beginning with";

/// Whether an error code means that the server refuses all writes.
pub(super) fn refuses_writes(code: &str) -> bool {
    ["OOM", "NOREPLICAS", "MISCONF"].contains(&code)
}

/// Whether an error has this kind.
pub(super) fn is_server(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

/// Whether a later call may succeed.
pub(super) fn is_transient_error(error: &RedisError) -> bool {
    let passing = [
        ServerErrorKind::BusyLoading,
        ServerErrorKind::Moved,
        ServerErrorKind::Ask,
        ServerErrorKind::TryAgain,
        ServerErrorKind::ClusterDown,
        ServerErrorKind::MasterDown,
        ServerErrorKind::ReadOnly,
        ServerErrorKind::NoScript,
    ];
    error.is_io_error()
        // The connection was lost in the middle of a response.
        || error.kind() == ErrorKind::Parse
        || passing.into_iter().any(|kind| is_server(error, kind))
        || error.code().is_some_and(|code| TRANSIENT.contains(&code))
        || error.detail().is_some_and(|detail| {
            [TOO_MANY_CLIENTS, DEMOTED].iter().any(|passing| detail.contains(passing))
        })
}

/// Removes the arguments of an unknown command.
pub(super) fn without_arguments(error: RedisError) -> RedisError {
    if !error.detail().is_some_and(|detail| detail.contains(QUOTES)) {
        return error;
    }
    let command =
        error.detail().and_then(|detail| detail.split(',').next()).unwrap_or_default().to_owned();
    (error.kind(), "the server refused a command", command).into()
}
