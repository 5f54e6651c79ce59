//! The store in memory, which covers one process.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    clock::{Clock, SystemClock, Timestamp},
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    record::Record,
    record_id::RecordId,
    short_text::ShortText,
    store::{Administration, Store},
    transition,
    transition::Change,
};

use self::{
    audit_log::AuditLog,
    shard::{CapacityExceeded, LockedRecord, Shards},
    shares::Share,
};

mod administration;
mod audit_log;
mod hashing;
mod shard;
mod shares;

const NAME: &str = "memory";
const MAX_RECORDS: usize = 100_000;
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// One principal's default share of a store that is at least half full: the limit divided by this
/// number.
const SHARES: usize = 10;
/// How many shards a purge walks before it yields to other tasks.
const SHARDS_A_TURN: usize = 16;

/// A store in the memory of this process: the functions of [`transition`] behind sharded locks.
///
/// The records are lost when the process ends, and two processes share nothing. Use it for tests
/// and examples, and for services of a single process that may forget their keys at a restart. No
/// lock is held across an `await`.
///
/// # Limits
/// A store holds at most 100,000 records and 256 MiB of recordings; see
/// [`max_records`](Self::max_records) and [`max_bytes`](Self::max_bytes). For a new claim, a full
/// store first removes the expired records of one shard, that of the key. If that is not enough, it
/// refuses the claim with a transient [`StoreError`]. Live records are never removed, and the
/// recording of a granted claim is stored even if it exceeds the limit.
///
/// Once the store is half full, each principal is limited to a tenth of the maximum records and
/// bytes; see [`max_share`](Self::max_share). New claims of a principal beyond that limit are
/// refused with an error whose [`is_share_exceeded`](StoreError::is_share_exceeded) is true, while
/// claims of other principals are still granted. Claims without a principal, such as those in the
/// global scope, have no such limit.
///
/// The log of operators' decisions keeps the latest 10,000 entries. Lists, searches and counts read
/// all records.
///
/// # Examples
/// ```
/// use idempotent_core::store::memory::MemoryStore;
///
/// let store = MemoryStore::new().max_records(1_000);
/// ```
pub struct MemoryStore {
    shards: Shards,
    clock: Arc<dyn Clock>,
    next_purged: AtomicUsize,
    audit_log: AuditLog,
}

impl MemoryStore {
    /// Creates an empty store with the [`SystemClock`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// Creates an empty store with another clock, such as a
    /// [`ManualClock`](crate::clock::ManualClock) in tests.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        let share = Share { records: MAX_RECORDS / SHARES, bytes: MAX_BYTES / SHARES };
        let shards = Shards::new(MAX_RECORDS, MAX_BYTES, share);
        let (next_purged, audit_log) = (AtomicUsize::new(0), AuditLog::default());
        Self { shards, clock: Arc::new(clock), next_purged, audit_log }
    }

    /// Sets the maximum number of records; the default is 100,000. Resets the share of a principal
    /// to a tenth of it.
    ///
    /// Drops all records that the store contains: call this before the store is used.
    #[must_use]
    pub fn max_records(self, records: usize) -> Self {
        let share = Share { records: (records / SHARES).max(1), ..self.shards.share() };
        Self { shards: Shards::new(records, self.shards.max_bytes(), share), ..self }
    }

    /// Sets the maximum size of all recordings together, in bytes; the default is 256 MiB. Resets
    /// the share of a principal to a tenth of it.
    ///
    /// Drops all records that the store contains: call this before the store is used.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        let share = Share { bytes: (bytes / SHARES).max(1), ..self.shards.share() };
        Self { shards: Shards::new(self.shards.max_records(), bytes, share), ..self }
    }

    /// Sets how many records, and how many bytes of recordings, one principal may have once the
    /// store is half full; the default is a tenth of each limit.
    ///
    /// Drops all records that the store contains: call this before the store is used, and after
    /// [`max_records`](Self::max_records) and [`max_bytes`](Self::max_bytes), which reset the
    /// share.
    #[must_use]
    pub fn max_share(self, records: usize, bytes: usize) -> Self {
        let share = Share { records, bytes };
        Self {
            shards: Shards::new(self.shards.max_records(), self.shards.max_bytes(), share),
            ..self
        }
    }

    /// Does nothing, because the store has no schema. Every store has this method, so that all can
    /// be set up in the same way.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Store::migrate(self).await
    }

    /// Does nothing, because the store needs no server and no privileges.
    pub async fn check(&self) -> Result<(), StoreError> {
        Store::check(self).await
    }

    /// Applies one step of the state machine while the record is locked. The clock is read under
    /// the lock, so that the steps of a record are ordered by their times.
    fn step<T>(
        &self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>, Timestamp) -> (Change, T),
    ) -> T {
        let mut locked = self.shards.lock(id);
        let (change, outcome) = step(locked.record(), self.clock.now());
        locked.apply(change);
        outcome
    }

    fn claim_locked(
        &self,
        locked: &mut LockedRecord<'_>,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let now = self.clock.now();
        let (change, outcome) = match locked.record() {
            Some(record) if !record.is_expired(now) => transition::claim(Some(record), claim, now),
            other => {
                if other.is_some() {
                    locked.apply(Change::Remove);
                }
                locked.make_room(now, claim.principal).map_err(|refused| match refused {
                    CapacityExceeded::Store { .. } => StoreError::transient(NAME, "claim", refused),
                    CapacityExceeded::Principal(_) => {
                        StoreError::share_exceeded(NAME, "claim", refused)
                    }
                })?;
                transition::claim(None, claim, now)
            }
        };
        locked.apply(change);
        Ok(outcome)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("shards", &self.shards).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.claim_locked(&mut self.shards.lock(id), claim)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let renew = |renewal: &Renewal| {
            let Lease { id, owner } = renewal.lease;
            self.step(&id, |record, now| transition::renew(record, owner, renewal.extend, now))
                .into()
        };
        Ok(leases.iter().map(renew).collect())
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::note(record, lease.owner, note)))
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, now| {
            transition::complete(record, lease.owner, recording, now)
        }))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::release(record, lease.owner)))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        Ok(self
            .step(&lease.id, |record, now| transition::abandon(record, lease.owner, policy, now)))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let locked = self.shards.lock(id);
        let at = self.clock.now();
        let record = locked.record().filter(|record| !record.is_expired(at)).cloned();
        Ok(record.map(|record| Snapshot { record, at }))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        Ok(self.step(id, |record, now| {
            let (change, outcome) = transition::resolve(record, *seen, resolution, now);
            if let Some(record) = record.filter(|_| outcome == ResolveOutcome::Resolved) {
                self.audit_log.add(audit.of_record(record, now), now);
            }
            (change, outcome)
        }))
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut removed = 0;
        for walked in 1..=self.shards.count() {
            // Each purge starts where the last one stopped, so that a small limit starves no shard.
            let shard = self.next_purged.fetch_add(1, Ordering::Relaxed);
            let dropped = self.shards.drop_expired(shard, self.clock.now(), left);
            left -= dropped;
            removed += dropped;
            if left == 0 {
                break;
            }
            if walked % SHARDS_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(u64::try_from(removed).unwrap_or(u64::MAX))
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = BTreeSet::new();
        for shard in 0..self.shards.count() {
            if !self.shards.has_inputs() {
                break;
            }
            let ids = self.shards.resumable(shard, self.clock.now(), operation, after);
            for id in ids {
                found.insert(id);
                if found.len() > most {
                    found.pop_last();
                }
            }
            if shard % SHARDS_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(ResumablePage::of(found.into_iter().collect(), limit))
    }

    fn administration(&self) -> Option<&dyn Administration> {
        Some(self)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod conforms;
#[cfg(test)]
mod tests;
