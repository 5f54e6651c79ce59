//! What goes wrong, and whether it passes.

use std::{error::Error, fmt, io, sync::Arc};

use redis::{ErrorKind, ParsingError, RedisError, ServerErrorKind};

use super::{NAME, packed::Damaged, privileges::Lacking, server::Refused};
use crate::error::StoreError;

/// Codes of the server whose cause goes away by itself: full, busy with a script, too few replicas,
/// its disk full, failing over.
const PASSING: [&str; 6] = ["OOM", "BUSY", "NOREPLICAS", "MISCONF", "UNBLOCKED", "NOQUORUM"];
/// Codes for a key that holds no record: the one that `lua/record.lua` raises, and the server's own
/// for another type.
const UNREADABLE: [&str; 2] = ["DAMAGED", "WRONGTYPE"];
/// What a server says that takes no more connections; it has no code.
const CROWDED: &str = "max number of clients";
/// What a master says that has become a replica since the step before; it has no code either.
const DEMOTED: &str = "WAIT cannot be used with replica";
/// What comes before the arguments of a command that a server does not know. They have a key in them, and may have a response.
const QUOTES: &str = "with args beginning with";
/// What a server says to a user who may not choose a database. The client keeps the text only.
const NO_SELECT: &str = "no permissions to run the 'select' command";

/// Why a step was not taken, or not acknowledged.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Redis(RedisError),
    Refused(Refused),
    Damaged,
    Lacking(Lacking),
    /// Connecting took too long.
    Slow,
    /// The server did not respond in time.
    Late,
    /// The server is not used any more: another took its place, or it did not respond to another
    /// call.
    Left,
    /// The server was out of reach a moment ago and is not tried again yet.
    Pausing(Box<Failure>),
    /// No master is known for the key.
    NoMaster,
    /// Nothing drives the connection.
    NoRuntime,
    /// The thread that follows the servers could not be started.
    NoDriver(Arc<io::Error>),
    /// The server returns what no command of this store returns.
    Unexpected,
}

/// The node that has a key instead.
pub(super) enum Redirect {
    Moved(String, u16),
    /// It gets the key's slot, and has some of its keys already.
    Ask(String, u16),
}

impl Failure {
    pub(super) fn into_error(self, operation: &'static str) -> StoreError {
        if matches!(self, Self::Damaged) {
            StoreError::unreadable(NAME, operation, self)
        } else if self.is_transient() {
            StoreError::transient(NAME, operation, self)
        } else {
            StoreError::permanent(NAME, operation, self)
        }
    }

    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Redis(error) => passes(error),
            // At start it is a mistake, and `connect` says so; later it is a failover.
            Self::Refused(refused) => *refused == Refused::Replica,
            Self::Pausing(last) => last.is_transient(),
            Self::Slow | Self::Late | Self::Left | Self::NoMaster | Self::NoDriver(_) => true,
            Self::Damaged | Self::Lacking(_) | Self::NoRuntime | Self::Unexpected => false,
        }
    }

    /// Whether the server may have done what it was sent.
    pub(super) fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Late | Self::Left) || self.breaks_connection()
    }

    /// Whether a connection is of no more use: it is lost, or the server at its other end is no
    /// master any more.
    pub(super) fn breaks_connection(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        error.is_io_error() || error.is_unrecoverable_error() || is_server(error, ServerErrorKind::ReadOnly)
    }

    /// Whether the server, as it is now, takes no writes from anybody.
    pub(super) fn is_write_refused(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        error.code().is_some_and(refuses_writes)
    }

    /// Whether the server has forgotten a script.
    pub(super) fn is_forgotten(&self) -> bool {
        matches!(self, Self::Redis(error) if is_server(error, ServerErrorKind::NoScript))
    }

    /// Whether a node of a cluster does not serve the key at present.
    pub(super) fn is_cluster_down(&self) -> bool {
        matches!(self, Self::Redis(error) if is_server(error, ServerErrorKind::ClusterDown))
    }

    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::Redis(error) = self else { return None };
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        let moved = is_server(error, ServerErrorKind::Moved);
        Some(if moved { Redirect::Moved(host, port) } else { Redirect::Ask(host, port) })
    }

    /// The failure of a command, which may be that the user lacks the privilege for it.
    pub(super) fn lacking(self, command: &'static str) -> Self {
        if let Self::Redis(error) = &self
            && is_server(error, ServerErrorKind::NoPerm)
        {
            return Self::Lacking(Lacking::of(command, error.detail().unwrap_or_default()));
        }
        self
    }

    /// Why a connection could not be opened.
    pub(super) fn of_opening(error: RedisError) -> Self {
        match error.detail() {
            Some(why) if why.contains(NO_SELECT) => Self::Lacking(Lacking::of("SELECT", why)),
            _ => error.into(),
        }
    }

    pub(super) fn reply(_: ParsingError) -> Self {
        Self::Unexpected
    }

    pub(super) fn no_driver(error: io::Error) -> Self {
        Self::NoDriver(Arc::new(error))
    }
}

/// Whether a code is that of a server that takes no writes from anybody.
pub(super) fn refuses_writes(code: &str) -> bool {
    ["OOM", "NOREPLICAS", "MISCONF"].contains(&code)
}

fn is_server(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

fn passes(error: &RedisError) -> bool {
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
        // A connection that was lost in the middle of a response.
        || error.kind() == ErrorKind::Parse
        || passing.into_iter().any(|kind| is_server(error, kind))
        || error.code().is_some_and(|code| PASSING.contains(&code))
        || error.detail().is_some_and(|detail| [CROWDED, DEMOTED].iter().any(|passing| detail.contains(passing)))
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.code().is_some_and(|code| UNREADABLE.contains(&code)) {
            Self::Damaged
        } else {
            Self::Redis(without_arguments(error))
        }
    }
}

fn without_arguments(error: RedisError) -> RedisError {
    if !error.detail().is_some_and(|detail| detail.contains(QUOTES)) {
        return error;
    }
    let command = error.detail().and_then(|detail| detail.split(',').next()).unwrap_or_default().to_owned();
    (error.kind(), "the server refused a command", command).into()
}

impl From<Damaged> for Failure {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(_) => f.write_str("the server returned an error, or the connection was lost"),
            Self::Refused(_) => f.write_str("the server is not safe to use"),
            Self::Damaged => Damaged.fmt(f),
            Self::Lacking(_) => f.write_str("the user of the URL lacks a privilege"),
            Self::Slow => f.write_str("connecting to the server timed out"),
            Self::Late => f.write_str("the server did not respond in time"),
            Self::Left => f.write_str("the connection was closed: another server is the master now, or this one hangs"),
            Self::Pausing(_) => f.write_str("the server was out of reach a moment ago and is not tried again yet"),
            Self::NoMaster => f.write_str("no master is known for the key"),
            Self::NoRuntime => f.write_str("the store was called from outside of a Tokio runtime"),
            Self::NoDriver(_) => f.write_str("the thread that follows the servers could not be started"),
            Self::Unexpected => f.write_str("the server returned what no command of this store returns"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Redis(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Lacking(lacking) => Some(lacking),
            Self::Pausing(last) => Some(last),
            Self::NoDriver(error) => Some(error),
            Self::Damaged
            | Self::Slow
            | Self::Late
            | Self::Left
            | Self::NoMaster
            | Self::NoRuntime
            | Self::Unexpected => None,
        }
    }
}

/// Fewer replicas than wanted have what a step wrote.
#[derive(Debug)]
pub(super) struct TooFewReplicas {
    pub(super) wanted: u32,
    pub(super) found: u64,
}

impl fmt::Display for TooFewReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} replicas acknowledged the write in time", self.found, self.wanted)
    }
}

impl Error for TooFewReplicas {}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(line: &str) -> StoreError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        Failure::from(value.extract_error().unwrap_err()).into_error("claim")
    }

    #[test]
    fn what_passes_by_itself_is_transient() {
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script",
            "OOM command not allowed when used memory > 'maxmemory'",
            "NOREPLICAS Not enough good replicas to write",
            "MISCONF Redis is configured to save RDB snapshots",
            "READONLY You can't write against a read only replica",
            "MASTERDOWN Link with MASTER is down",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 1 127.0.0.1:7000",
            "ASK 1 127.0.0.1:7000",
            "UNBLOCKED force unblock from blocking operation",
            "ERR max number of clients reached",
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0",
        ] {
            let error = returned(line);
            assert!(error.is_transient() && !error.is_unreadable(), "{line}");
        }
    }

    #[test]
    fn what_stays_until_it_is_mended_is_permanent() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "ERR unknown command 'EVALSHA', with args beginning with: ",
            "ERR The user executing the script can't run this command or subcommand script: 5a, on @user_script:1.",
            "ERR syntax error",
            "ERR DB index is out of range",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "NOPROTO unsupported protocol version",
            "EXECABORT Transaction discarded because of previous errors.",
        ] {
            let error = returned(line);
            assert!(!error.is_transient() && !error.is_unreadable(), "{line}");
        }
    }

    #[test]
    fn no_argument_of_a_command_is_in_an_error() {
        let error = returned("ERR unknown command 'EVALSHA', with args beginning with: '5a' '1' 'a-key' 'a-response' ");
        let (mut shown, mut cause): (String, Option<&dyn Error>) = (String::new(), Some(&error));
        while let Some(error) = cause {
            shown += &format!("{error} {error:?}\n");
            cause = error.source();
        }
        assert!(!shown.contains("a-key") && !shown.contains("a-response"), "{shown}");
        assert!(shown.contains("unknown command 'EVALSHA'") && !error.is_transient(), "{shown}");
    }

    #[test]
    fn what_is_no_record_is_unreadable() {
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 5a, on @user_script:20.",
            "DAMAGED the record cannot be read script: 5a, on @user_script:20.",
        ] {
            assert!(returned(line).is_unreadable(), "{line}");
        }
    }

    #[test]
    fn a_redirection_names_a_node() {
        let redirect = |line: &str| {
            let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            match Failure::from(value.extract_error().unwrap_err()).redirect() {
                Some(Redirect::Moved(host, port)) => format!("moved {host} {port}"),
                Some(Redirect::Ask(host, port)) => format!("ask {host} {port}"),
                None => "none".to_owned(),
            }
        };
        assert_eq!(redirect("MOVED 7 10.0.0.1:7000"), "moved 10.0.0.1 7000");
        assert_eq!(redirect("MOVED 7 :7000"), "moved  7000");
        assert_eq!(redirect("ASK 7 ::1:7000"), "ask ::1 7000");
        assert_eq!(redirect("ASK 7 nowhere"), "none");
        assert_eq!(redirect("TRYAGAIN 7 ::1:7000"), "none");
    }
}
