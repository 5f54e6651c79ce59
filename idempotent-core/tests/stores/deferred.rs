//! What a leased attempt has yet to bring to the store, and claims of its key within a transaction.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, BodyForm, Digester, Lease, OwnerToken, Policy, RecordId, RecordedBody, Recording, RequestDigest, Store,
    StoreError,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    runtime::{Admission, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::{Transactions, sqlite::SqliteStore},
};

use crate::support::File;

/// A SQLite store that takes no completion outside of transactions while it fails.
struct Failing {
    store: SqliteStore,
    fails: Arc<AtomicBool>,
}

#[async_trait]
impl Store for Failing {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.store.migrate().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }
    fn namespace(&self) -> Option<&str> {
        self.store.namespace()
    }
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        Store::claim(&self.store, id, claim).await
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::transient("failing", "complete", "the internal cause"));
        }
        self.store.complete(lease, recording).await
    }
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.store.release(lease).await
    }
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.store.abandon(lease, policy).await
    }
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.store.look_up(id).await
    }
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        self.store.resolve(id, seen, resolution).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }
    fn transactions(&self) -> Option<&dyn Transactions> {
        self.store.transactions()
    }
}

fn digest(path: &str) -> RequestDigest {
    Digester::new("POST", path, "", b"text/plain", BodyForm::Raw).finish()
}

#[tokio::test]
async fn a_claim_within_a_transaction_gets_what_is_deferred() {
    let file = File::new();
    let store = SqliteStore::connect(&file.url()).await.unwrap();
    store.migrate().await.unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let runtime = Runtime::new(Failing { store, fails: fails.clone() }, RuntimeOptions::default());
    let (id, recording) = (
        RecordId::from_bytes([7; 32]),
        Recording { status: 201, headers: Vec::new(), body: RecordedBody::Whole(Bytes::from_static(b"done")) },
    );
    let Admission::Proceed(attempt) = runtime.begin(id, digest("/a"), &Policy::DEFAULT).await.unwrap() else {
        panic!("a new key does not run")
    };
    fails.store(true, Ordering::SeqCst);
    assert_eq!(attempt.complete(&recording).await, AttemptOutcome::Deferred);
    for (path, expected) in [("/a", Verdict::Completed(recording.clone())), ("/b", Verdict::Mismatch)] {
        let begun = runtime.begin_within(id, digest(path), &Policy::DEFAULT).await.unwrap();
        assert!(matches!(begun, Admission::Rejected(verdict) if verdict == expected), "{path}");
    }
    fails.store(false, Ordering::SeqCst);
    let begun = runtime.begin_within(id, digest("/a"), &Policy::DEFAULT).await.unwrap();
    assert!(matches!(begun, Admission::Rejected(Verdict::Completed(replayed)) if replayed == recording));
    runtime.settled().await;
}
