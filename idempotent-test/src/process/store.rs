//! `Store` for a process: the calls of an operation are counted and may fail.

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, Store, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Transactions},
};

use super::{Call, ProcessStore, failed};

#[async_trait]
impl Store for ProcessStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.inner.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        if self.is_dead() {
            return Err(failed(Call::Claim));
        }
        self.begin_claim(Lease { id: *id, owner: claim.owner });
        self.call(Call::Claim, async {
            let outcome = self.inner.claim(id, claim).await?;
            if matches!(outcome, ClaimOutcome::Granted { .. }) {
                self.end_claim();
            }
            Ok(outcome)
        })
        .await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        if self.is_dead() {
            return Ok(vec![RenewOutcome::Fenced; leases.len()]);
        }
        self.inner.renew(leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        if self.is_dead() {
            return Ok(Fence::Fenced);
        }
        self.call(Call::Note, self.inner.note(lease, note)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        if self.is_dead() {
            return Ok(Fence::Fenced);
        }
        self.call(Call::Complete, self.inner.complete(lease, recording)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        if self.is_dead() {
            return Ok(Fence::Fenced);
        }
        self.call(Call::Release, self.inner.release(lease)).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        if self.is_dead() {
            return Ok(Fence::Fenced);
        }
        self.call(Call::Abandon, self.inner.abandon(lease, policy)).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.call(Call::LookUp, self.inner.look_up(id)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.inner.resolve(id, seen, resolution, audit).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.inner.purge(limit).await
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.inner.resumable(operation, after, limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.inner.transactions().is_some().then_some(self)
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.inner.administration()
    }
}
