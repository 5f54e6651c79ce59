//! Sharded maps of records, and the limits that the shards share.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{PoisonError, atomic::Ordering},
};

use crate::{
    clock::Timestamp,
    record::{Record, RecordState},
    record_id::RecordId,
    scope::Principal,
    store::memory::shares::{Share, Shares},
    sync::{AtomicUsize, Mutex, MutexGuard},
    transition::{Change, Event, transition},
};

/// The number of records in each shard of a full store; small, because a purge walks a whole shard
/// under its lock.
const RECORDS_A_SHARD: usize = 256;

/// All records of a store.
pub(super) struct Shards {
    shards: Box<[Mutex<Map>]>,
    hashing: IdHashBuilder,
    capacity: Capacity,
}

type Map = HashMap<RecordId, Record, IdHashBuilder>;

impl Shards {
    pub(super) fn new(max_records: usize, max_bytes: usize, share: Share) -> Self {
        let hashing = IdHashBuilder::random();
        let shards = (max_records / RECORDS_A_SHARD).clamp(1, 65_536).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::new(Map::with_hasher(hashing))).collect(),
            hashing,
            capacity: Capacity {
                records: Gauge::new(max_records),
                bytes: Gauge::new(max_bytes),
                shares: Shares::new(share),
                inputs: AtomicUsize::new(0),
            },
        }
    }

    pub(super) fn max_records(&self) -> usize {
        self.capacity.records.max
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.capacity.bytes.max
    }

    pub(super) fn share(&self) -> Share {
        self.capacity.shares.share
    }

    pub(super) fn count(&self) -> usize {
        self.shards.len()
    }

    /// Locks the shard of a record.
    pub(super) fn lock(&self, id: &RecordId) -> LockedRecord<'_> {
        // The map uses the lowest and highest bits of the hash; the shard index uses those between.
        let shard = usize::try_from(self.hashing.hash_one(id) >> 32 & 0xffff).unwrap_or(0);
        LockedRecord { id: *id, map: self.lock_shard(shard), capacity: &self.capacity }
    }

    /// Removes up to `limit` expired records of a shard and returns their number.
    pub(super) fn drop_expired(&self, shard: usize, now: Timestamp, limit: usize) -> usize {
        drop_expired(&mut self.lock_shard(shard), &self.capacity, now, limit)
    }

    /// Whether any operation has noted its input.
    pub(super) fn has_inputs(&self) -> bool {
        self.capacity.inputs.load(Ordering::Relaxed) > 0
    }

    /// Adds the operations of a shard that can be resumed, up to `limit` in all.
    pub(super) fn find_resumable(
        &self,
        shard: usize,
        now: Timestamp,
        limit: usize,
        found: &mut Vec<RecordId>,
    ) {
        let left = limit.saturating_sub(found.len());
        let map = self.lock_shard(shard);
        let resumable = map.iter().filter(|(_, record)| record.is_resumable(now));
        found.extend(resumable.map(|(id, _)| *id).take(left));
    }

    fn lock_shard(&self, shard: usize) -> MutexGuard<'_, Map> {
        #[expect(clippy::indexing_slicing, reason = "there is at least one shard")]
        let shard = &self.shards[shard % self.shards.len()];
        // A step changes the map only after it was fully decided, so a panic leaves the record
        // intact.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} records, ", self.capacity.records, self.capacity.records.max)?;
        write!(f, "{} of {} bytes", self.capacity.bytes, self.capacity.bytes.max)
    }
}

fn drop_expired(map: &mut Map, capacity: &Capacity, now: Timestamp, limit: usize) -> usize {
    let expired =
        map.extract_if(|_, record| match transition(Some(record), &Event::Purge, now).0 {
            Change::Remove => true,
            Change::Keep => false,
            Change::Put(shortened) => {
                *record = shortened;
                false
            }
        });
    expired.take(limit).map(|(_, record)| capacity.give_back(&record)).count()
}

/// A record, present or absent, whose shard is locked.
pub(super) struct LockedRecord<'a> {
    id: RecordId,
    map: MutexGuard<'a, Map>,
    capacity: &'a Capacity,
}

impl LockedRecord<'_> {
    pub(super) fn record(&self) -> Option<&Record> {
        self.map.get(&self.id)
    }

    /// Applies what the state machine decided.
    pub(super) fn apply(&mut self, change: Change) {
        let old = match change {
            Change::Keep => None,
            Change::Put(record) => {
                self.capacity.take(&record);
                self.map.insert(self.id, record)
            }
            Change::Remove => self.map.remove(&self.id),
        };
        if let Some(old) = old {
            self.capacity.give_back(&old);
        }
    }

    /// Ensures that there is room for one more record of a principal, if necessary by dropping the
    /// expired records of this shard.
    pub(super) fn make_room(
        &mut self,
        now: Timestamp,
        principal: Option<Principal>,
    ) -> Result<(), CapacityExceeded> {
        if self.capacity.admits(principal).is_err() {
            drop_expired(&mut self.map, self.capacity, now, usize::MAX);
        }
        self.capacity.admits(principal)
    }
}

/// The limits that all shards share. Checking and counting are separate steps, so each concurrent
/// claim can exceed a limit by one record.
struct Capacity {
    records: Gauge,
    bytes: Gauge,
    shares: Shares,
    /// The number of records with an input.
    inputs: AtomicUsize,
}

impl Capacity {
    /// Whether there is room for one more record of a principal.
    fn admits(&self, principal: Option<Principal>) -> Result<(), CapacityExceeded> {
        if self.records.is_full() || self.bytes.is_full() {
            return Err(CapacityExceeded::Store {
                records: self.records.used(),
                bytes: self.bytes.used(),
            });
        }
        // While half of the store is free, no principal can crowd out another.
        let half = self.records.is_half_full() || self.bytes.is_half_full();
        match principal {
            Some(principal) if half && self.shares.is_used_up(principal) => {
                Err(CapacityExceeded::Principal(self.shares.share))
            }
            _ => Ok(()),
        }
    }

    fn take(&self, record: &Record) {
        let bytes = bytes_of(record);
        self.records.used.fetch_add(1, Ordering::Relaxed);
        self.bytes.used.fetch_add(bytes, Ordering::Relaxed);
        self.inputs.fetch_add(usize::from(has_input(record)), Ordering::Relaxed);
        if let Some(principal) = record.principal {
            self.shares.take(principal, bytes);
        }
    }

    fn give_back(&self, record: &Record) {
        let bytes = bytes_of(record);
        self.records.used.fetch_sub(1, Ordering::Relaxed);
        self.bytes.used.fetch_sub(bytes, Ordering::Relaxed);
        self.inputs.fetch_sub(usize::from(has_input(record)), Ordering::Relaxed);
        if let Some(principal) = record.principal {
            self.shares.give_back(principal, bytes);
        }
    }
}

fn has_input(record: &Record) -> bool {
    !record.notes.input.is_empty()
}

fn bytes_of(record: &Record) -> usize {
    let recording = match &record.state {
        RecordState::Completed(recording) => recording.len(),
        RecordState::InFlight | RecordState::Held => 0,
    };
    recording + record.notes.steps.len() + record.notes.input.len()
}

struct Gauge {
    used: AtomicUsize,
    max: usize,
}

impl Gauge {
    fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.used() >= self.max
    }

    fn is_half_full(&self) -> bool {
        self.used() >= self.max / 2
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.used().fmt(f)
    }
}

/// Why a claim is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum CapacityExceeded {
    #[error(
        "the store is full: {records} records with {bytes} bytes of recordings, none of them \
         expired; raise `max_records` or `max_bytes`"
    )]
    Store { records: usize, bytes: usize },
    #[error(
        "the store is half full, and the principal has used its share of {} records or {} bytes \
         of recordings; raise `max_share`",
        .0.records, .0.bytes
    )]
    Principal(Share),
}

/// Hashes record ids, which are SHA-256 digests already: one multiplication of 16 of their bytes.
/// The random seeds keep a client that chooses its keys from choosing their places in the maps.
#[derive(Clone, Copy)]
struct IdHashBuilder([u64; 2]);

impl IdHashBuilder {
    fn random() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for IdHashBuilder {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { seed: *self, hash: 0 }
    }
}

struct IdHasher {
    seed: IdHashBuilder,
    hash: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, id: &[u8]) {
        let IdHashBuilder([one, two]) = self.seed;
        if let Some(([first, second], _)) = id.as_chunks::<8>().0.split_first_chunk::<2>() {
            let (first, second) =
                (u64::from_le_bytes(*first) ^ one, u64::from_le_bytes(*second) ^ two);
            let product = u128::from(first) * u128::from(second);
            self.hash = fold(product);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}

fn fold(product: u128) -> u64 {
    let [a, b, c, d, e, f, g, h, low @ ..] = product.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ u64::from_be_bytes(low)
}
