//! A store that wraps each claim and each completion in a transaction.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot,
    },
    store::{Store, TransactionClaim, Transactions},
};

pub(super) struct InTransaction<S>(pub(super) S);

impl<S: Store> InTransaction<S> {
    fn inner_transactions(&self) -> &dyn Transactions {
        self.0.transactions().unwrap()
    }
}

#[async_trait]
impl<S: Store> Store for InTransaction<S> {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.0.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.check().await
    }

    fn namespace(&self) -> Option<&str> {
        self.0.namespace()
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        match self.inner_transactions().claim(id, claim, Duration::from_secs(5)).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                transaction.commit().await.map(|()| ClaimOutcome::Granted { attempt })
            }
            TransactionClaim::Rejected(outcome) => Ok(outcome),
        }
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.0.renew(leases).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.inner_transactions().begin().await?.complete_and_commit(lease, recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.0.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let mut transaction = self.inner_transactions().begin().await?;
        let fence = transaction.abandon(lease, policy).await;
        match fence {
            Ok(Fence::Passed) => transaction.commit().await.map(|()| Fence::Passed),
            Ok(Fence::Fenced) | Err(_) => {
                transaction.roll_back().await;
                fence
            }
        }
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.look_up(id).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        self.0.resolve(id, seen, resolution).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.0.purge(limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.0.transactions()
    }
}
