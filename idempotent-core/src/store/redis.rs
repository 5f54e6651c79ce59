//! The store in Redis or Valkey.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use self::{
    address::Address,
    connections::{Again, Connections, Times},
    error::Failure,
    node::Lane,
    packed::abandoned_code,
    replicas::Replicas,
    scripts::Arg,
};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record_id::RecordId,
    store::{Store, Transactions},
};

mod address;
mod cluster;
mod connections;
mod driver;
mod error;
mod node;
mod packed;
mod privileges;
mod replicas;
mod scripts;
mod sentinels;
mod server;
mod servers;
mod steps;

const NAME: &str = "redis";
const PREFIX: &str = "idempotency:";
/// A server that forks or syncs its log can take more than a second: the claim is there then, and
/// the caller does not know. A renewal is tried again after a sixth of its lease, 5 seconds by
/// default, and must have failed by then.
const RESPONDING: Duration = Duration::from_secs(2);

/// A store in Redis 7.0 or later, or Valkey: in one server, in the master that Sentinels name, or
/// in a cluster.
///
/// Each record is one value under a separate key, which expires with the record. To claim a new
/// key, to complete it and to replay its recording is one round trip each; a claim that finds
/// another attempt in flight is decided by a script in the server, in a second one. Time is the
/// server's clock.
///
/// # What it can lose
/// A claim and a recording are as durable as the server: with `appendfsync always` they survive the
/// death of the server and of its machine, with `everysec` the last second may be lost with the
/// machine, with `appendonly no` a restart forgets them.
///
/// A failover forgets what had not reached the replica that is promoted. What is forgotten can run
/// again. In a planned failover (`SENTINEL FAILOVER`) the old master goes on acknowledging writes
/// that are lost. The Sentinel that leads the failover publishes the promotion before it begins;
/// the store then leaves the old master, and its calls fail with a transient error until a Sentinel
/// names the new one, about a second later, and no later than some seconds after the failover came
/// to nothing. A store that is opened meanwhile waits for up to 2 seconds. What the old master
/// acknowledged in the last milliseconds can be lost; if the publication does not arrive, what it
/// acknowledged until the store's next look, up to a second after the new master is named. Two
/// settings close that window together:
///
/// * `min-replicas-to-write 1` on every server: a master without a replica refuses writes. Calls
///   then fail with a transient error until the old master follows the new one, which the Sentinels
///   arrange after some ten seconds, or sooner with a second replica.
/// * [`wait_for_replicas(1, …)`](Self::wait_for_replicas): a claim is granted, and a completion or
///   a hold acknowledged, only when a replica has it (`WAIT`). Where there are several replicas,
///   another one may be promoted: then this makes the loss unlikely, not impossible.
///
/// # Logs of the server
/// `SLOWLOG` keeps the first 128 bytes of each argument of a command that took longer than
/// `slowlog-log-slower-than` (10 ms by default), and so may hold the beginning of a response. Set it to
/// -1 where whoever can read that log must see no responses. `MONITOR` shows all of them.
///
/// # The server
/// A server that is older than 7.0, a replica, or one whose `maxmemory-policy` is not `noeviction`
/// is refused whenever a connection is opened, also while `maxmemory` is 0, since a limit can be
/// set later. A full server refuses new claims; it still takes the recordings of those that it
/// granted, and replays what it has.
///
/// The user of the URL needs the commands `SET`, `GET`, `GETRANGE`, `DEL`, `PTTL`, `PEXPIRETIME`,
/// `TIME`, `EVAL`, `EVALSHA` and `INFO`; `WAIT` where steps wait for replicas; `CLUSTER|SLOTS`,
/// `CLUSTER|INFO` and `ASKING` in a cluster; `SELECT` where the URL names a database other than 0;
/// and reading and writing of the keys that begin with the [prefix](Self::key_prefix). For example:
/// ```text
/// ACL SETUSER payments on >password ~idempotency:* +set +get +getrange +del +pttl +pexpiretime +time +eval +evalsha +info +wait
/// ```
/// [`check`](Store::check) sends each of them and names what is missing.
///
/// # Connections
/// Each Tokio runtime that calls the store has one connection to each server for the steps of
/// requests and one for renewals, and up to 64 more while steps wait for replicas. A store with
/// Sentinels has one connection to each Sentinel; in a cluster it opens short ones to look up the
/// slots. A connection that is lost is opened again by the next call.
///
/// A server that does not respond within 2 seconds ([`response_timeout`](Self::response_timeout))
/// counts as down: its connections are closed, the calls on them end with an unknown outcome, and
/// further calls for its keys wait half a second for another connection. If there is none by then,
/// they fail at once, except for the call that tries to connect again: it waits up to half a
/// second, the attempt may take 2 seconds, and the next one follows within half a second.
///
/// In a cluster only the keys of that server fail, until its replica is promoted. The other servers
/// go on if the cluster is set to `cluster-require-full-coverage no`; by default Redis itself stops
/// all of them between the failure and the promotion. Name several nodes in the URL, and all
/// Sentinels.
///
/// A claim, a completion, a renewal and a look-up whose acknowledgement was lost are sent once
/// more.
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_core::store::redis::RedisStore;
///
/// let store = RedisStore::connect("redis://:password@localhost/0").await?.key_prefix("payments:");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    connections: Connections,
    prefix: Arc<str>,
    replicas: Option<Replicas>,
    namespace: Option<Arc<str>>,
}

impl RedisStore {
    /// Connects to what a URL names:
    ///
    /// * `redis://[user:password@]host[:port][/db]`: one server.
    /// * `redis+sentinel://[user:password@]host[:port],…/name[/db][?sentinel_password=…&sentinel_username=…]`:
    ///   the master of that name, as the Sentinels at these hosts know it. User and password are
    ///   the server's.
    /// * `redis+cluster://[user:password@]host[:port],…`: the cluster that these hosts belong to.
    ///
    /// With the feature `redis-tls`, `rediss` in place of `redis` speaks TLS, and trusts the
    /// certificates that the machine does.
    ///
    /// # Errors
    /// When the URL cannot be read or needs what is not compiled in; when the server cannot be
    /// reached within 2 seconds, or no node of a cluster says within a second which has which slots;
    /// when it is not safe to use: see [The server](Self#the-server). A cluster needs one master that
    /// can be reached; the others are verified when they can. Nothing of the URL is shown.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (url, namespace) = super::namespace::split(NAME, url)?;
        let address = Address::parse(&url).map_err(|error| StoreError::permanent(NAME, "connect", error))?;
        let times = Times { responding: RESPONDING, replicating: Duration::ZERO };
        let named = matches!(address, Address::Server(_));
        match Connections::open(address, times).await {
            Ok(connections) => Ok(Self { connections, prefix: PREFIX.into(), replicas: None, namespace }),
            // A replica that the URL itself names will stay one.
            Err(refused @ Failure::Refused(_)) if named => Err(StoreError::permanent(NAME, "connect", refused)),
            Err(failure) => Err(failure.into_error("connect")),
        }
    }

    /// Begins the name of each record's key with this, in place of `idempotency:`. The rest of the
    /// name is the 32 bytes of the record's id.
    #[must_use]
    pub fn key_prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how long a server may take to respond, in place of 2 seconds. Then the outcome is
    /// unknown and the server counts as [down](Self#connections): a claim, a completion, a renewal
    /// and a look-up are sent once more if it can be reached again at once.
    #[must_use]
    pub fn response_timeout(self, within: Duration) -> Self {
        let connections = self.connections.with(|times| Times { responding: within, ..times });
        Self { connections, ..self }
    }

    /// Grants a claim, and acknowledges a completion and an abandonment that holds the key, only
    /// when this number of replicas have it within `within` (`WAIT`). Where fewer do, the call
    /// fails with a transient error:
    ///
    /// * A claim is given back: a first claim is released, a takeover is abandoned, so that the
    ///   next attempt knows that it recovers. A claim that its owner had before is left as it is.
    /// * A recording and a hold stay on the master, and are replayed from there. Sent again, the
    ///   call passes as soon as enough replicas have them. The runtime does so in the background,
    ///   and the client has its response after two such waits at most.
    ///
    /// Other steps do not wait. A release, and an abandonment that does not hold the key, only give
    /// it back; if a failover forgets them, the lease expires instead.
    ///
    /// Each of these calls then costs a round trip more, and blocks a connection meanwhile: up to
    /// 64 calls of a process wait at once. It makes the loss at a failover unlikely, not
    /// impossible: a replica that does not have what was acknowledged may be promoted all the same.
    #[must_use]
    pub fn wait_for_replicas(self, replicas: u32, within: Duration) -> Self {
        let connections = self.connections.with(|times| Times { replicating: within, ..times });
        let replicas = (replicas > 0).then_some(Replicas { wanted: replicas, within });
        Self { connections, replicas, ..self }
    }
}

#[cfg(test)]
impl RedisStore {
    /// The store with another text in place of a file of its scripts.
    pub(crate) fn altered(self, file: &str, text: &str) -> Self {
        let mut connections = self.connections;
        connections.altered.push((file.to_owned(), text.to_owned()));
        Self { connections, ..self }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisStore {
    /// Has nothing to do.
    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Verifies that the user of the URL may send each command for keys under the prefix. It sends
    /// them all for a key that does not exist, to each master. In a cluster, masters that do not
    /// respond within 2 seconds are left out if another does.
    async fn check(&self) -> Result<(), StoreError> {
        self.check_privileges().await.map_err(|failure| failure.into_error("check"))
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        match self.replicas {
            Some(replicas) => self.claim_replicated(replicas, id, claim).await,
            None => match self.claim_on(Lane::Work, &self.key(id), claim).await {
                Ok(claimed) => Ok(claimed.outcome),
                Err(failure) => Err(failure.into_error("claim")),
            },
        }
    }

    /// Sends all renewals at once, so that they take one round trip together. A lease whose server
    /// does not respond, or whose record cannot be read, is of unknown outcome; the call fails only
    /// if all do. It waits for an eighth of the shortest lease at most, or for 750 ms if that is
    /// longer.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.renew_all(leases).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        match self.replicas {
            Some(replicas) => self.complete_replicated(replicas, lease, recording).await,
            None => self.owned("complete", Again::Yes, &scripts::COMPLETE, lease, &[Arg::Bytes(recording)]).await,
        }
    }

    // A release, an abandonment or a resolution that took effect finds a record that is no longer
    // its own when it is sent again, and would look fenced: these are not sent again here.

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.owned("release", Again::No, &scripts::RELEASE, lease, &[]).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        if let (Some(replicas), Abandoned::Hold) = (self.replicas, policy) {
            return self.hold_replicated(replicas, lease).await;
        }
        let policy = [Arg::Number(abandoned_code(policy).into())];
        self.owned("abandon", Again::No, &scripts::ABANDON, lease, &policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.read(id).await.map_err(|failure| failure.into_error("look up"))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        let recording = match resolution {
            Resolution::Complete(recording) => Some(Arg::Bytes(recording)),
            Resolution::Release => None,
        };
        let resolved = self.owned("resolve", Again::No, &scripts::RESOLVE, &seen, recording.as_slice()).await?;
        Ok(match resolved {
            Fence::Passed => ResolveOutcome::Resolved,
            Fence::Fenced => ResolveOutcome::Conflict,
        })
    }

    /// Removes nothing: the server removes recordings when their ttl expires, and abandoned claims
    /// an hour after that. If its clock is set back, they stay for longer by as much.
    async fn purge(&self, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }
}
