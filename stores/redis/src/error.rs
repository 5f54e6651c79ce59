//! Failures of Redis calls, and whether they are transient.

use std::{borrow::Cow, io, sync::Arc};

use redis::{ParsingError, RedisError};

use self::server_error::{error_class, refused, without_arguments};
pub(crate) use self::{
    missing_permission::MissingPermission,
    server_error::{LOST, Reaction, is_unknown, reaction},
    unsuitable_server::UnsuitableServer,
};
use crate::encoding::Unreadable;
use idempotent_core::{
    RecordId, StoreError,
    store::{
        Cause::{Permanent, Temporary},
        ConnectionState::{Good, Unusable},
        Effect, ErrorClass,
    },
};

mod missing_permission;
mod server_error;
mod unsuitable_server;

/// The name of the store in its errors.
pub(crate) const NAME: &str = "redis";
/// The error for a user that may not select a database, of which the client library keeps only the
/// text.
const NO_SELECT: &str = "no permissions to run the 'select' command";

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error("the server returned an error, or the connection was lost")]
    Redis(#[source] RedisError),
    #[error(transparent)]
    UnsuitableServer(UnsuitableServer),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A record that was searched for.
    #[error("the record {0} cannot be read")]
    UnreadableRecord(RecordId),
    #[error("the user in the URL lacks a privilege")]
    MissingPermission(#[source] MissingPermission),
    /// The server does not have a command, or a service does not offer it.
    #[error(
        "the server does not execute `{command}`, which the store needs ({why}); use Redis 7.0 or \
         later, Valkey, or a service that offers the command"
    )]
    UnknownCommand { command: Cow<'static, str>, why: String },
    /// No connection could be opened in time.
    #[error("connecting to the server timed out")]
    ConnectTimeout,
    /// The server did not respond in time.
    #[error("the server did not respond in time")]
    ResponseTimeout,
    /// The connection was lost before any byte of the command was sent on it.
    #[error("the connection was lost before the command was sent")]
    NotSent(#[source] Box<CallFailure>),
    /// The store has stopped using the connection: another server is the master, or this one did
    /// not respond to another call.
    #[error(
        "the connection was closed: another server is the master, or this one does not respond"
    )]
    ConnectionClosed,
    /// The server was unreachable a moment ago, and the next attempt has to wait.
    #[error("the server was unreachable a moment ago; the next attempt follows after a pause")]
    BackingOff(#[source] Box<CallFailure>),
    /// The write stays on the master.
    #[error("{found} of {wanted} replicas acknowledged the write in time")]
    TooFewReplicas { wanted: u32, found: u64 },
    /// No master is known for the key.
    #[error("no master is known for the key")]
    NoMaster,
    /// The nodes could not all be searched between two moves.
    #[error("slots were moved between the nodes of the cluster again and again")]
    SlotsMoved,
    /// The call was made outside a Tokio runtime.
    #[error("the store was called from outside of a Tokio runtime")]
    NoRuntime,
    /// The thread that follows Sentinels and clusters could not be started.
    #[error("the thread that follows the servers could not be started")]
    NoWatchThread(#[source] Arc<io::Error>),
    /// The reply does not have the expected form.
    #[error("the server's reply does not have the expected form")]
    Unexpected,
}

/// The node to send a command to instead.
pub(crate) enum Redirect {
    Moved(String, u16),
    /// The node is importing the key's slot.
    Ask(String, u16),
}

impl CallFailure {
    pub(crate) fn into_error(self, operation: &'static str) -> StoreError {
        if matches!(self, Self::Unreadable(_) | Self::UnreadableRecord(_)) {
            StoreError::unreadable(NAME, operation, self)
        } else {
            self.class().into_error(NAME, operation, self)
        }
    }

    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Redis(error) => error_class(error),
            Self::ResponseTimeout | Self::ConnectionClosed => LOST,
            Self::NotSent(_) | Self::ConnectTimeout | Self::NoMaster | Self::NoWatchThread(_) => {
                refused(Temporary, Unusable)
            }
            // A failover, unless it happens in `connect`, which treats a replica in the URL as a
            // mistake.
            Self::UnsuitableServer(UnsuitableServer::Replica) => refused(Temporary, Unusable),
            Self::UnsuitableServer(_) => refused(Permanent, Unusable),
            Self::BackingOff(last) => refused(last.class().cause, Unusable),
            Self::Unreadable(_)
            | Self::UnreadableRecord(_)
            | Self::MissingPermission(_)
            | Self::UnknownCommand { .. }
            | Self::NoRuntime => refused(Permanent, Good),
            Self::SlotsMoved => refused(Temporary, Good),
            Self::TooFewReplicas { .. } => ErrorClass::new(Effect::Unknown, Temporary, Good),
            Self::Unexpected => ErrorClass::new(Effect::Unknown, Permanent, Good),
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.class().cause == Temporary
    }

    /// Whether the connection was lost, rather than an error received on it.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_io_error())
    }

    /// What the store does about the error.
    pub(crate) fn reaction(&self) -> Option<Reaction> {
        let Self::Redis(error) = self else { return None };
        reaction(error.code()?)
    }

    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let Self::Redis(error) = self else { return None };
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let (host, port) = (host.to_owned(), port.parse().ok()?);
        Some(if error.code() == Some("MOVED") {
            Redirect::Moved(host, port)
        } else {
            Redirect::Ask(host, port)
        })
    }

    /// Converts a refusal of this command into what names it: a missing privilege, or a command
    /// that the server does not have.
    pub(crate) fn or_refusal_of(self, command: &'static str) -> Self {
        let Self::Redis(error) = &self else { return self };
        let why = error.detail().unwrap_or_default();
        match error.code() {
            Some("NOPERM") => Self::MissingPermission(MissingPermission::of(command, why)),
            Some("ERR") if !self.is_transient() => {
                Self::UnknownCommand { command: command.into(), why: why.to_owned() }
            }
            _ => self,
        }
    }

    /// Converts the error of a connection attempt.
    pub(crate) fn from_connect(error: RedisError) -> Self {
        match error.detail() {
            Some(why) if why.contains(NO_SELECT) => {
                Self::MissingPermission(MissingPermission::of("SELECT", why))
            }
            _ => error.into(),
        }
    }

    pub(crate) fn unexpected_reply(_: ParsingError) -> Self {
        Self::Unexpected
    }

    pub(crate) fn no_watch_thread(error: io::Error) -> Self {
        Self::NoWatchThread(Arc::new(error))
    }
}

impl From<RedisError> for CallFailure {
    fn from(error: RedisError) -> Self {
        if error.code().and_then(reaction) == Some(Reaction::Unreadable) {
            Self::Unreadable(Unreadable)
        } else {
            Self::Redis(without_arguments(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn returned(line: &str) -> StoreError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        CallFailure::from(value.extract_error().unwrap_err()).into_error("claim")
    }

    #[test]
    fn transient_failures_are_transient() {
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
    fn failures_that_need_a_fix_are_permanent() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "ERR unknown command 'EVALSHA', with args beginning with: ",
            "ERR The user executing the script can't run this command or subcommand script: 5a, \
             on @user_script:1.",
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
        let error = returned(
            "ERR unknown command 'EVALSHA', with args beginning with: \
             '5a' '1' 'a-key' 'a-response' ",
        );
        let (mut shown, mut cause): (String, Option<&dyn Error>) = (String::new(), Some(&error));
        while let Some(error) = cause {
            shown += &format!("{error} {error:?}\n");
            cause = error.source();
        }
        assert!(!shown.contains("a-key") && !shown.contains("a-response"), "{shown}");
        assert!(shown.contains("unknown command 'EVALSHA'") && !error.is_transient(), "{shown}");
    }

    #[test]
    fn a_value_that_is_no_record_is_unreadable() {
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 5a, \
             on @user_script:20.",
            "DAMAGED the record cannot be read script: 5a, on @user_script:20.",
        ] {
            assert!(returned(line).is_unreadable(), "{line}");
        }
    }

    #[test]
    fn a_redirection_names_a_node() {
        let redirect = |line: &str| {
            let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            match CallFailure::from(value.extract_error().unwrap_err()).redirect() {
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
