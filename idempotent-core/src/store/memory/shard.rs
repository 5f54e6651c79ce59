//! Sharded maps of records, and the bounds that they share.

use std::{
    collections::HashMap,
    error::Error,
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

/// A shard is walked as a whole under its lock, so it holds about this many records when the store is full.
const RECORDS_A_SHARD: usize = 256;

/// Every record of a store.
pub(super) struct Shards {
    shards: Box<[Mutex<Map>]>,
    hashing: Seed,
    room: Room,
}

type Map = HashMap<RecordId, Entry, Seed>;

/// A record, and whose share of the store it counts towards.
struct Entry {
    record: Record,
    principal: Option<Principal>,
}

impl Shards {
    pub(super) fn new(max_records: usize, max_bytes: usize, share: Share) -> Self {
        let hashing = Seed::random();
        let shards = (max_records / RECORDS_A_SHARD).clamp(1, 65_536).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::new(Map::with_hasher(hashing))).collect(),
            hashing,
            room: Room { records: Gauge::new(max_records), bytes: Gauge::new(max_bytes), shares: Shares::new(share) },
        }
    }

    pub(super) fn max_records(&self) -> usize {
        self.room.records.max
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.room.bytes.max
    }

    pub(super) fn share(&self) -> Share {
        self.room.shares.share
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
    let expired = map.extract_if(|_, entry| match transition(Some(&entry.record), &Event::Purge, now).0 {
        Change::Remove => true,
        Change::Keep => false,
        Change::Put(shortened) => {
            entry.record = shortened;
            false
        }
    });
    expired.take(limit).map(|(_, entry)| room.give_back(&entry)).count()
}

/// The place of one record, locked.
pub(super) struct Slot<'a> {
    id: RecordId,
    map: MutexGuard<'a, Map>,
    room: &'a Room,
}

impl Slot<'_> {
    pub(super) fn record(&self) -> Option<&Record> {
        self.map.get(&self.id).map(|entry| &entry.record)
    }

    /// Applies what the state machine decided. A record that is there stays its principal's.
    pub(super) fn apply(&mut self, change: Change, principal: Option<Principal>) {
        let old = match change {
            Change::Keep => None,
            Change::Put(record) => {
                let principal = self.map.get(&self.id).map_or(principal, |entry| entry.principal);
                let entry = Entry { record, principal };
                self.room.take(&entry);
                self.map.insert(self.id, entry)
            }
            Change::Remove => self.map.remove(&self.id),
        };
        if let Some(old) = old {
            self.room.give_back(&old);
        }
    }

    /// Ensures that there is room for one more record of a principal, if need be by dropping the expired records of this shard.
    pub(super) fn make_room(&mut self, now: Timestamp, principal: Option<Principal>) -> Result<(), NoRoom> {
        if self.room.admits(principal).is_err() {
            drop_expired(&mut self.map, self.room, now, usize::MAX);
        }
        self.room.admits(principal)
    }
}

/// What the shards share. The bounds are checked and counted in two steps, so claims that run side by side can go beyond them by
/// one record a thread.
struct Room {
    records: Gauge,
    bytes: Gauge,
    shares: Shares,
}

impl Room {
    /// Whether there is room for one more record of a principal.
    fn admits(&self, principal: Option<Principal>) -> Result<(), NoRoom> {
        if self.records.is_full() || self.bytes.is_full() {
            return Err(NoRoom::Full { records: self.records.used(), bytes: self.bytes.used() });
        }
        // While half of the store is free, no principal takes another one's place.
        let half = self.records.is_half_full() || self.bytes.is_half_full();
        match principal {
            Some(principal) if half && self.shares.is_used_up(principal) => Err(NoRoom::Share(self.shares.share)),
            _ => Ok(()),
        }
    }

    fn take(&self, entry: &Entry) {
        let bytes = bytes_of(&entry.record);
        self.records.used.fetch_add(1, Ordering::Relaxed);
        self.bytes.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(principal) = entry.principal {
            self.shares.take(principal, bytes);
        }
    }

    fn give_back(&self, entry: &Entry) {
        let bytes = bytes_of(&entry.record);
        self.records.used.fetch_sub(1, Ordering::Relaxed);
        self.bytes.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(principal) = entry.principal {
            self.shares.give_back(principal, bytes);
        }
    }
}

fn bytes_of(record: &Record) -> usize {
    match &record.state {
        RecordState::Completed(recording) => recording.len(),
        RecordState::InFlight | RecordState::Held => 0,
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
#[derive(Debug)]
pub(super) enum NoRoom {
    Full { records: usize, bytes: usize },
    Share(Share),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { records, bytes } => {
                write!(f, "it is full: {records} records with {bytes} bytes of recordings, none of them expired")
            }
            Self::Share(Share { records, bytes }) => write!(
                f,
                "it is half full, and the principal has its share of {records} records or {bytes} bytes of recordings"
            ),
        }
    }
}

impl Error for NoRoom {}

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
