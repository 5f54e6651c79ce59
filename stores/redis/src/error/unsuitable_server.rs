//! A server that does not meet the requirements.

/// Why a server is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnsuitableServer {
    #[error("the server is Redis {version}; it must be 7.0 or later, or Valkey")]
    TooOld { version: String },
    #[error("the server is a replica; connect to the master, or use a `redis+sentinel://` URL")]
    Replica,
    #[error("the server belongs to a cluster; use a `redis+cluster://` URL")]
    InCluster,
    #[error(
        "the server's `maxmemory-policy` is `{policy}`, which evicts live records; set it to \
         `noeviction`"
    )]
    Evicts { policy: String },
    #[error(
        "the server's `INFO` lacks the field `{field}`; use a server that reports it, such as \
         Redis 7.0 or later, or Valkey"
    )]
    Unknown { field: &'static str },
}
