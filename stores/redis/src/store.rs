//! The store in Redis or Valkey.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{claim, connect, engine::Engine, error::CallFailure, notes, options::RedisOptions};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Store},
};

/// A store in Redis 7.0 or later, or in Valkey: a single server, the master that Sentinels name, or
/// a cluster.
///
/// Each record is one value under its own key, which expires with the record. Claiming a new key,
/// completing it and replaying its recording each take one round trip. Time is the server's clock,
/// except that on Valkey 8.1 or later the process measures the time from a claim to its completion,
/// up to a third of the lease.
///
/// Claims and recordings are as durable as the server: with `appendonly no` a restart loses all of
/// them. A failover loses whatever had not reached the promoted replica, and an operation whose
/// record is lost can run again; [`wait_for_replicas`](RedisOptions::wait_for_replicas) together
/// with `min-replicas-to-write` [prevents] that if there is one replica.
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
/// let options = RedisStore::options().key_prefix("payments:");
/// let store = options.connect("redis://:password@localhost/0").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) engine: Arc<Engine>,
}

impl RedisStore {
    /// Returns the default options, to be changed before the store is opened.
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

    /// May fail with a transient error while the record's slot moves to another node of a cluster,
    /// because no script can then change the record and the log together.
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        claim::resolve(&self.engine, id, seen, resolution, audit).await.map_err(of("resolve"))
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

    fn administration(&self) -> Option<&dyn Administration> {
        Some(self)
    }
}
