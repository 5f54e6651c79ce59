//! A transaction as a process sees it. Its connection delivers statements in their order.

use std::{any::Any, sync::Mutex, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, StoreError,
    protocol::{Fence, Note},
    store::Transaction,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Fate, Reply, SimulatedStore, Statement};
use crate::{operation::Run, world::millis};

/// When the server closes a connection whose client is silent.
const IDLE_LIMIT: (u64, u64) = (20_000, 60_000);

/// What a handler writes with.
pub(crate) struct SimulatedConnection {
    store: SimulatedStore,
    tx: u64,
    /// When the statement that was sent last arrives.
    arrives: Mutex<Instant>,
}

pub(super) struct SimulatedTransaction {
    connection: SimulatedConnection,
    /// Whether the database has ended the transaction.
    ended: bool,
}

impl SimulatedConnection {
    /// Writes an effect.
    pub(crate) async fn insert(&self, run: Run) -> Result<(), StoreError> {
        self.send(|tx| Statement::Insert(tx, run)).await?.done()
    }

    async fn send(&self, statement: impl FnOnce(u64) -> Statement) -> Result<Reply, StoreError> {
        let fate = self.store.fate(false);
        let late = if fate == Fate::Late { millis(1_000, 15_000) } else { millis(0, 20) };
        let delay = self.after_the_last(late);
        let reply = self.store.send(statement(self.tx), fate, delay).await;
        if fate == Fate::Lost || fate == Fate::Hangs {
            self.close();
        }
        reply
    }

    /// The delay of a statement that arrives after `delay`, but not before the last one.
    fn after_the_last(&self, delay: Duration) -> Duration {
        let mut arrives = self.arrives.lock().unwrap();
        let now = Instant::now();
        *arrives = (now + delay).max(*arrives + Duration::from_millis(1));
        *arrives - now
    }

    /// The connection is closed, and the database notices that after a while.
    fn close(&self) {
        let (database, tx) = (self.store.database.clone(), self.tx);
        let at = Instant::now() + self.after_the_last(millis(0, 2_000));
        self.store.world.spawn_outside(async move {
            sleep_until(at).await;
            database.execute(Statement::RollBack(tx)).await;
        });
    }
}

impl SimulatedTransaction {
    pub(super) fn new(store: &SimulatedStore) -> Self {
        let tx = store.world.next_id();
        let database = store.database.clone();
        store.world.spawn_outside(async move {
            sleep(millis(IDLE_LIMIT.0, IDLE_LIMIT.1)).await;
            database.execute(Statement::RollBack(tx)).await;
        });
        let connection =
            SimulatedConnection { store: store.clone(), tx, arrives: Mutex::new(Instant::now()) };
        Self { connection, ended: false }
    }

    pub(super) async fn send(
        &self,
        statement: impl FnOnce(u64) -> Statement,
    ) -> Result<Reply, StoreError> {
        self.connection.send(statement).await
    }
}

impl Drop for SimulatedTransaction {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close();
        }
    }
}

#[async_trait]
impl Transaction for SimulatedTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        &self.connection
    }

    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        &mut self.connection
    }

    async fn undo(&mut self) -> Result<(), StoreError> {
        self.send(Statement::Undo).await?.done()
    }

    async fn note(&mut self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.send(|tx| Statement::NoteIn(tx, *lease, note.clone())).await?.fence()
    }

    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.send(|tx| Statement::CompleteIn(tx, *lease, recording.clone())).await?.fence()
    }

    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.send(|tx| Statement::AbandonIn(tx, *lease, policy)).await?.fence()
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        self.send(Statement::Commit).await?.done()?;
        self.ended = true;
        Ok(())
    }

    async fn roll_back(mut self: Box<Self>) -> bool {
        self.ended = self.send(Statement::RollBack).await.is_ok();
        self.ended
    }

    async fn complete_and_commit(
        mut self: Box<Self>,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let complete = |tx| Statement::CompleteAndCommit(tx, *lease, recording.clone());
        let fence = self.send(complete).await?.fence()?;
        self.ended = true;
        Ok(fence)
    }
}
