//! The store in Redis or Valkey.

use std::{fmt, sync::Arc, time::Duration};

use self::{
    address::Address,
    error::CallFailure,
    large_recordings::LARGE,
    replicas::Replicas,
    router::{Router, Timeouts},
};
use idempotent_core::{StoreError, store::Store};

mod address;
mod cluster;
mod discovery;
mod election;
mod encoding;
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod large_recordings;
mod missing_permission;
mod node;
mod notes;
mod privileges;
mod replicas;
mod replication_connections;
mod requirements;
mod router;
mod scripts;
mod sentinels;
mod server_error;
mod servers;
mod steps;
mod store_impl;
mod watch_thread;
mod wire;

const NAME: &str = "redis";
const PREFIX: &str = "idempotency:";
/// A server that forks or syncs its append-only file can take more than a second to respond, which
/// leaves the outcome of a claim unknown. The limit is below a sixth of the default lease, 5
/// seconds, after which a failed renewal is sent again.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A store in Redis 7.0 or later, or in Valkey: a single server, the master that Sentinels name, or
/// a cluster.
///
/// Each record is one value under its own key, which expires with the record. Claiming a new key,
/// completing it and replaying its recording each take one round trip. Time is the server's clock.
///
/// Claims and recordings are as durable as the server: with `appendonly no` a restart loses all of
/// them. A failover loses whatever had not reached the promoted replica, and an operation whose
/// record is lost can run again; [`wait_for_replicas`](Self::wait_for_replicas) together with
/// `min-replicas-to-write` [prevents] that if there is one replica.
///
/// The store refuses a server that is older than 7.0, that is a replica, or whose
/// `maxmemory-policy` is not `noeviction`. A full server refuses new claims, but still accepts the
/// notes and recordings of granted claims and replays what it has. The guide [Redis in production]
/// has the privileges, failovers, connections, outages and logs.
///
/// [prevents]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/redis/index.html#durability-and-failovers
/// [Redis in production]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/redis/index.html
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_redis::RedisStore;
///
/// let store = RedisStore::connect("redis://:password@localhost/0").await?.key_prefix("payments:");
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    router: Router,
    prefix: Arc<str>,
    replicas: Option<Replicas>,
    /// The shortest recording that is stored without a script if the server can, in bytes.
    large: usize,
}

impl RedisStore {
    /// Connects to a URL of one of these forms:
    ///
    /// * `redis://[user:password@]host[:port][/db]`: a single server.
    /// * `redis+sentinel://[user:password@]host[:port],…/name[/db]`: the master of that name, as
    ///   the Sentinels at these hosts know it. User and password are those of the master;
    ///   `?sentinel_username=…&sentinel_password=…` are those of the Sentinels.
    /// * `redis+cluster://[user:password@]host[:port],…`: the cluster that these nodes belong to.
    ///
    /// With the feature `tls` (`redis-tls` of `idempotent-actix`), `rediss` instead of `redis` uses
    /// TLS and trusts the certificates that the machine trusts.
    ///
    /// # Errors
    /// Fails with a permanent error if the URL is invalid, if it needs a feature that is not
    /// compiled in, or if the server does not meet the [requirements](Self). Fails with a transient
    /// error if no server responds within 2 seconds, or no node of a cluster or Sentinel within a
    /// second. One reachable master of a cluster is enough; the others are verified later. The
    /// error never contains the URL.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let address = Self::parse(url)?;
        let timeouts = Timeouts { response: RESPONSE_TIMEOUT, replication: Duration::ZERO };
        let named = matches!(address, Address::Server(_));
        match Router::open(address, timeouts).await {
            Ok(router) => Ok(Self { router, prefix: PREFIX.into(), replicas: None, large: LARGE }),
            // A replica that the URL itself names is a configuration mistake, not a failover.
            Err(refused @ CallFailure::UnsuitableServer(_)) if named => {
                Err(StoreError::permanent(NAME, "connect", refused))
            }
            Err(failure) => Err(failure.into_error("connect")),
        }
    }

    /// Parses a URL.
    fn parse(url: &str) -> Result<Address, StoreError> {
        // The client library's marker for TLS without verification.
        let verified = url.strip_suffix("#insecure").unwrap_or(url);
        idempotent_core::store::url::verify_server(NAME, verified, address::parameters(url))?;
        Address::parse(url).map_err(|error| StoreError::permanent(NAME, "connect", error))
    }

    /// Sets the prefix of the records' keys; the default is `idempotency:`. The rest of a key is
    /// the 32 bytes of the record id, or `inputs`. A prefix with a hash tag (`{…}`) puts all
    /// records on one node of a cluster.
    #[must_use]
    pub fn key_prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how long nothing may arrive from a server while a call waits for its response; the
    /// default is 2 seconds. After that, the outcome of the call is unknown and the server counts
    /// as down. A claim, a completion, a renewal or a lookup is sent once more if a new connection
    /// can be opened at once.
    #[must_use]
    pub fn response_timeout(self, within: Duration) -> Self {
        let router = self.router.with(|timeouts| Timeouts { response: within, ..timeouts });
        Self { router, ..self }
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
    #[must_use]
    pub fn wait_for_replicas(self, replicas: u32, within: Duration) -> Self {
        let router = self.router.with(|timeouts| Timeouts { replication: within, ..timeouts });
        let replicas = (replicas > 0).then_some(Replicas { wanted: replicas, within });
        Self { router, replicas, ..self }
    }

    /// Does nothing, because Redis has no schema. Every store has this method, so that all can be
    /// set up in the same way.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Store::migrate(self).await
    }

    /// Verifies that the servers still meet the [requirements](Self), and that the user in the URL
    /// may execute each command on keys with the prefix. It changes nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names the setting, or the missing privilege and
    /// the `ACL SETUSER` command that grants it; or with a transient error if no master responds.
    pub async fn check(&self) -> Result<(), StoreError> {
        Store::check(self).await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
