//! `Transactions` for a process.

use std::{
    any::{Any, TypeId},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store, StoreError,
    protocol::{Claim, Fence, Note},
    store::{Transaction, TransactionClaim, Transactions},
};

use super::{Call, ProcessStore, failed};

impl ProcessStore {
    fn inner_transactions(&self) -> Result<&dyn Transactions, StoreError> {
        self.inner.transactions().ok_or_else(|| StoreError::unsupported("test", "begin"))
    }

    fn wrapped(&self, inner: Box<dyn Transaction>) -> Box<dyn Transaction> {
        Box::new(ProcessTransaction { inner, process: self.clone() })
    }
}

#[async_trait]
impl Transactions for ProcessStore {
    fn database(&self) -> TypeId {
        let transactions = self.inner.transactions();
        transactions.map_or_else(TypeId::of::<()>, |transactions| transactions.database())
    }

    fn is_exclusive(&self) -> bool {
        self.inner.transactions().is_some_and(|transactions| transactions.is_exclusive())
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        if self.is_dead() {
            return Err(failed(Call::Begin));
        }
        let begun = self.call(Call::Begin, self.inner_transactions()?.begin()).await?;
        Ok(self.wrapped(begun))
    }

    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        if self.is_dead() {
            return Err(failed(Call::Claim));
        }
        self.begin_claim(Lease { id: *id, owner: claim.owner });
        let claimed = self.inner_transactions()?.claim(id, claim, wait);
        match self.call(Call::Claim, claimed).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                self.end_claim();
                let transaction = self.wrapped(transaction);
                Ok(TransactionClaim::Granted { attempt, transaction })
            }
            rejected @ TransactionClaim::Rejected(_) => Ok(rejected),
        }
    }
}

/// An open transaction of a process.
struct ProcessTransaction {
    inner: Box<dyn Transaction>,
    process: ProcessStore,
}

#[async_trait]
impl Transaction for ProcessTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.inner.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.inner.connection_mut()
    }

    async fn has_escaped(&mut self) -> bool {
        self.inner.has_escaped().await
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.process.call(Call::Undo, self.inner.undo()).await
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.process.call(Call::Note, self.inner.note(lease, note)).await
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.process.call(Call::Complete, self.inner.complete(lease, recording)).await
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.process.call(Call::Abandon, self.inner.abandon(lease, policy)).await
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        if self.process.is_dead() {
            return Err(failed(Call::Commit));
        }
        self.process.call(Call::Commit, self.inner.commit()).await
    }

    async fn roll_back(self: Box<Self>) -> bool {
        self.inner.roll_back().await
    }

    async fn complete_and_commit(
        self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        if self.process.is_dead() {
            return Err(failed(Call::Commit));
        }
        let Self { inner, process } = *self;
        process.call(Call::Commit, inner.complete_and_commit(lease, recording)).await
    }
}
