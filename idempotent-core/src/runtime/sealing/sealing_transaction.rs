//! A transaction whose recording and steps are sealed.

use std::any::Any;

use async_trait::async_trait;
use bytes::Bytes;

use super::contents::Sealer;
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Fence, Note},
    store::Transaction,
};

/// A transaction of a [`SealingStore`](super::sealing_store::SealingStore).
pub(super) struct SealingTransaction {
    transaction: Box<dyn Transaction>,
    sealer: Sealer,
}

impl SealingTransaction {
    pub(super) fn new(transaction: Box<dyn Transaction>, sealer: Sealer) -> Self {
        Self { transaction, sealer }
    }
}

#[async_trait]
impl Transaction for SealingTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.transaction.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.transaction.connection_mut()
    }

    async fn has_escaped(&mut self) -> bool {
        self.transaction.has_escaped().await
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.transaction.undo().await
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let note = self.sealer.seal_note(&lease.id, note)?;
        self.transaction.note(lease, &note).await
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let recording = self.sealer.seal_recording(&lease.id, recording)?;
        self.transaction.complete(lease, &recording).await
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.transaction.abandon(lease, policy).await
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        self.transaction.commit().await
    }

    async fn roll_back(self: Box<Self>) -> bool {
        self.transaction.roll_back().await
    }

    async fn complete_and_commit(
        self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let recording = self.sealer.seal_recording(&lease.id, recording)?;
        self.transaction.complete_and_commit(lease, &recording).await
    }
}
