//! What is set before a store is opened.

use std::time::Duration;

/// The options of a [`RedisStore`](crate::RedisStore), from
/// [`RedisStore::options`](crate::RedisStore::options).
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use std::time::Duration;
///
/// use idempotent_redis::RedisStore;
///
/// let store = RedisStore::options()
///     .key_prefix("payments:")
///     .wait_for_replicas(1, Duration::from_millis(500))
///     .connect("redis://:password@localhost/0")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a store is opened with them"]
pub struct RedisOptions {
    pub(crate) key_prefix: String,
    pub(crate) response_timeout: Duration,
    pub(crate) replicas: u32,
    /// How long calls wait for the replicas.
    pub(crate) replication_timeout: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            key_prefix: "idempotency:".to_owned(),
            // A server that forks or syncs its append-only file can take more than a second to
            // respond, which leaves the outcome of a claim unknown. The limit is below a sixth of
            // the default lease, 5 seconds, after which a failed renewal is sent again.
            response_timeout: Duration::from_secs(2),
            replicas: 0,
            replication_timeout: Duration::ZERO,
        }
    }
}

impl RedisOptions {
    /// Sets the prefix of the records' keys; the default is `idempotency:`. The rest of a key is
    /// the 32 bytes of the record id, or `inputs`, `watched` or `log`; in a cluster the latter two
    /// end with a colon and a number. A prefix with a hash tag (`{…}`) puts all records on one node
    /// of a cluster.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.key_prefix = prefix.to_owned();
        self
    }

    /// Sets how long nothing may arrive from a server while a call waits for its response; the
    /// default is 2 seconds. After that, the outcome of the call is unknown and the server counts
    /// as down. A claim, a completion, a renewal or a lookup is
    /// sent once more if a new connection can be opened at once.
    pub fn response_timeout(mut self, within: Duration) -> Self {
        self.response_timeout = within;
        self
    }

    /// Sets how many replicas must have a claim, a completion, a hold or a note, within the time
    /// `within`, before it is acknowledged (`WAIT`). The default is 0, which does not wait. If
    /// fewer replicas acknowledge in time, the call fails with a transient error:
    ///
    /// * A claim is undone: a first claim is released, and a takeover is abandoned, so that the
    ///   next attempt knows of the earlier ones. A claim that its owner already had is left as it
    ///   is.
    /// * A recording or a hold stays on the master and is replayed from there. The call succeeds
    ///   when it is sent again and enough replicas have the record. The runtime sends it again in
    ///   the background, so the client waits at most twice for its response.
    /// * A note stays on the master too. Sending it again has the same effect as once, unless it
    ///   has a step, which is then in the record twice.
    ///
    /// Releases, renewals, abandonments that do not hold the key, and notes of nothing but progress
    /// do not wait. If a failover loses one, the lease expires instead, or the next renewal or note
    /// takes its place.
    ///
    /// Each waiting call takes one more round trip and blocks a connection meanwhile; up to 64
    /// calls of a store wait at the same time. A loss at a failover becomes unlikely but not
    /// impossible: a replica that does not have the acknowledged write can still be promoted.
    pub fn wait_for_replicas(mut self, replicas: u32, within: Duration) -> Self {
        (self.replicas, self.replication_timeout) = (replicas, within);
        self
    }
}
