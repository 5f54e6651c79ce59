//! A store whose recordings, steps and inputs are sealed.

use std::{any::TypeId, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::{contents::Sealer, sealing_transaction::SealingTransaction};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    record_id::RecordId,
    short_text::ShortText,
    store::{Administration, BatchSizes, Store, Transaction, TransactionClaim, Transactions},
};

/// A store that seals what it is given, and opens what it returns. The lists for operators have
/// nothing that is sealed.
pub(super) struct SealingStore {
    store: Arc<dyn Store>,
    sealer: Sealer,
}

impl SealingStore {
    pub(super) fn new(store: Arc<dyn Store>, sealer: Sealer) -> Self {
        Self { store, sealer }
    }

    /// The transactions of the store. It has some, or nobody could call those of `self`.
    fn inner(&self, operation: &'static str) -> Result<&dyn Transactions, StoreError> {
        self.store.transactions().ok_or_else(|| StoreError::unsupported("runtime", operation))
    }

    fn transaction(&self, transaction: Box<dyn Transaction>) -> Box<dyn Transaction> {
        Box::new(SealingTransaction::new(transaction, self.sealer.clone()))
    }
}

#[async_trait]
impl Store for SealingStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.store.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        Ok(match self.store.claim(id, claim).await? {
            ClaimOutcome::Granted { attempt } => ClaimOutcome::Granted { attempt },
            ClaimOutcome::Rejected(rejection) => {
                ClaimOutcome::Rejected(self.sealer.open_rejection(id, rejection))
            }
        })
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let note = self.sealer.seal_note(&lease.id, note)?;
        self.store.note(lease, &note).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let recording = self.sealer.seal_recording(&lease.id, recording)?;
        self.store.complete(lease, &recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.store.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.store.abandon(lease, policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let found = self.store.look_up(id).await?;
        Ok(found
            .map(|Snapshot { record, at }| Snapshot::new(self.sealer.open_record(id, record), at)))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        let resolution = self.sealer.seal_resolution(id, resolution)?;
        self.store.resolve(id, seen, &resolution, audit).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.store.resumable(operation, after, limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.store.transactions().map(|_| self as &dyn Transactions)
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.store.administration()
    }

    fn batches(&self) -> Option<BatchSizes> {
        self.store.batches()
    }
}

#[async_trait]
impl Transactions for SealingStore {
    fn database(&self) -> TypeId {
        self.store.transactions().map_or_else(TypeId::of::<()>, |inner| inner.database())
    }

    fn is_exclusive(&self) -> bool {
        self.store.transactions().is_some_and(|inner| inner.is_exclusive())
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let transaction = self.inner("begin a transaction")?.begin().await?;
        Ok(self.transaction(transaction))
    }

    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        Ok(match self.inner("claim in a transaction")?.claim(id, claim, wait).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                TransactionClaim::Granted { attempt, transaction: self.transaction(transaction) }
            }
            TransactionClaim::Rejected(rejection) => {
                TransactionClaim::Rejected(self.sealer.open_rejection(id, rejection))
            }
        })
    }
}
