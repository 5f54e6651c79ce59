//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
use std::sync::Arc;

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
use crate::error::StoreError;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use crate::store::sql::group_commit::{
    Batch, BatchCounts, Batches, GroupCommit, GroupCommitLimits, GroupedStep, InBatch, Reply, Turn,
};
#[cfg(feature = "memory")]
pub use crate::sync::{Mutex, MutexGuard};
pub use crate::{
    runtime::internals::{Gauges, gauges, open_transaction, runtime_of_process, simulated_runtime},
    sync::interleave,
};

/// The store with other statements; `alter` gets the name of each statement and its text.
#[cfg(feature = "sqlite")]
pub fn alter_sqlite(
    store: crate::store::sqlite::SqliteStore,
    alter: impl Fn(&str, &str) -> String,
) -> crate::store::sqlite::SqliteStore {
    store.altered(alter)
}

/// The store with other statements; `alter` gets the name of each statement and its text.
#[cfg(feature = "postgres")]
pub fn alter_postgres(
    store: crate::store::postgres::PostgresStore,
    alter: impl Fn(&str, &str) -> String,
) -> crate::store::postgres::PostgresStore {
    store.altered(alter)
}

/// The store with all claims and completions in batches, even a single one.
#[cfg(feature = "sqlite")]
pub fn batched_sqlite(
    store: crate::store::sqlite::SqliteStore,
) -> crate::store::sqlite::SqliteStore {
    store.batched()
}

/// The store with all claims and completions in batches, even a single one.
#[cfg(feature = "postgres")]
pub fn batched_postgres(
    store: crate::store::postgres::PostgresStore,
) -> crate::store::postgres::PostgresStore {
    store.batched()
}

/// What the batches of a store have done so far.
#[cfg(feature = "sqlite")]
pub fn sqlite_batches(store: &crate::store::sqlite::SqliteStore) -> BatchCounts {
    store.batch_counts()
}

/// What the batches of claims, and those of completions, have done so far.
#[cfg(feature = "postgres")]
pub fn postgres_batches(store: &crate::store::postgres::PostgresStore) -> [BatchCounts; 2] {
    store.batch_counts()
}

/// The store with another text in place of a file of its scripts.
#[cfg(feature = "redis")]
pub fn alter_redis(
    store: crate::store::redis::RedisStore,
    file: &str,
    text: &str,
) -> crate::store::redis::RedisStore {
    store.altered(file, text)
}

/// The store that stores recordings of at least so many bytes without a script, if the server can.
#[cfg(feature = "redis")]
pub fn with_large_recordings_from(
    store: crate::store::redis::RedisStore,
    bytes: usize,
) -> crate::store::redis::RedisStore {
    store.with_large_recordings_from(bytes)
}

/// Parses the URL of a database as [`connect`](crate::connect) does, and returns its namespace.
#[cfg(feature = "sqlite")]
pub fn namespace_in_sqlite_url(url: &str) -> Result<Option<Arc<str>>, StoreError> {
    crate::store::sqlite::SqliteStore::namespace_of(url)
}

/// Parses the URL of a database as [`connect`](crate::connect) does, and returns its namespace.
#[cfg(feature = "postgres")]
pub fn namespace_in_postgres_url(url: &str) -> Result<Option<Arc<str>>, StoreError> {
    crate::store::postgres::PostgresStore::namespace_of(url)
}

/// Parses the URL of a database as [`connect`](crate::connect) does, and returns its namespace.
#[cfg(feature = "redis")]
pub fn namespace_in_redis_url(url: &str) -> Result<Option<Arc<str>>, StoreError> {
    crate::store::redis::RedisStore::namespace_of(url)
}

/// Encodes a first claim as a record in Redis.
#[cfg(feature = "redis")]
pub fn encode_redis_claim(claim: &crate::protocol::Claim) -> Vec<u8> {
    crate::store::redis::RedisStore::encode_claim(claim)
}

/// Decodes a record in Redis whose key expires at `key_expires`: as it is stored, and with absolute
/// times.
#[cfg(feature = "redis")]
pub fn decode_redis_record(
    value: bytes::Bytes,
    key_expires: crate::clock::Timestamp,
) -> Option<(crate::Record, crate::Record)> {
    crate::store::redis::RedisStore::decode_record(value, key_expires)
}
