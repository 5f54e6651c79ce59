//! The store in Redis or Valkey.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{claim, connect, engine::Engine, error::CallFailure, notes, options::RedisOptions};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::Store,
};

/// A store in Redis 7.0 or later, or in Valkey: a single server, the master that Sentinels name, or
/// a cluster.
///
/// Each record is one value under its own key, which expires with the record: 113 bytes, the name
/// of the operation, 16 bytes for the principal, the handler's notes, and the recording. Claiming a
/// new key, completing it and replaying its recording each take one round trip. A claim that finds
/// another attempt in flight takes a second round trip, in which a script on the server decides. A
/// recording of at least 64 KiB takes a second round trip as well on Valkey 8.1 or later: there the
/// store reads the claim and replaces it if it is unchanged, which takes less of the server's time
/// than a script that copies the recording. Time is the server's clock.
///
/// A note takes one round trip. The server then writes the whole value again, as it does for a
/// renewal, so the cost of both grows with the length of the steps and the input. A note with an
/// input takes a second round trip, which adds 48 bytes to a sorted set that all records share, the
/// *index*, under the key `inputs` after the [prefix](RedisOptions::key_prefix). So does the
/// completion or release of an attempt with an input, which removes them. In a cluster, one node
/// has the index: while that node does not respond, no input can be noted, and no operation is
/// found to be resumed.
///
/// # Durability
/// Claims and recordings are as durable as the server. With `appendfsync always` they survive a
/// crash of the server and of its machine; with `everysec` a crash of the machine can lose the last
/// second; with `appendonly no` a restart loses all of them.
///
/// A failover loses whatever had not reached the promoted replica, and an operation whose record is
/// lost can run again. In a planned failover (`SENTINEL FAILOVER`) the old master continues to
/// acknowledge writes that are then lost. The store reduces this loss as follows:
///
/// * The Sentinel that leads the failover announces the promotion before it begins. The store then
///   stops using the old master, and calls fail with a transient error until a Sentinel names the
///   new one. That takes about a second, or about 5 seconds if the failover is aborted. A store
///   that is being opened waits for up to 2 seconds.
/// * Writes that the old master acknowledged in the last milliseconds before the announcement can
///   still be lost. If the announcement does not arrive, so can those that it acknowledged until
///   the store polls the Sentinels again, which is up to a second after the new master is named.
///
/// Two settings together prevent the loss if there is one replica:
///
/// * `min-replicas-to-write 1` on every server: a master without a replica refuses writes. After a
///   failover, calls then fail with a transient error until the old master has become a replica of
///   the new one. That takes about ten seconds, or less with a second replica.
/// * [`wait_for_replicas(1, …)`](RedisOptions::wait_for_replicas): a claim is granted, and a
///   completion, a hold or a note is acknowledged, only when a replica has it (`WAIT`). With
///   several replicas, another one may be promoted; a loss is then unlikely but not impossible.
///
/// # Server logs
/// `SLOWLOG` keeps the first 128 bytes of each argument of a command that took longer than
/// `slowlog-log-slower-than` (10 ms by default), so it can contain the beginning of a recorded
/// response. Set that setting to -1 if readers of the log must not see responses. `MONITOR` shows
/// all responses.
///
/// # Server requirements
/// Whenever the store opens a connection, it refuses a server that is older than 7.0, that is a
/// replica, or whose `maxmemory-policy` is not `noeviction`. The policy matters even while
/// `maxmemory` is 0, because a limit can be set later. A full server refuses new claims, but still
/// accepts the notes and recordings of granted claims and replays what it has.
///
/// The user in the URL needs these commands, and access to the keys that begin with the
/// [prefix](RedisOptions::key_prefix):
///
/// * `SET`, `GET`, `GETRANGE`, `DEL`, `PTTL`, `PEXPIRETIME`, `TIME`, `ZADD`, `ZRANDMEMBER`, `ZREM`,
///   `EVAL`, `EVALSHA` and `INFO`;
/// * `WAIT` with [`wait_for_replicas`](RedisOptions::wait_for_replicas);
/// * `CLUSTER|SLOTS`, `CLUSTER|INFO` and `ASKING` in a cluster;
/// * `SELECT` if the URL names a database other than 0.
///
/// For example:
/// ```text
/// ACL SETUSER payments on >password ~idempotency:* +set +get +getrange +del +pttl +pexpiretime
/// ACL SETUSER payments +time +zadd +zrandmember +zrem +eval +evalsha +info +wait
/// ```
/// [`check`](Self::check) sends each of these commands, and names the first that is missing.
///
/// # Connections
/// Each Tokio runtime that calls the store has two connections to each server, one for requests and
/// one for renewals, and up to 64 more while calls
/// [wait for replicas](RedisOptions::wait_for_replicas). A store with Sentinels has one connection
/// to each Sentinel. In a cluster the store opens short-lived connections to look up the slots. A
/// lost connection is opened again by the next call.
///
/// A server that sends nothing for 2 seconds while a call waits
/// ([`response_timeout`](RedisOptions::response_timeout)) is considered down. A response may take
/// longer while its bytes arrive; if they arrive on other connections only, just the silent one is
/// closed. When a server is down, its connections are closed, calls on them end with an unknown
/// outcome, and further calls for its keys wait half a second for a new connection. After that,
/// calls fail at once, except for one call about every half second that tries to connect, for at
/// most 2 seconds.
///
/// In a cluster, only the keys of that server are affected, until its replica is promoted. This
/// requires `cluster-require-full-coverage no`: by default Redis stops the whole cluster between
/// the failure and the promotion. Name several nodes of the cluster, or all Sentinels, in the URL.
///
/// A claim, a completion, a renewal, a lookup, or a note without a step whose acknowledgment was
/// lost is sent once more. Any call is sent on a new connection if nothing of it was sent on the
/// old one, or if the server has refused it because it is no longer the master.
///
/// # Examples
/// [`options`](Self::options) sets what shall differ from the defaults.
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_redis::RedisStore;
///
/// let store = RedisStore::connect("redis://:password@localhost/0").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) engine: Arc<Engine>,
}

impl RedisStore {
    /// The options, with which a store can be opened that differs from the default.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// Opens a store with the default options, at a URL of one of these forms:
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
    /// compiled in, or if the server does not meet the [requirements](Self#server-requirements).
    /// Fails with a transient error if no server responds within 2 seconds, or no node of a cluster
    /// or Sentinel within a second. One reachable master of a cluster is enough; the others are
    /// verified later. The error never contains the URL.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options().connect(url).await
    }

    /// Does nothing, because Redis has no schema. Every store has this method, so that all can be
    /// set up in the same way.
    ///
    /// # Errors
    /// It does not fail.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Verifies that the servers still meet the [requirements](Self#server-requirements), and that
    /// the user in the URL may execute each command on keys with the prefix, by sending all of them
    /// for a key that does not exist. It changes nothing. In a cluster, masters that do not respond
    /// within 2 seconds are skipped if another one responds.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names the setting, or the missing privilege and
    /// the `ACL SETUSER` command that grants it; or with a transient error if no master responds.
    pub async fn check(&self) -> Result<(), StoreError> {
        connect::check(&self.engine).await.map_err(of("check"))
    }
}

// Here, so that the options need not know the store.
impl RedisOptions {
    /// Opens a store with these options. [`RedisStore::connect`] lists the forms of the URL.
    ///
    /// # Errors
    /// As for [`RedisStore::connect`].
    pub async fn connect(self, url: &str) -> Result<RedisStore, StoreError> {
        Ok(RedisStore { engine: Arc::new(connect::open(url, &self).await?) })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.engine.prefix).finish_non_exhaustive()
    }
}

/// Converts the failure of an operation.
fn of(operation: &'static str) -> impl Fn(CallFailure) -> StoreError {
    move |failure| failure.into_error(operation)
}

#[async_trait]
impl Store for RedisStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        claim::claim(&self.engine, id, claim).await.map_err(of("claim"))
    }

    /// Sends all renewals at once, so that together they take one round trip. The outcome of a
    /// lease is [`RenewOutcome::Unknown`] if its server does not respond or its record cannot be
    /// read; the call fails only if that is so for all of them. It waits for at most an eighth of
    /// the shortest lease, and at least 750 ms, but not longer than the response timeout.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        claim::renew(&self.engine, leases).await.map_err(of("renew"))
    }

    /// A recording of at least 64 KiB takes two round trips if the server can compare a value
    /// before it replaces it (Valkey 8.1 or later), and much less of the server's time.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        claim::complete(&self.engine, lease, recording).await.map_err(of("complete"))
    }

    /// A note with a step is not sent again after its acknowledgment was lost, because that would
    /// add the step twice. A note with an input takes one more round trip, which adds the attempt
    /// to the index that [`resumable`](Self::resumable) reads.
    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        notes::note(&self.engine, lease, note).await.map_err(of("note"))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        claim::release(&self.engine, lease).await.map_err(of("release"))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        claim::abandon(&self.engine, lease, policy).await.map_err(of("abandon"))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        claim::look_up(&self.engine, id).await.map_err(of("look up"))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        claim::resolve(&self.engine, id, seen, resolution).await.map_err(of("resolve"))
    }

    /// Does nothing and returns 0: the server removes recordings when their ttl expires, and
    /// abandoned claims an hour after that. If its clock is set back, they stay longer by the same
    /// time.
    async fn purge(&self, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Looks up at most 256 of the attempts that have noted an input, of any operation, so a page
    /// may have fewer ids than `limit` although it is not the last one. Records that cannot be read
    /// are skipped.
    ///
    /// # Errors
    /// Fails if the server does not respond; in a cluster, only if no operation was found.
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        notes::resumable(&self.engine, operation, after, limit).await.map_err(of("resumable"))
    }
}
