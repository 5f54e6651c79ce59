//! Helpers that the tests share.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
    store::Store,
};
use idempotent_redis::{RedisOptions, RedisStore};
use test_support::servers::redis::Server;
use tokio::time::sleep;

pub(super) const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

/// Opens a store. Retries transient errors for up to 20 s, because on a busy machine all nodes of a
/// cluster may take longer to respond than the store waits.
pub(super) async fn open_store(url: &str) -> RedisStore {
    open_with(RedisStore::options(), url).await
}

/// Opens a store with other options, as [`open_store`] does.
pub(super) async fn open_with(options: RedisOptions, url: &str) -> RedisStore {
    let began = Instant::now();
    loop {
        let opened = options.clone().connect(url).await;
        let transient = opened.as_ref().is_err_and(StoreError::is_transient);
        if !transient || began.elapsed() > Duration::from_secs(20) {
            return opened.unwrap();
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A unique key.
pub(super) fn key() -> RecordId {
    let mut id = [0; 32];
    fastrand::fill(&mut id);
    RecordId::from_bytes(id)
}

pub(super) fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([7; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(24 * 60 * 60))
}

pub(super) fn lease(id: RecordId, claim: &Claim) -> Lease {
    Lease { id, owner: claim.owner }
}

/// Whether the server can compare a value before it replaces it.
pub(super) fn compares_values(server: &Server) -> bool {
    server.info("valkey_version").is_some_and(|version| {
        let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
        parts >= vec![8, 1]
    })
}

/// Claims a new key and completes it.
pub(super) async fn complete(store: &RedisStore, response: &Bytes) -> Result<RecordId, StoreError> {
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await?, GRANTED);
    assert_eq!(store.complete(&lease(id, &claim), response).await?, Fence::Passed);
    Ok(id)
}

/// The number of connections to a port of this machine according to the kernel, including those
/// that a suspended server has not accepted.
pub(super) fn established(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[1].ends_with(&port) && fields[3] == "01").count()
}

/// An error and its causes, as in a log.
pub(super) fn describe(error: &StoreError) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message = format!("{message}: {cause} ({cause:?})");
        source = cause.source();
    }
    message
}
