//! A DynamoDB store whose time the tests can move, and whose table removes what has expired.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    conformance::TestedStore,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Store},
};
use idempotent_dynamodb::{DynamoDbStore, internals};

use super::TICK;

/// A store with a time of its own.
pub struct ShiftedDynamoDb(ExpiringStore);

/// A store whose purge removes what the time to live of the table may remove: the emulator has
/// none.
pub struct ExpiringStore(pub DynamoDbStore);

impl ShiftedDynamoDb {
    pub fn new(store: &DynamoDbStore) -> Self {
        Self(ExpiringStore(internals::with_own_time(store)))
    }
}

#[async_trait]
impl TestedStore for ShiftedDynamoDb {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    async fn advance(&self, by: Duration) {
        internals::advance(&self.0.0, by);
    }

    async fn set_back(&self, by: Duration) -> bool {
        internals::set_back(&self.0.0, by);
        true
    }

    fn tick(&self) -> Duration {
        TICK
    }
}

#[async_trait]
impl Store for ExpiringStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.0.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.0.claim(id, claim).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.0.renew(leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.0.note(lease, note).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.0.complete(lease, recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.0.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.0.abandon(lease, policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.look_up(id).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.0.resolve(id, seen, resolution, audit).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        assert_eq!(self.0.purge(limit).await?, 0);
        internals::expire(&self.0, limit).await
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.0.resumable(operation, after, limit).await
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.0.administration()
    }
}
