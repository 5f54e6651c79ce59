//! Helpers that the tests share.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, Store as _, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
};
use idempotent_dynamodb::{DynamoDbStore, internals};
use test_support::{
    WAIT_LIMIT,
    servers::dynamodb::{Emulator, FaultProxy, open, patient, unique_table},
};

pub(super) const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A unique key.
pub(super) fn key() -> RecordId {
    let mut id = [0; 32];
    fastrand::fill(&mut id);
    RecordId::from_bytes(id)
}

pub(super) fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([7; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(LEASE)
        .with_ttl(TTL)
}

pub(super) fn lease(id: RecordId, claim: &Claim) -> Lease {
    Lease { id, owner: claim.owner }
}

pub(super) fn recording(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Bytes that do not repeat.
pub(super) fn long(length: usize) -> Bytes {
    let mut rng = fastrand::Rng::with_seed(7);
    (0..length).map(|_| rng.u8(..)).collect()
}

pub(super) fn is_in_flight(outcome: &ClaimOutcome) -> bool {
    matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }))
}

/// A new table, and two stores with a time of their own that share it: one directly, and one behind
/// a proxy.
pub(super) struct Lab {
    pub(super) direct: DynamoDbStore,
    pub(super) store: DynamoDbStore,
    pub(super) proxy: FaultProxy,
}

impl Lab {
    /// No request is sent again because the machine is busy.
    pub(super) async fn new() -> Self {
        Self::with_response_timeout(WAIT_LIMIT).await
    }

    /// For tests in which the service does not respond.
    pub(super) async fn with_response_timeout(timeout: Duration) -> Self {
        let emulator = Emulator::shared();
        let (table, proxy) = (unique_table(), FaultProxy::start(emulator.port).await);
        let direct = internals::with_own_time(&open(emulator.port, &table, patient()));
        direct.migrate().await.unwrap();
        let options = patient().response_timeout(timeout);
        let store = internals::with_own_time(&open(proxy.port, &table, options));
        // Each store knows the time before a request is counted.
        store.look_up(&key()).await.unwrap();
        Self { direct, store, proxy }
    }

    /// Lets time pass.
    pub(super) fn advance(&self, by: Duration) {
        internals::advance(&self.direct, by);
        internals::advance(&self.store, by);
    }

    /// Lets a lease expire.
    pub(super) fn expire_lease(&self) {
        self.advance(LEASE * 2);
    }

    /// Claims a new key.
    pub(super) async fn claimed(&self, claim: &Claim) -> Lease {
        let id = key();
        assert_eq!(self.store.claim(&id, claim).await.unwrap(), GRANTED);
        lease(id, claim)
    }

    /// Claims and completes a new key.
    pub(super) async fn completed(&self, recording: &Bytes) -> Result<Lease, StoreError> {
        let lease = self.claimed(&request()).await;
        assert_eq!(self.store.complete(&lease, recording).await?, Fence::Passed);
        Ok(lease)
    }

    /// Claims a new key, and lets another attempt take it over. Returns both leases.
    pub(super) async fn taken_over(&self) -> [Lease; 2] {
        let first = self.claimed(&request()).await;
        self.expire_lease();
        let claim = request();
        let taken = self.store.claim(&first.id, &claim).await.unwrap();
        assert_eq!(taken, ClaimOutcome::Granted { attempt: 2 });
        [first, lease(first.id, &claim)]
    }

    pub(super) async fn replay(&self, lease: &Lease) -> Bytes {
        match self.direct.claim(&lease.id, &request()).await.unwrap() {
            ClaimOutcome::Rejected(Rejection::Completed(recording)) => recording,
            other @ (ClaimOutcome::Granted { .. } | ClaimOutcome::Rejected(_)) => {
                panic!("the key is not completed: {other:?}")
            }
        }
    }
}

/// An error and its causes, as in a log.
pub(super) fn describe(error: &StoreError) -> String {
    test_support::error_chain(error)
}
