//! The store that covers one process.

use std::{
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
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record::Record,
    record_id::RecordId,
    store::{Store, Transactions},
    transition,
    transition::Change,
};

use self::{
    shard::{NoRoom, Shards, Slot},
    shares::Share,
};

mod shard;
mod shares;

const NAME: &str = "memory";
const MAX_RECORDS: usize = 100_000;
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// A principal may take this part of a store that is half full.
const SHARES: usize = 10;
/// How many shards a purge walks before it lets other tasks run.
const SHARDS_A_TURN: usize = 16;

/// A store in the memory of this process: the functions of [`transition`] behind sharded locks.
///
/// It forgets everything when the process ends, and two processes share nothing: use it for tests, for examples, and where one
/// process serves all requests and a restart may forget. No lock is held across an `await`.
///
/// # Bounds
/// It holds at most 100,000 records and refuses new claims once their recordings have 256 MiB; see
/// [`max_records`](Self::max_records) and [`max_bytes`](Self::max_bytes). A new claim that finds it full is refused with a transient
/// [`StoreError`], after expired records of its shard were dropped. Nothing alive is ever evicted, and an answer that was worked
/// for is kept even if it goes beyond the bound.
///
/// Once the store is half full, one principal may take a tenth of its records and of its bytes; see [`max_share`](Self::max_share).
/// Beyond that its new claims are refused, while those of others go on. Claims whose principal is not known, such as those in the global
/// scope, have no such limit.
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
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// An empty store on the clock of your choice, such as a [`ManualClock`](crate::clock::ManualClock) in tests.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        let share = Share { records: MAX_RECORDS / SHARES, bytes: MAX_BYTES / SHARES };
        let shards = Shards::new(MAX_RECORDS, MAX_BYTES, share);
        Self { shards, clock: Arc::new(clock), next_purged: AtomicUsize::new(0) }
    }

    /// Bounds the number of records, in place of 100,000; a principal's share becomes a tenth of it. What the store held is forgotten:
    /// call it before use.
    #[must_use]
    pub fn max_records(self, records: usize) -> Self {
        let share = Share { records: (records / SHARES).max(1), ..self.shards.share() };
        Self { shards: Shards::new(records, self.shards.max_bytes(), share), ..self }
    }

    /// Bounds the bytes of all recordings, in place of 256 MiB; a principal's share becomes a tenth of it. What the store held is
    /// forgotten: call it before use.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        let share = Share { bytes: (bytes / SHARES).max(1), ..self.shards.share() };
        Self { shards: Shards::new(self.shards.max_records(), bytes, share), ..self }
    }

    /// Bounds what one principal may take once the store is half full, in place of a tenth of its records and of its bytes. What the
    /// store held is forgotten: call it after the two bounds above, and before use.
    #[must_use]
    pub fn max_share(self, records: usize, bytes: usize) -> Self {
        let share = Share { records, bytes };
        Self { shards: Shards::new(self.shards.max_records(), self.shards.max_bytes(), share), ..self }
    }

    /// Takes one step of the state machine while nobody else can look at the record. The clock is read under the lock, so that the
    /// steps of a record happen in the order of their times.
    fn step<T>(&self, id: &RecordId, step: impl FnOnce(Option<&Record>, Timestamp) -> (Change, T)) -> T {
        let mut slot = self.shards.lock(id);
        let (change, outcome) = step(slot.record(), self.clock.now());
        slot.apply(change, None);
        outcome
    }

    fn claim_slot(&self, slot: &mut Slot<'_>, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let now = self.clock.now();
        if slot.record().is_some_and(|record| record.expired(now)) {
            slot.apply(Change::Remove, None);
        }
        if slot.record().is_none() {
            slot.make_room(now, claim.principal).map_err(|refused| match refused {
                NoRoom::Full { .. } => StoreError::transient(NAME, "claim", refused),
                NoRoom::Share(_) => StoreError::share_exceeded(NAME, "claim", refused),
            })?;
        }
        let (change, outcome) = transition::claim(slot.record(), claim, now);
        slot.apply(change, claim.principal);
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
    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn namespace(&self) -> Option<&str> {
        None
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.claim_slot(&mut self.shards.lock(id), claim)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let renew = |renewal: &Renewal| {
            let Lease { id, owner } = renewal.lease;
            self.step(&id, |record, now| transition::renew(record, owner, renewal.extend, now)).into()
        };
        Ok(leases.iter().map(renew).collect())
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, now| transition::complete(record, lease.owner, recording, now)))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::release(record, lease.owner)))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::abandon(record, lease.owner, policy)))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let slot = self.shards.lock(id);
        let at = self.clock.now();
        let record = slot.record().filter(|record| !record.expired(at)).cloned();
        Ok(record.map(|record| Snapshot { record, at }))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        Ok(self.step(id, |record, now| transition::resolve(record, *seen, resolution, now)))
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

    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }
}
