//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::sync::Arc;

use bytes::Bytes;
use idempotent_core::{Record, StoreError, clock::Timestamp, protocol::Claim};

use crate::{connect, encoding, engine::Engine, lua::Scripts, store::RedisStore};

/// The store with another text in place of each of these files of its scripts.
pub fn alter_redis<F: AsRef<str>, T: AsRef<str>>(
    store: RedisStore,
    files: &[(F, T)],
) -> RedisStore {
    let scripts = Arc::new(Scripts::new(|code| {
        files.iter().fold(code.to_owned(), |code, (file, text)| {
            code.replacen(file.as_ref(), text.as_ref(), 1)
        })
    }));
    RedisStore { engine: Arc::new(Engine { scripts, ..(*store.engine).clone() }) }
}

/// The store that stores recordings of at least this many bytes without a script, if the server
/// can.
pub fn with_large_recordings_from(store: RedisStore, bytes: usize) -> RedisStore {
    RedisStore { engine: Arc::new(Engine { large: bytes, ..(*store.engine).clone() }) }
}

/// Verifies the URL of a server, without opening anything.
///
/// # Errors
/// As for [`RedisStore::connect`].
pub fn verify_redis_url(url: &str) -> Result<(), StoreError> {
    connect::parse(url).map(drop)
}

/// Encodes a first claim as a record in Redis.
pub fn encode_redis_claim(claim: &Claim) -> Vec<u8> {
    encoding::encode_claim(claim)
}

/// Decodes a record in Redis whose key expires at `key_expires`: as it is stored, and with absolute
/// times.
pub fn decode_redis_record(value: Bytes, key_expires: Timestamp) -> Option<(Record, Record)> {
    let record = encoding::decode(value).ok()?;
    Some((record.clone(), encoding::with_absolute_times(record, key_expires)))
}
