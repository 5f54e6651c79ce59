//! Sharded maps of records, and the bounds that they share.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    clock::Timestamp,
    record::{Record, RecordId, State},
    transition::Change,
};

/// A shard is walked as a whole under its lock, so it holds about this many records when the store is full.
const RECORDS_A_SHARD: usize = 256;

/// Every record of a store.
pub(super) struct Shards {
    shards: Box<[Mutex<Map>]>,
    hashing: Seed,
    room: Room,
}

type Map = HashMap<RecordId, Record, Seed>;

impl Shards {
    pub(super) fn new(max_records: usize, max_bytes: usize) -> Self {
        let hashing = Seed::random();
        let shards = (max_records / RECORDS_A_SHARD).clamp(1, 65_536).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::new(Map::with_hasher(hashing))).collect(),
            hashing,
            room: Room { records: Gauge::new(max_records), bytes: Gauge::new(max_bytes) },
        }
    }

    pub(super) fn max_records(&self) -> usize {
        self.room.records.max
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.room.bytes.max
    }

    pub(super) fn count(&self) -> usize {
        self.shards.len()
    }

    /// Locks the shard of a record.
    pub(super) fn lock(&self, id: &RecordId) -> Slot<'_> {
        // The map uses the hash's lowest and highest bits, the shards those between.
        let shard = usize::try_from(self.hashing.hash_one(id) >> 32 & 0xffff).unwrap_or(0);
        Slot { id: *id, map: self.lock_shard(shard), room: &self.room }
    }

    /// Removes up to `limit` expired records of a shard, and says how many.
    pub(super) fn drop_expired(&self, shard: usize, now: Timestamp, limit: usize) -> usize {
        drop_expired(&mut self.lock_shard(shard), &self.room, now, limit)
    }

    fn lock_shard(&self, shard: usize) -> MutexGuard<'_, Map> {
        #[expect(clippy::indexing_slicing, reason = "there is at least one shard")]
        let shard = &self.shards[shard % self.shards.len()];
        // A step changes the map only after all of it was decided: a panic leaves the record as it was.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} records, ", self.room.records, self.room.records.max)?;
        write!(f, "{} of {} bytes", self.room.bytes, self.room.bytes.max)
    }
}

fn drop_expired(map: &mut Map, room: &Room, now: Timestamp, limit: usize) -> usize {
    let expired = map.extract_if(|_, record| record.expired(now));
    expired.take(limit).map(|(_, record)| room.give_back(&record)).count()
}

/// The place of one record, locked.
pub(super) struct Slot<'a> {
    id: RecordId,
    map: MutexGuard<'a, Map>,
    room: &'a Room,
}

impl Slot<'_> {
    pub(super) fn record(&self) -> Option<&Record> {
        self.map.get(&self.id)
    }

    /// Applies what the state machine decided.
    pub(super) fn apply(&mut self, change: Change) {
        let old = match change {
            Change::Keep => None,
            Change::Put(record) => {
                self.room.take(&record);
                self.map.insert(self.id, record)
            }
            Change::Remove => self.map.remove(&self.id),
        };
        if let Some(old) = old {
            self.room.give_back(&old);
        }
    }

    /// Sees to it that there is room for one record more, if need be by dropping the expired records of this shard.
    pub(super) fn make_room(&mut self, now: Timestamp) -> Result<(), Full> {
        if self.room.is_full() {
            drop_expired(&mut self.map, self.room, now, usize::MAX);
        }
        if self.room.is_full() { Err(self.room.full()) } else { Ok(()) }
    }
}

/// What the shards share. The bounds are checked and counted in two steps, so claims that run side by side can go beyond them by
/// one record a thread.
struct Room {
    records: Gauge,
    bytes: Gauge,
}

impl Room {
    fn is_full(&self) -> bool {
        self.records.is_full() || self.bytes.is_full()
    }

    fn full(&self) -> Full {
        Full { records: self.records.used(), bytes: self.bytes.used() }
    }

    fn take(&self, record: &Record) {
        self.records.used.fetch_add(1, Ordering::Relaxed);
        self.bytes.used.fetch_add(bytes_of(record), Ordering::Relaxed);
    }

    fn give_back(&self, record: &Record) {
        self.records.used.fetch_sub(1, Ordering::Relaxed);
        self.bytes.used.fetch_sub(bytes_of(record), Ordering::Relaxed);
    }
}

fn bytes_of(record: &Record) -> usize {
    match &record.state {
        State::Completed(recording) => recording.len(),
        State::InFlight | State::Held => 0,
    }
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
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.used().fmt(f)
    }
}

/// Why a claim was refused.
#[derive(Debug)]
pub(super) struct Full {
    records: usize,
    bytes: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is full: {} records with {} bytes of recordings, none of them expired", self.records, self.bytes)
    }
}

impl Error for Full {}

/// Hashes record ids, which are SHA-256 digests already: 16 of their bytes in one multiplication. The seeds keep a client that picks
/// its keys from choosing where in the maps its records go.
#[derive(Clone, Copy)]
struct Seed([u64; 2]);

impl Seed {
    fn random() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for Seed {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { seed: *self, hash: 0 }
    }
}

struct IdHasher {
    seed: Seed,
    hash: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, id: &[u8]) {
        let Seed([one, two]) = self.seed;
        if let Some(([first, second], _)) = id.as_chunks::<8>().0.split_first_chunk::<2>() {
            let (first, second) = (u64::from_le_bytes(*first) ^ one, u64::from_le_bytes(*second) ^ two);
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
