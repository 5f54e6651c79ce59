//! The transaction that a handler shares with the record of its attempt.

use std::any::Any;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{server::io_thread::on_io_thread, transaction::guarded::GuardedTransaction};
use idempotent_core::{
    Abandoned, Lease, StoreError,
    protocol::{Fence, Note},
    store::Transaction,
};
use idempotent_sql::fence;

/// A transaction of a handler, and the record that is completed in it.
pub(crate) struct MySqlTransaction {
    open: GuardedTransaction,
}

impl MySqlTransaction {
    pub(super) fn new(open: GuardedTransaction) -> Self {
        Self { open }
    }
}

#[async_trait]
impl Transaction for MySqlTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.open.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.open.connection_mut()
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        on_io_thread("undo", self.open.undo()).await
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let statements = self.open.statements.clone();
        let statement = statements.steps.note(lease, note);
        let statement = statement.with_text(&statements.in_transaction.note);
        let noted = on_io_thread("note", self.open.step("note", &statement)).await;
        noted.map(|done| fence(done.changed != 0))
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statements = self.open.statements.clone();
        let statement = statements.steps.complete(lease, recording);
        let statement = statement.with_text(&statements.in_transaction.complete);
        let completed = on_io_thread("complete", self.open.step("complete", &statement)).await;
        completed.map(|done| fence(done.changed != 0))
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.open.statements.clone();
        let statement = statements.steps.abandon(lease, policy);
        let statement = statement.with_text(&statements.in_transaction.abandon);
        let abandoned = on_io_thread("abandon", self.open.step("abandon", &statement)).await;
        abandoned.map(|done| fence(done.changed != 0))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let committed = async {
            self.open.prove("commit").await?;
            self.open.commit().await
        };
        on_io_thread("commit", committed).await
    }

    async fn roll_back(self: Box<Self>) -> bool {
        let rolled_back = async { Ok(self.open.roll_back().await) };
        on_io_thread("roll back", rolled_back).await.unwrap_or(false)
    }
}
