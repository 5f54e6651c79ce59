//! What the tests do with a store.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
    store::{Store, redis::RedisStore},
};
use tokio::time::sleep;

pub(super) const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

/// Opens a store, again for up to 20 s if that fails with a transient error: on a busy machine the
/// nodes of a cluster may all take longer to respond than the store waits.
pub(super) async fn opened(url: &str) -> RedisStore {
    let began = Instant::now();
    loop {
        let opened = RedisStore::connect(url).await;
        let transient = opened.as_ref().is_err_and(StoreError::is_transient);
        if !transient || began.elapsed() > Duration::from_secs(20) {
            return opened.unwrap();
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A key that nobody else uses.
pub(super) fn key() -> RecordId {
    let mut id = [0; 32];
    fastrand::fill(&mut id);
    RecordId::from_bytes(id)
}

pub(super) fn request() -> Claim {
    Claim {
        fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
        owner: OwnerToken::random().unwrap(),
        lease: Duration::from_secs(30),
        ttl: Duration::from_secs(24 * 60 * 60),
        abandoned: Abandoned::Retry,
        principal: None,
    }
}

pub(super) fn lease(id: RecordId, claim: &Claim) -> Lease {
    Lease { id, owner: claim.owner }
}

/// Claims a new key and completes it.
pub(super) async fn complete(store: &RedisStore, answer: &Bytes) -> Result<RecordId, StoreError> {
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await?, GRANTED);
    assert_eq!(store.complete(&lease(id, &claim), answer).await?, Fence::Passed);
    Ok(id)
}

/// An error with all its causes, as it would be logged.
pub(super) fn told(error: &StoreError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        told = format!("{told}: {cause} ({cause:?})");
        source = cause.source();
    }
    told
}
