//! The implementation of [`Store`].

use async_trait::async_trait;
use bytes::Bytes;

use super::{PostgresStore, execute::Resend, io_thread::on_io_thread};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::{Store, Transactions},
};
use idempotent_sql::fence;

#[async_trait]
impl Store for PostgresStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        let migrated = async {
            self.apply_migrations().await?;
            self.verify("migrate").await?;
            self.verify_table("migrate").await
        };
        on_io_thread("migrate", migrated).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        on_io_thread("check", async {
            self.verify("check").await?;
            self.check_version().await?;
            self.verify_table("check").await
        })
        .await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        on_io_thread("claim", self.claim_in_turn(id, claim)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        on_io_thread("renew", self.renew_leases(leases)).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let noted = async {
            let statement = self.statements("note").await?.note(lease, note);
            self.change("note", statement, Resend::Always).await
        };
        on_io_thread("note", noted).await.map(fence)
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        on_io_thread("complete", self.complete_in_turn(lease, recording)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        let released = async {
            let statement = self.statements("release").await?.release(lease);
            self.change("release", statement, Resend::UnlessLost).await
        };
        on_io_thread("release", released).await.map(fence)
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let abandoned = async {
            let statement = self.statements("abandon").await?.abandon(lease, policy);
            self.change("abandon", statement, Resend::UnlessLost).await
        };
        on_io_thread("abandon", abandoned).await.map(fence)
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        on_io_thread("look up", self.look_up_record(id)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        on_io_thread("resolve", self.resolve_held(&Lease { id: *id, owner: *seen }, resolution))
            .await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        on_io_thread("purge", self.remove_expired(limit)).await
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        on_io_thread("find resumable", self.resumable_page(operation, after, limit)).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}
