//! A store that wraps each claim and each completion in a transaction.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::{Administration, Store, TransactionClaim, Transactions},
};
use sqlx::{AssertSqlSafe, PgConnection};

pub(super) struct InTransaction<S> {
    pub(super) store: S,
    /// The table, if the store is Postgres: there only a handler commits a claim that is not
    /// completed, so the record has the policy "hold". The state machine knows no handlers.
    pub(super) table: Option<String>,
}

impl<S: Store> InTransaction<S> {
    fn inner_transactions(&self) -> &dyn Transactions {
        self.store.transactions().unwrap()
    }
}

#[async_trait]
impl<S: Store> Store for InTransaction<S> {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.store.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let before = self.store.look_up(id).await?;
        let again = before.is_some_and(|found| found.record.owner == claim.owner);
        match self.inner_transactions().claim(id, claim, Duration::from_secs(5)).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                transaction.commit().await?;
                if let (Some(table), false) = (&self.table, again) {
                    let mut transaction = self.inner_transactions().begin().await?;
                    let connection = transaction.connection_mut().downcast_mut().unwrap();
                    set_policy(connection, table, id, claim.abandoned).await;
                    transaction.commit().await?;
                }
                Ok(ClaimOutcome::Granted { attempt })
            }
            TransactionClaim::Rejected(rejection) => Ok(ClaimOutcome::Rejected(rejection)),
        }
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }

    async fn note(
        &self,
        lease: &Lease,
        note: &idempotent_core::protocol::Note,
    ) -> Result<Fence, StoreError> {
        self.store.note(lease, note).await
    }
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.store.resumable(operation, after, limit).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.inner_transactions().begin().await?.complete_and_commit(lease, recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.store.release(lease).await
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
        self.store.look_up(id).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.store.resolve(id, seen, resolution, audit).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.store.transactions()
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.store.administration()
    }
}

/// Gives a record the policy of its claim.
async fn set_policy(connection: &mut PgConnection, table: &str, id: &RecordId, policy: Abandoned) {
    let update = format!("UPDATE {table} SET abandoned = $1 WHERE id = $2");
    sqlx::query(AssertSqlSafe(update))
        .bind(i16::from(policy == Abandoned::Hold))
        .bind(id.as_bytes().as_slice())
        .execute(connection)
        .await
        .unwrap();
}
