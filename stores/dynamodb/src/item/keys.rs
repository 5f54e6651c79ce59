//! The keys of the items.

use idempotent_core::RecordId;

/// The number of partitions of the index: one takes 1,000 writes a second.
const SHARDS: u8 = 16;

/// Derives the keys of a store's items from its prefix. A NUL ends the prefix, so that no prefix is
/// the beginning of another one.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}\0") }
    }

    /// The key of a record: the prefix and the id.
    pub(crate) fn record(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    /// The id of the record with this key, or `None` if it is not a record of this store.
    pub(crate) fn record_of(&self, key: &[u8]) -> Option<RecordId> {
        let id = key.strip_prefix(self.prefix.as_bytes())?;
        Some(RecordId::from_bytes(id.try_into().ok()?))
    }

    /// The key of a chunk of what a record refers to.
    pub(crate) fn chunk(&self, record: &RecordId, token: &[u8; 16], chunk: u16) -> Vec<u8> {
        [&self.record(record)[..], token, &chunk.to_be_bytes()].concat()
    }

    /// The key of an entry of the log: one byte longer than that of a record.
    pub(crate) fn log(&self, entry: &RecordId) -> Vec<u8> {
        [&self.record(entry)[..], b"L"].concat()
    }

    /// The entry of the log with this key.
    pub(crate) fn log_entry_of(&self, key: &[u8]) -> Option<RecordId> {
        self.record_of(key.strip_suffix(b"L")?)
    }

    /// The partition of the index in which a record is watched.
    pub(crate) fn shard_of(&self, id: &RecordId) -> String {
        let [first, ..] = id.as_bytes();
        self.shard(first % SHARDS)
    }

    /// All partitions of the index in which records are watched.
    pub(crate) fn shards(&self) -> impl Iterator<Item = String> {
        (0..SHARDS).map(|shard| self.shard(shard))
    }

    fn shard(&self, shard: u8) -> String {
        format!("{}#{shard}", self.prefix.trim_end_matches('\0'))
    }

    /// The partition of the index that has the log.
    pub(crate) fn log_shard(&self) -> String {
        format!("{}#log", self.prefix.trim_end_matches('\0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_a_store_is_one_of_another_store_or_another_kind() {
        let id = RecordId::from_bytes([7; 32]);
        let (plain, prefixed) = (Keys::new(""), Keys::new("a"));
        assert_eq!(plain.record_of(&plain.record(&id)), Some(id));
        assert_eq!(plain.record_of(&prefixed.record(&id)), None);
        assert_eq!(prefixed.record_of(&plain.record(&id)), None);
        for key in [plain.chunk(&id, &[0; 16], 1), plain.log(&id)] {
            assert_eq!(plain.record_of(&key), None);
        }
        assert_eq!(plain.log_entry_of(&plain.log(&id)), Some(id));
        assert_eq!(plain.log_entry_of(&plain.record(&id)), None);
    }

    #[test]
    fn every_record_has_one_of_the_shards() {
        let keys = Keys::new("p:");
        let shards: Vec<_> = keys.shards().collect();
        for first in 0..=u8::MAX {
            assert!(shards.contains(&keys.shard_of(&RecordId::from_bytes([first; 32]))));
        }
        assert!(!shards.contains(&keys.log_shard()));
    }
}
