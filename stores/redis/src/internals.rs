//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use bytes::Bytes;
use idempotent_core::{Record, StoreError, clock::Timestamp, protocol::Claim};

use crate::RedisStore;

/// The store with another text in place of a file of its scripts.
pub fn alter_redis(store: RedisStore, file: &str, text: &str) -> RedisStore {
    store.altered(file, text)
}

/// The store that stores recordings of at least so many bytes without a script, if the server can.
pub fn with_large_recordings_from(store: RedisStore, bytes: usize) -> RedisStore {
    store.with_large_recordings_from(bytes)
}

/// Verifies the URL of a server, without opening anything.
///
/// # Errors
/// As for [`RedisStore::connect`].
pub fn verify_redis_url(url: &str) -> Result<(), StoreError> {
    RedisStore::parse(url).map(drop)
}

/// Encodes a first claim as a record in Redis.
pub fn encode_redis_claim(claim: &Claim) -> Vec<u8> {
    RedisStore::encode_claim(claim)
}

/// Decodes a record in Redis whose key expires at `key_expires`: as it is stored, and with absolute
/// times.
pub fn decode_redis_record(value: Bytes, key_expires: Timestamp) -> Option<(Record, Record)> {
    RedisStore::decode_record(value, key_expires)
}
