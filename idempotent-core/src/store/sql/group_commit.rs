//! Group commit: steps of different requests that are executed together.
//!
//! A step is executed alone while no batch runs and only a few steps are under way. Otherwise it
//! queues, and the next batch takes everything that is in the queue, up to a limit. There is no
//! timer, so no step waits for others to arrive.

#![cfg_attr(
    not(feature = "internals"),
    allow(unreachable_pub, reason = "public for the simulation in `tests`")
)]

use std::{
    collections::VecDeque,
    mem,
    num::{NonZeroU16, NonZeroUsize},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sqlx::Connection;
use tokio::{sync::oneshot, time::timeout};

use super::pool::{ACQUIRE_TIMEOUT, ConnectionPool, PooledConnection};

/// When steps are executed together, and how many.
#[derive(Clone, Copy, Debug)]
pub struct GroupCommitLimits {
    /// How many steps are under way at most when one more is executed alone.
    pub alone: usize,
    /// The largest number of steps in a batch.
    pub steps: NonZeroU16,
    /// The largest size of a batch, unless a single step is larger.
    pub bytes: NonZeroUsize,
}

impl GroupCommitLimits {
    /// The default limits, where up to `alone` steps are executed side by side.
    pub const fn new(alone: usize) -> Self {
        let steps = NonZeroU16::MIN.saturating_add(63);
        let bytes = NonZeroUsize::MIN.saturating_add((1 << 20) - 1);
        Self { alone, steps, bytes }
    }

    /// Executes each step in a batch, even a single one.
    #[cfg(feature = "internals")]
    pub(crate) const fn forced(self) -> Self {
        Self { alone: 0, ..self }
    }
}

/// A step that can be part of a batch.
pub trait GroupedStep {
    /// About how many bytes it sends.
    fn bytes(&self) -> usize;
}

/// The outcome of a step in a batch.
#[derive(Debug)]
pub enum InBatch<R> {
    /// The batch has executed the step.
    Done(R),
    /// The batch could not execute the step, which has to be executed alone. It may have taken
    /// effect, and is safe to execute again.
    Alone,
}

/// The steps of one kind on one table, of all clones of a store.
pub struct GroupCommit<S, R> {
    limits: GroupCommitLimits,
    state: Mutex<State<S, R>>,
    #[cfg(feature = "internals")]
    counts: Mutex<BatchCounts>,
}

/// What the batches of a store have done so far.
#[cfg(feature = "internals")]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchCounts {
    /// The batches that were executed.
    pub batches: usize,
    /// The steps in them.
    pub steps: usize,
    /// The steps that were then executed alone.
    pub alone: usize,
}

struct State<S, R> {
    /// How many steps are being executed alone.
    alone: usize,
    batch_runs: bool,
    /// Ordered by ticket.
    queue: VecDeque<Queued<S, R>>,
    next_ticket: u64,
}

struct Queued<S, R> {
    ticket: u64,
    step: S,
    reply: oneshot::Sender<InBatch<R>>,
}

/// How a step is executed.
pub enum Turn<'a, S, R> {
    /// By its caller, while this value exists.
    Alone(AloneTurn<'a, S, R>),
    /// It was executed in a batch.
    Done(R),
    /// No batch took it within the time limit, so that it was not executed.
    TimedOut,
}

/// Counts as a step under way until it is dropped.
pub struct AloneTurn<'a, S, R>(&'a GroupCommit<S, R>);

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

impl<S: GroupedStep, R> GroupCommit<S, R> {
    /// Creates an empty queue.
    pub fn new(limits: GroupCommitLimits) -> Arc<Self> {
        let state = State { alone: 0, batch_runs: false, queue: VecDeque::new(), next_ticket: 0 };
        Arc::new(Self {
            limits,
            state: Mutex::new(state),
            #[cfg(feature = "internals")]
            counts: Mutex::default(),
        })
    }

    /// The limits of its batches.
    pub fn limits(&self) -> GroupCommitLimits {
        self.limits
    }

    /// Waits for a step's turn. If the step queues while no batch runs, `start` is called, which
    /// must start a task that executes all [batches](Self::batches).
    ///
    /// A step waits in the queue for as long as it would wait for a connection.
    ///
    /// # Cancel safety
    /// A step that is dropped in the queue has no effect. One that is dropped in a batch takes
    /// effect.
    pub async fn turn(
        self: &Arc<Self>,
        step: impl FnOnce() -> S,
        start: impl FnOnce(Batches<S, R>),
    ) -> Turn<'_, S, R> {
        let (mut queued, batches) = match self.enter(step) {
            Entered::Alone(turn) => return Turn::Alone(turn),
            Entered::Queued(queued, batches) => (queued, batches),
        };
        if let Some(batches) = batches {
            start(batches);
        }
        let outcome = match timeout(ACQUIRE_TIMEOUT, &mut queued.reply).await {
            Ok(outcome) => outcome,
            Err(_) if queued.withdraw() => return Turn::TimedOut,
            Err(_) => (&mut queued.reply).await,
        };
        match outcome {
            Ok(InBatch::Done(outcome)) => Turn::Done(outcome),
            Ok(InBatch::Alone) | Err(_) => {
                #[cfg(feature = "internals")]
                self.count(|counts| counts.alone += 1);
                Turn::Alone(self.turn_alone())
            }
        }
    }

    /// Lets a step be executed alone, however many are under way.
    pub(crate) fn turn_alone(&self) -> AloneTurn<'_, S, R> {
        self.alone(&mut self.state())
    }

    /// What the batches have done so far.
    #[cfg(feature = "internals")]
    pub fn counts(&self) -> BatchCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "internals")]
    fn count(&self, count: impl FnOnce(&mut BatchCounts)) {
        count(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn enter(self: &Arc<Self>, step: impl FnOnce() -> S) -> Entered<'_, S, R> {
        let mut state = self.state();
        if !state.batch_runs && state.alone < self.limits.alone {
            return Entered::Alone(self.alone(&mut state));
        }
        let (ticket, (reply, outcome)) = (state.next_ticket, oneshot::channel());
        state.next_ticket += 1;
        state.queue.push_back(Queued { ticket, step: step(), reply });
        let batches = (!state.batch_runs).then(|| Batches { group: self.clone(), ended: false });
        state.batch_runs = true;
        Entered::Queued(QueuedStep { ticket, reply: outcome, queue: self }, batches)
    }

    fn alone(&self, state: &mut State<S, R>) -> AloneTurn<'_, S, R> {
        state.alone += 1;
        AloneTurn(self)
    }
}

impl<S, R> GroupCommit<S, R> {
    fn state(&self) -> MutexGuard<'_, State<S, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, R> Drop for AloneTurn<'_, S, R> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

enum Entered<'a, S, R> {
    Alone(AloneTurn<'a, S, R>),
    Queued(QueuedStep<'a, S, R>, Option<Batches<S, R>>),
}

/// A step in the queue or in a batch. Leaves the queue when it is dropped.
struct QueuedStep<'a, S, R> {
    ticket: u64,
    reply: oneshot::Receiver<InBatch<R>>,
    queue: &'a GroupCommit<S, R>,
}

impl<S, R> QueuedStep<'_, S, R> {
    /// Leaves the queue; returns whether the step was still in it.
    fn withdraw(&self) -> bool {
        let queue = &mut self.queue.state().queue;
        let found = queue.binary_search_by_key(&self.ticket, |queued| queued.ticket);
        found.is_ok_and(|index| queue.remove(index).is_some())
    }
}

impl<S, R> Drop for QueuedStep<'_, S, R> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// The batches until the queue is empty. If it is dropped before, the steps in the queue are
/// executed alone.
pub struct Batches<S, R> {
    group: Arc<GroupCommit<S, R>>,
    ended: bool,
}

impl<S: GroupedStep, R> Batches<S, R> {
    /// Waits for a connection, then takes the next batch; `None` if the queue is empty, so that the
    /// task ends. While the steps wait for the connection they can still leave the queue.
    pub(crate) async fn next<C: Connection>(
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

    /// Whether steps are waiting. If none are, the next step that queues starts another task.
    pub fn are_left(&mut self) -> bool {
        let mut state = self.group.state();
        self.ended = state.queue.is_empty();
        state.batch_runs = !self.ended;
        state.batch_runs
    }

    /// Takes the next batch. It is empty if all steps have left the queue.
    pub fn take(&mut self) -> Batch<S, R> {
        let limits = self.group.limits;
        let mut state = self.group.state();
        let (mut batch, mut bytes) = (Vec::new(), 0);
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
        #[cfg(feature = "internals")]
        self.group.count(|counts| {
            counts.batches += 1;
            counts.steps += batch.len();
        });
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
            state.batch_runs = false;
            mem::take(&mut state.queue)
        };
        // Dropped after the state is unlocked, since it wakes the waiting steps.
        drop(queue);
    }
}

#[cfg(test)]
mod tests;
