//! `Store` for [`FaultyStore`]: each call applies its next fault.

use std::future::pending;

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, Rejection, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Store, Transactions},
};

use super::{FaultyStore, Op};

impl<S: Store> FaultyStore<S> {
    fn read(&self, recording: &Bytes) -> Bytes {
        let mut bytes = recording.to_vec();
        if let Some(byte) = bytes.first_mut().filter(|_| self.shared.state.borrow().damaged) {
            *byte ^= 0x40;
        }
        bytes.into()
    }

    fn hangs(&self, leases: &[Renewal]) -> bool {
        let hung = &self.shared.orders.lock().unwrap().hung_renewals;
        leases.iter().any(|renewal| hung.contains(&renewal.lease.id))
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.inner().migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call(Op::Check, self.inner().check()).await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        match self.call(Op::Claim, self.inner().claim(id, claim)).await? {
            ClaimOutcome::Granted { .. } if self.hides_grant() => Ok(ClaimOutcome::IN_FLIGHT),
            ClaimOutcome::Rejected(Rejection::Completed(recording)) => {
                Ok(ClaimOutcome::Rejected(Rejection::Completed(self.read(&recording))))
            }
            outcome @ (ClaimOutcome::Granted { .. }
            | ClaimOutcome::Rejected(
                Rejection::InFlight { .. } | Rejection::Held { .. } | Rejection::Mismatch { .. },
            )) => Ok(outcome),
        }
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.shared.counts.mark_thread();
        if self.hangs(leases) {
            self.shared.counts.begin(Op::Renew);
            let _hanging = self.shared.counts.hanging(leases);
            pending::<()>().await;
        }
        let outcomes = self.call(Op::Renew, self.inner().renew(leases)).await?;
        self.shared.counts.renewed(leases, &outcomes);
        Ok(outcomes)
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.call(Op::Note, self.inner().note(lease, note)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.call(Op::Complete, self.inner().complete(lease, recording)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.call(Op::Release, self.inner().release(lease)).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.call(Op::Abandon, self.inner().abandon(lease, policy)).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.call(Op::LookUp, self.inner().look_up(id)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.call(Op::Resolve, self.inner().resolve(id, seen, resolution, audit)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.shared.counts.mark_thread();
        let removed = self.call(Op::Purge, self.inner().purge(limit)).await?;
        self.shared.counts.purged(removed);
        Ok(removed)
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.call(Op::Resumable, self.inner().resumable(operation, after, limit)).await
    }

    /// The transactions of the inner store, without faults.
    fn transactions(&self) -> Option<&dyn Transactions> {
        self.inner().transactions()
    }

    /// The administration of the inner store, without faults.
    fn administration(&self) -> Option<&dyn Administration> {
        self.inner().administration()
    }
}
