//! The task that executes batches.

use std::{mem, sync::Arc};

use sqlx::Connection;
use tokio::{sync::oneshot, time::Instant};

use super::{GroupCommit, GroupedStep, InBatch, Queued};
use crate::pool::{ConnectionPool, PooledConnection};

/// Steps that are executed together, and where each expects its outcome.
pub type Batch<S, R> = Vec<(S, Reply<R>)>;

/// Where a step expects its outcome. If it is dropped, the step is executed alone.
pub struct Reply<R>(oneshot::Sender<InBatch<R>>);

impl<R> Reply<R> {
    /// Returns the outcome to the caller of the step.
    pub fn send(self, outcome: InBatch<R>) {
        // The caller may have gone.
        let _ = self.0.send(outcome);
    }
}

/// The batches until the queue is empty, or another task has passed this one. If it is dropped
/// before, the steps in the queue are executed alone.
pub struct Batches<S, R> {
    group: Arc<GroupCommit<S, R>>,
    task: u64,
    /// When the last batch was taken.
    taken: Option<Instant>,
    ended: bool,
}

impl<S, R> Batches<S, R> {
    pub(super) fn new(group: Arc<GroupCommit<S, R>>, task: u64) -> Self {
        Self { group, task, taken: None, ended: false }
    }
}

impl<S: GroupedStep, R> Batches<S, R> {
    /// Waits for a connection, then takes the next batch; `None` if the queue is empty or left to
    /// another task, so that this task ends. While the steps wait for the connection they can still
    /// leave the queue.
    pub async fn next<C: Connection>(
        &mut self,
        connections: &ConnectionPool<C>,
    ) -> Option<(Result<PooledConnection<C>, sqlx::Error>, Batch<S, R>)> {
        while self.are_left() {
            let connection = connections.get().await;
            // Each step has its own limit for this wait.
            if matches!(connection, Err(sqlx::Error::PoolTimedOut)) {
                continue;
            }
            let batch = self.take();
            match connection {
                Ok(connection) if batch.is_empty() => connection.give_back(),
                connection => return Some((connection, batch)),
            }
        }
        None
    }

    /// Whether steps are waiting for this task. If none are, the next step that queues starts
    /// another one.
    pub fn are_left(&mut self) -> bool {
        let now = Instant::now();
        let mut state = self.group.state();
        if let Some(taken) = self.taken.take() {
            state.usual.observe(now - taken);
        }
        let is_empty = state.queue.is_empty();
        match &mut state.current {
            Some(current) if current.number == self.task && !is_empty => {
                current.since = now;
                return true;
            }
            Some(current) if current.number == self.task => state.current = None,
            // Another task has passed this one, and has the queue.
            Some(_) | None => {}
        }
        state.tasks -= 1;
        self.ended = true;
        false
    }

    /// Takes the next batch. It is empty if all steps have left the queue, or if another task that
    /// has passed this one was faster.
    pub fn take(&mut self) -> Batch<S, R> {
        let limits = self.group.limits;
        let now = Instant::now();
        let mut state = self.group.state();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        if let Some(current) = &mut state.current
            && current.number == self.task
        {
            current.since = now;
        }
        self.taken = Some(now);
        while let Some(queued) = state.queue.front() {
            bytes += queued.step.bytes();
            let full = batch.len() == usize::from(limits.steps.get()) || bytes > limits.bytes.get();
            if full && !batch.is_empty() {
                break;
            }
            let Some(Queued { step, reply, .. }) = state.queue.pop_front() else { break };
            batch.push((step, Reply(reply)));
        }
        tracing::trace!(steps = batch.len(), bytes, "executing a batch");
        state.counts.batches += 1;
        state.counts.steps += batch.len();
        state.sizes.count(batch.len());
        batch
    }
}

impl<S, R> Drop for Batches<S, R> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let queue = {
            let mut state = self.group.state();
            state.tasks -= 1;
            match &state.current {
                Some(current) if current.number == self.task => {
                    state.current = None;
                    mem::take(&mut state.queue)
                }
                Some(_) | None => return,
            }
        };
        // Dropped after the state is unlocked, since it wakes the waiting steps.
        drop(queue);
    }
}
