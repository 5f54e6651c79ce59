//! The transaction that a handler shares with the record of its attempt.

use std::any::Any;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    error::NAME, server::io_thread::on_io_thread, sql::statements::NewRecord,
    transaction::marked::MarkedTransaction,
};
use idempotent_core::{
    Abandoned, Lease, StoreError,
    protocol::{Fence, Note},
    store::Transaction,
};
use idempotent_sql::ClaimContention;

/// A transaction of a handler, and the record that is completed in it.
pub(crate) struct PgTransaction {
    marked: MarkedTransaction,
    /// The record that the end of the attempt has to insert.
    new_record: Option<NewRecord>,
}

impl PgTransaction {
    pub(super) fn new(marked: MarkedTransaction, new_record: Option<NewRecord>) -> Self {
        Self { marked, new_record }
    }

    /// Inserts the record of the claim, unless it exists.
    async fn insert(&mut self, operation: &'static str) -> Result<Fence, StoreError> {
        let Some(new) = self.take_new_record() else { return Ok(Fence::Passed) };
        let statements = self.marked.statements.clone();
        let statement = statements.insert_in_transaction(&new, self.marked.token.0);
        let inserted = on_io_thread(operation, self.marked.insert_with(operation, statement)).await;
        self.set_inserted(new, &inserted);
        inserted
    }

    /// The record that must be inserted before it can be changed.
    fn take_new_record(&mut self) -> Option<NewRecord> {
        self.new_record.take_if(|_| !self.marked.inserted)
    }

    /// Remembers a record until the transaction ends: an undo removes it.
    fn set_inserted(&mut self, new: NewRecord, inserted: &Result<Fence, StoreError>) {
        self.marked.inserted = matches!(inserted, Ok(Fence::Passed));
        self.new_record = Some(new);
    }

    /// Whether a savepoint of the handler that contained the first note was undone, and the new
    /// record with it. The transaction still has the lock of the key, so the record can be inserted
    /// again.
    fn is_undone(&mut self, changed: &Result<Fence, StoreError>) -> bool {
        let undone = self.marked.inserted && matches!(changed, Ok(Fence::Fenced));
        self.marked.inserted &= !undone;
        undone
    }
}

#[async_trait]
impl Transaction for PgTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.marked.connection()
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.marked.unverified = true;
        self.marked.connection_mut()
    }

    async fn has_escaped(&mut self) -> bool {
        on_io_thread("undo", async { Ok(self.marked.escaped().await) }).await.unwrap_or(false)
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.marked.not_closed("undo")?;
        self.marked.roll_back_to_savepoint().await.map_err(|error| {
            self.marked.close_if_unusable(&error);
            self.marked.store_error("undo", error)
        })
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let statements = self.marked.statements.clone();
        let was_inserted = self.marked.inserted;
        if self.insert("note").await? == Fence::Fenced {
            return Ok(Fence::Fenced);
        }
        let statement = statements.note_in_transaction(lease, note, self.marked.token.0);
        let noted = on_io_thread("note", self.marked.change("note", statement)).await;
        if was_inserted && self.is_undone(&noted) { self.note(lease, note).await } else { noted }
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let (statements, token) = (self.marked.statements.clone(), self.marked.token.0);
        let Some(new) = self.take_new_record() else {
            let statement = statements.complete_in_transaction(lease, recording, token);
            let completed =
                on_io_thread("complete", self.marked.change("complete", statement)).await;
            if self.is_undone(&completed) {
                return self.complete(lease, recording).await;
            }
            return completed;
        };
        let statement = statements.insert_completed_in_transaction(&new, recording, token);
        let completed =
            on_io_thread("complete", self.marked.insert_with("complete", statement)).await;
        self.set_inserted(new, &completed);
        completed
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statements = self.marked.statements.clone();
        let was_inserted = self.marked.inserted;
        if self.insert("abandon").await? == Fence::Fenced {
            return Ok(Fence::Fenced);
        }
        let statement = statements.abandon_in_transaction(lease, policy, self.marked.token.0);
        let abandoned = on_io_thread("abandon", self.marked.change("abandon", statement)).await;
        if was_inserted && self.is_undone(&abandoned) {
            self.abandon(lease, policy).await
        } else {
            abandoned
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if self.insert("commit").await? == Fence::Fenced {
            self.roll_back().await;
            return Err(StoreError::transient(NAME, "commit", ClaimContention));
        }
        if self.marked.unverified {
            let verified = on_io_thread("commit", self.marked.verify("commit")).await;
            if verified.is_err() {
                self.roll_back().await;
                return verified;
            }
        }
        on_io_thread("commit", self.marked.commit()).await
    }

    async fn roll_back(self: Box<Self>) -> bool {
        let rolled_back = async { Ok(self.marked.roll_back().await) };
        on_io_thread("roll back", rolled_back).await.unwrap_or(false)
    }
}
