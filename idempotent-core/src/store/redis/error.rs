//! What goes wrong, and whether it passes.

use std::{error::Error, fmt};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{NAME, packed::Damaged, server::Refused};
use crate::error::StoreError;

/// Codes of the server whose cause goes away by itself: full, busy with a script, too few replicas, its disk full, failing over.
const PASSING: [&str; 5] = ["OOM", "BUSY", "NOREPLICAS", "MISCONF", "UNBLOCKED"];
/// The code that `lua/record.lua` raises.
const DAMAGED: &str = "DAMAGED";

/// Why a step was not taken, or not acknowledged.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Redis(RedisError),
    Refused(Refused),
    Damaged,
    /// Connecting took too long.
    Slow,
    /// The server was out of reach a moment ago and is not asked again yet.
    Pausing(Box<Failure>),
    /// Nothing drives the connection.
    NoRuntime,
    /// The server answers what no script of ours answers.
    Unexpected,
}

impl Failure {
    pub(super) fn into_error(self, operation: &'static str) -> StoreError {
        match self.is_transient() {
            true => StoreError::transient(NAME, operation, self),
            false => StoreError::permanent(NAME, operation, self),
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Redis(error) => passes(error),
            // At start it is a mistake, and `connect` says so; later it is a failover.
            Self::Refused(refused) => *refused == Refused::Replica,
            Self::Slow | Self::Pausing(_) => true,
            Self::Damaged | Self::NoRuntime | Self::Unexpected => false,
        }
    }
}

/// Whether a connection is of no more use: it is lost, it leaves us waiting, or what it leads to is no master any more.
pub(super) fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error() || is_server(error, ServerErrorKind::ReadOnly)
}

/// Whether the server has forgotten a script.
pub(super) fn is_forgotten(error: &RedisError) -> bool {
    is_server(error, ServerErrorKind::NoScript)
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
        // A connection that was lost in the middle of an answer.
        || error.kind() == ErrorKind::Parse
        || error.kind() == ErrorKind::ClusterConnectionNotFound
        || error.kind() == ErrorKind::MasterNameNotFoundBySentinel
        || passing.into_iter().any(|kind| is_server(error, kind))
        || error.code().is_some_and(|code| PASSING.contains(&code))
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.code() == Some(DAMAGED) { Self::Damaged } else { Self::Redis(error) }
    }
}

impl From<Damaged> for Failure {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(_) => f.write_str("the server did not do what it was asked"),
            Self::Refused(_) => f.write_str("the server is not safe to use"),
            Self::Damaged => Damaged.fmt(f),
            Self::Slow => f.write_str("the server could not be connected to in time"),
            Self::Pausing(_) => f.write_str("the server was out of reach a moment ago and is not asked again yet"),
            Self::NoRuntime => f.write_str("the store was called from outside of a Tokio runtime"),
            Self::Unexpected => f.write_str("the server answered what no script of this store answers"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Redis(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Pausing(last) => Some(last),
            Self::Damaged | Self::Slow | Self::NoRuntime | Self::Unexpected => None,
        }
    }
}

/// Fewer replicas than wanted have a claim; it was given back.
#[derive(Debug)]
pub(super) struct TooFewReplicas {
    pub(super) wanted: u32,
    pub(super) found: u64,
}

impl fmt::Display for TooFewReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} replicas had the claim in time; it was given back", self.found, self.wanted)
    }
}

impl Error for TooFewReplicas {}
