//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{Lease, Record, RecordId, StoreError, clock::Timestamp, protocol::Claim};
use tokio::time::Instant;

use crate::{
    RedisOptions, RedisStore, connect, encoding,
    engine::{Engine, FirstClaim, FirstClaims},
    lua::Scripts,
    net::Router,
};

/// The store with another text in place of each of these files of its scripts, which complete first
/// claims too.
pub fn alter_redis<F: AsRef<str>, T: AsRef<str>>(
    store: RedisStore,
    files: &[(F, T)],
) -> RedisStore {
    let scripts = Arc::new(Scripts::new(|code| {
        files.iter().fold(code.to_owned(), |code, (file, text)| {
            code.replacen(file.as_ref(), text.as_ref(), 1)
        })
    }));
    let first = Arc::new(FirstClaims::none());
    with_engine(Engine { scripts, first, ..(*store.engine).clone() })
}

/// The store that reads the claims of recordings of at least this many bytes to store them without
/// a script, if the server can, and does not complete first claims without reading them.
pub fn with_large_recordings_from(store: RedisStore, bytes: usize) -> RedisStore {
    let first = Arc::new(FirstClaims::none());
    with_engine(Engine { large: bytes, first, ..(*store.engine).clone() })
}

/// Lets time pass since all claims that the store remembers.
pub fn advance_first_claims(store: &RedisStore, by: Duration) {
    store.engine.first.advance(by);
}

/// Lets the store forget the claims that it remembers, so that scripts complete them.
pub fn forget_first_claims(store: &RedisStore) {
    store.engine.first.forget();
}

/// The first claims that a process remembers, for a simulation of the server.
#[derive(Default)]
pub struct RememberedClaims(FirstClaims);

impl RememberedClaims {
    /// Remembers a claim, with the times when it was sent and when it was known to be granted.
    pub fn remember(&self, lease: Lease, claim: &Claim, times: [Instant; 2]) {
        self.0.remember(FirstClaim::new(lease, claim, encoding::encode_claim(claim), times));
    }

    /// Forgets a claim. Returns the value that a completion expects, and for how long it keeps the
    /// recording; `None` if the script completes the claim.
    pub fn take(&self, lease: &Lease, now: Instant) -> Option<(Vec<u8>, Duration)> {
        let claim = self.0.take(lease)?;
        Some((claim.value().to_vec(), Duration::from_millis(claim.left(now)?)))
    }
}

/// Makes the store believe that its servers can, or cannot, compare a value before they replace it.
pub fn expect_comparisons(store: &RedisStore, can: bool) {
    store.engine.router.servers.masters().iter().for_each(|node| node.expect_comparisons(can));
}

/// A store with other options on the servers and connections of this one.
pub fn with_options(store: &RedisStore, options: &RedisOptions) -> RedisStore {
    let Engine { router, scripts, large, .. } = (*store.engine).clone();
    let router = Router { response_timeout: options.response_timeout, ..router };
    with_engine(Engine { large, ..Engine::new(router, scripts, options) })
}

fn with_engine(engine: Engine) -> RedisStore {
    RedisStore { engine: Arc::new(engine) }
}

/// The key of the watch list that a record is in while it is watched.
pub fn watch_list_of(store: &RedisStore, id: &RecordId) -> Vec<u8> {
    store.engine.watched.of(&store.engine.key(id))
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
