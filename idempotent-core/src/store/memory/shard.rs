//! Sharded maps of records, and the limits that the shards share.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::BuildHasher,
    sync::{PoisonError, atomic::Ordering},
};

use crate::{
    clock::Timestamp,
    protocol::ListedRecord,
    record::{Record, RecordState},
    record_id::RecordId,
    scope::Principal,
    short_text::ShortText,
    store::memory::{
        hashing::DigestHashBuilder,
        shares::{Share, Shares},
    },
    sync::{AtomicUsize, Mutex, MutexGuard},
    transition::{Change, Event, transition},
};

/// The number of records in each shard of a full store; small, because a purge walks a whole shard
/// under its lock.
const RECORDS_A_SHARD: usize = 256;
/// The most shards, so that the locks of all of them fit into the caches of a processor.
const MAX_SHARDS: usize = 1024;

/// All records of a store.
pub(super) struct Shards {
    shards: Box<[Mutex<Map>]>,
    hashing: DigestHashBuilder,
    capacity: Capacity,
}

/// Records are boxed, so that a map that grows moves little memory.
type Map = HashMap<RecordId, Box<Record>, DigestHashBuilder>;

impl Shards {
    pub(super) fn new(max_records: usize, max_bytes: usize, share: Share) -> Self {
        let hashing = DigestHashBuilder::random();
        let shards = (max_records / RECORDS_A_SHARD).clamp(1, MAX_SHARDS).next_power_of_two();
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

    /// The operations of a shard with this name that can be resumed, after the id `after`.
    pub(super) fn resumable(
        &self,
        shard: usize,
        now: Timestamp,
        operation: &ShortText,
        after: Option<&RecordId>,
    ) -> Vec<RecordId> {
        let map = self.lock_shard(shard);
        map.iter()
            .filter(|(_, record)| record.is_resumable(now))
            .filter(|(_, record)| record.operation == *operation)
            .filter(|(id, _)| after.is_none_or(|after| *id > after))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The records of a shard that are wanted, in no order.
    pub(super) fn wanted(
        &self,
        shard: usize,
        wanted: impl Fn(&RecordId, &Record) -> bool,
    ) -> Vec<ListedRecord> {
        let map = self.lock_shard(shard);
        map.iter()
            .filter(|(id, record)| wanted(id, record))
            .map(|(id, record)| ListedRecord::new(*id, Record::clone(record)))
            .collect()
    }

    /// The number of all records.
    pub(super) fn records(&self) -> usize {
        self.capacity.records.used()
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
                **record = shortened;
                false
            }
        });
    expired.take(limit).map(|(_, record)| capacity.give_back(Usage::of(&record))).count()
}

/// A record, present or absent, whose shard is locked.
pub(super) struct LockedRecord<'a> {
    id: RecordId,
    map: MutexGuard<'a, Map>,
    capacity: &'a Capacity,
}

impl LockedRecord<'_> {
    pub(super) fn record(&self) -> Option<&Record> {
        self.map.get(&self.id).map(|record| &**record)
    }

    /// Applies what the state machine decided.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                let new = Usage::of(&record);
                match self.map.entry(self.id) {
                    Entry::Occupied(mut old) => {
                        self.capacity.exchange(Usage::of(old.get()), new);
                        **old.get_mut() = record;
                    }
                    Entry::Vacant(free) => {
                        self.capacity.take(new);
                        free.insert(Box::new(record));
                    }
                }
            }
            Change::Remove => {
                if let Some(old) = self.map.remove(&self.id) {
                    self.capacity.give_back(Usage::of(&old));
                }
            }
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

    fn take(&self, new: Usage) {
        self.records.used.fetch_add(1, Ordering::Relaxed);
        self.bytes.used.fetch_add(new.bytes, Ordering::Relaxed);
        self.inputs.fetch_add(new.inputs, Ordering::Relaxed);
        if let Some(principal) = new.principal {
            self.shares.take(principal, new.bytes);
        }
    }

    fn give_back(&self, old: Usage) {
        self.records.used.fetch_sub(1, Ordering::Relaxed);
        self.bytes.used.fetch_sub(old.bytes, Ordering::Relaxed);
        self.inputs.fetch_sub(old.inputs, Ordering::Relaxed);
        if let Some(principal) = old.principal {
            self.shares.give_back(principal, old.bytes);
        }
    }

    /// Counts a record in place of an older one. Most changes of a record leave these counts as
    /// they are.
    fn exchange(&self, old: Usage, new: Usage) {
        if old != new {
            self.take(new);
            self.give_back(old);
        }
    }
}

/// What a record counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Usage {
    principal: Option<Principal>,
    bytes: usize,
    /// 1 if the operation has noted its input.
    inputs: usize,
}

impl Usage {
    fn of(record: &Record) -> Self {
        let recording = match &record.state {
            RecordState::Completed(recording) => recording.len(),
            RecordState::InFlight | RecordState::Held => 0,
        };
        let bytes = recording + record.notes.steps.len() + record.notes.input.len();
        let inputs = usize::from(!record.notes.input.is_empty());
        Self { principal: record.principal, bytes, inputs }
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
