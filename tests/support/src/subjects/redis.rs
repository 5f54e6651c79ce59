//! A Redis store whose time the tests can move.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    conformance::TestedStore,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Store},
};
use idempotent_redis::{
    RedisStore,
    internals::{
        advance_first_claims, forget_first_claims, watch_list_of, with_large_recordings_from,
    },
};
use redis::ConnectionLike;

use crate::servers::redis::{IN_MEMORY, Server, command};

const ADVANCE: &str = include_str!("redis/advance.lua");
const PURGE: &str = concat!(
    include_str!("../../../../stores/redis/src/lua/record.lua"),
    include_str!("redis/purge.lua")
);

/// A private server, or the one that `REDIS_URL` names.
pub struct TestServer {
    url: String,
    _own: Option<Server>,
}

impl TestServer {
    pub fn start() -> Self {
        if let Ok(url) = std::env::var("REDIS_URL") {
            return Self { url, _own: None };
        }
        let own = Server::start(IN_MEMORY);
        Self { url: own.url(), _own: Some(own) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A store, which reads all claims to complete them without a script if `conditional` and the
    /// server can.
    pub async fn subject(&self, conditional: bool) -> ShiftedRedis {
        let prefix = unique_prefix();
        let options = RedisStore::options().key_prefix(&prefix);
        let store = options.connect(&self.url).await.unwrap();
        let store = if conditional { with_large_recordings_from(store, 0) } else { store };
        let raw = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        ShiftedRedis::new(store, prefix, Box::new(raw))
    }
}

/// A prefix for keys that no other store has.
pub fn unique_prefix() -> String {
    format!("test:{:x}:", fastrand::u64(..))
}

impl Server {
    /// Makes all records of the server older by this duration.
    ///
    /// # Panics
    /// When there are no records.
    pub fn advance(&self, by: Duration) {
        let mut connection = self.client().get_connection().unwrap();
        let keys: Vec<Vec<u8>> = command(&mut connection, "KEYS *");
        // What is kept beside the records.
        let beside = [&b":inputs"[..], b":watched", b":log"];
        let is_record = |key: &&Vec<u8>| !beside.iter().any(|name| key.ends_with(name));
        let records: Vec<_> = keys.iter().filter(is_record).collect();
        assert!(!records.is_empty(), "the server has no records");
        for key in records {
            let (prefix, _) = key.split_at(key.len() - 32);
            let mut advance = redis::cmd("EVAL");
            advance.arg(ADVANCE).arg(2).arg(key).arg([prefix, b"watched"].concat());
            let advance = advance.arg(by.as_millis().to_string());
            let _: u64 = advance.query(&mut connection).unwrap();
        }
    }
}

/// A Redis store whose records a test can make older.
pub struct ShiftedRedis(TrackedStore);

/// A store that remembers the ids that were claimed, with a connection that rewrites their records.
struct TrackedStore {
    store: RedisStore,
    prefix: String,
    raw: Mutex<Box<dyn ConnectionLike + Send>>,
    keys: Mutex<BTreeSet<RecordId>>,
    /// How many records have expired in the server since the last purge.
    removed: AtomicU64,
}

impl ShiftedRedis {
    /// Wraps a store whose keys have this prefix, which no other store may have.
    pub fn new(store: RedisStore, prefix: String, raw: Box<dyn ConnectionLike + Send>) -> Self {
        Self(TrackedStore {
            store,
            prefix,
            raw: Mutex::new(raw),
            keys: Mutex::default(),
            removed: AtomicU64::new(0),
        })
    }
}

impl ShiftedRedis {
    /// Exempts the records so far from later time shifts.
    pub fn forget(&self) {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl TrackedStore {
    fn run(&self, script: &str, id: &RecordId, arg: i128) -> u64 {
        let key = [self.prefix.as_bytes(), id.as_bytes()].concat();
        let watched = watch_list_of(&self.store, id);
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        redis::cmd("EVAL")
            .arg(script)
            .arg(2)
            .arg(key)
            .arg(watched)
            .arg(arg.to_string())
            .query(&mut **raw)
            .unwrap()
    }

    fn shift(&self, by: i128) {
        for id in self.keys() {
            self.removed.fetch_add(self.run(ADVANCE, &id, by), Ordering::Relaxed);
        }
    }

    fn keys(&self) -> BTreeSet<RecordId> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl TestedStore for ShiftedRedis {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    async fn advance(&self, by: Duration) {
        advance_first_claims(&self.0.store, by);
        self.0.shift(i128::try_from(by.as_millis()).unwrap());
    }

    async fn set_back(&self, by: Duration) -> bool {
        // A process does not measure time by the server's clock.
        forget_first_claims(&self.0.store);
        self.0.shift(-i128::try_from(by.as_millis()).unwrap());
        true
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(60)
    }
}

#[async_trait]
impl Store for TrackedStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.store.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(*id);
        self.store.claim(id, claim).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.store.note(lease, note).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.store.complete(lease, recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.store.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.store.abandon(lease, policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.store.look_up(id).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.store.resolve(id, seen, resolution, audit).await
    }

    /// Removes and counts at once the records that the server would remove after a delay.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        assert_eq!(self.store.purge(limit).await?, 0);
        let mut removed = self.removed.swap(0, Ordering::Relaxed).min(u64::from(limit));
        for id in self.keys() {
            if removed < u64::from(limit) {
                removed += self.run(PURGE, &id, 0);
            }
        }
        Ok(removed)
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.store.resumable(operation, after, limit).await
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.store.administration()
    }
}
