//! Group commit: steps of different requests that are executed together.
//!
//! A step is executed alone while no batch runs and only a few steps are under way. Otherwise it
//! queues, and the next batch takes everything that is in the queue, up to a limit. No step waits
//! for others to arrive.
//!
//! A step waits for the batch before it, unless that batch is late: if it takes much longer than
//! usual, something has stopped one of its steps or its connection. Then the next batch passes it.

use std::{
    collections::VecDeque,
    num::{NonZeroU16, NonZeroUsize},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use idempotent_core::store::BatchSizes;

pub use self::batches::{Batch, Batches, Reply};
use super::pool::ACQUIRE_TIMEOUT;

mod batches;
pub mod steps;
mod usual_time;

use self::usual_time::UsualTime;

/// When steps are executed together, and how many.
#[derive(Clone, Copy, Debug)]
pub struct GroupCommitLimits {
    /// How many steps are under way at most when one more is executed alone.
    pub alone: usize,
    /// The largest number of batches that run at the same time. All of them but one are late.
    pub batches: usize,
    /// The largest number of steps in a batch.
    pub steps: NonZeroU16,
    /// The largest size of a batch, unless a single step is larger.
    pub bytes: NonZeroUsize,
}

impl GroupCommitLimits {
    /// The default limits, where up to `alone` steps are executed side by side. No batch passes
    /// another one.
    pub const fn new(alone: usize) -> Self {
        let steps = NonZeroU16::MIN.saturating_add(63);
        let bytes = NonZeroUsize::MIN.saturating_add((1 << 20) - 1);
        Self { alone, batches: 1, steps, bytes }
    }

    /// Executes each step in a batch, even a single one.
    pub const fn forced(self) -> Self {
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
    /// The batch has not executed the step, which has to be executed alone.
    Alone,
    /// The batch may have executed the step, which has to be executed alone all the same. That is
    /// safe.
    Unknown,
}

/// The steps of one kind on one table, of all clones of a store.
pub struct GroupCommit<S, R> {
    limits: GroupCommitLimits,
    state: Mutex<State<S, R>>,
}

/// What the batches of a store have done so far.
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
    /// The task that takes the next batch; there is one whenever the queue is not empty.
    current: Option<Task>,
    /// How many tasks execute batches: the current one, and those that were passed.
    tasks: usize,
    next_task: u64,
    usual: UsualTime,
    /// Ordered by ticket.
    queue: VecDeque<Queued<S, R>>,
    next_ticket: u64,
    counts: BatchCounts,
    sizes: BatchSizes,
}

/// A task that executes batches, one after the other.
struct Task {
    number: u64,
    /// When it took its batch, or began to wait for a connection for it.
    since: Instant,
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
pub struct AloneTurn<'a, S, R> {
    group: &'a GroupCommit<S, R>,
    /// Whether a batch may have executed the step already, or may still do so.
    pub repeated: bool,
}

impl<S: GroupedStep, R> GroupCommit<S, R> {
    /// Creates an empty queue.
    pub fn new(limits: GroupCommitLimits) -> Arc<Self> {
        let state = State {
            alone: 0,
            current: None,
            tasks: 0,
            next_task: 0,
            usual: UsualTime::default(),
            queue: VecDeque::new(),
            next_ticket: 0,
            counts: BatchCounts::default(),
            sizes: BatchSizes::default(),
        };
        Arc::new(Self { limits, state: Mutex::new(state) })
    }

    /// The limits of its batches.
    pub fn limits(&self) -> GroupCommitLimits {
        self.limits
    }

    /// Waits for a step's turn. If the step queues while no batch runs, or while all batches that
    /// run are late, `start` is called, which must start a task that executes all
    /// batches.
    ///
    /// A step waits in the queue for as long as it would wait for a connection. If too many batches
    /// are late for one more, it is executed alone.
    ///
    /// # Cancel safety
    /// A step that is dropped in the queue has no effect. One that is dropped in a batch takes
    /// effect.
    pub async fn turn(
        self: &Arc<Self>,
        step: impl FnOnce() -> S,
        start: impl Fn(Batches<S, R>),
    ) -> Turn<'_, S, R> {
        let (mut queued, batches) = match self.enter(step) {
            Entered::Alone(turn) => return Turn::Alone(turn),
            Entered::Queued(queued, batches) => (queued, batches),
        };
        if let Some(batches) = batches {
            start(batches);
        }
        let outcome = match self.wait(&mut queued, start).await {
            Waited::Replied(outcome) => outcome,
            Waited::Passed => Ok(InBatch::Alone),
            Waited::TimedOut => return Turn::TimedOut,
        };
        let repeated = match outcome {
            Ok(InBatch::Done(outcome)) => return Turn::Done(outcome),
            Ok(InBatch::Alone) => false,
            Ok(InBatch::Unknown) | Err(_) => true,
        };
        Turn::Alone(self.turn_after_batch(repeated))
    }

    /// Lets a step be executed alone that a batch has not, or may not have, executed.
    fn turn_after_batch(&self, repeated: bool) -> AloneTurn<'_, S, R> {
        let mut state = self.state();
        state.counts.alone += 1;
        let mut turn = self.alone(&mut state);
        turn.repeated = repeated;
        turn
    }

    /// Lets a step be executed alone, however many are under way.
    pub fn turn_alone(&self) -> AloneTurn<'_, S, R> {
        self.alone(&mut self.state())
    }

    /// What the batches have done so far.
    pub fn counts(&self) -> BatchCounts {
        self.state().counts
    }

    /// How many batches of each size were executed so far.
    pub fn sizes(&self) -> BatchSizes {
        self.state().sizes.clone()
    }

    fn enter(self: &Arc<Self>, step: impl FnOnce() -> S) -> Entered<'_, S, R> {
        let mut state = self.state();
        if state.current.is_none() && state.alone < self.limits.alone {
            return Entered::Alone(self.alone(&mut state));
        }
        let (ticket, (reply, outcome)) = (state.next_ticket, oneshot::channel());
        state.next_ticket += 1;
        state.queue.push_back(Queued { ticket, step: step(), reply });
        let batches = state.current.is_none().then(|| self.start_task(&mut state));
        let late_at = state.late_at(self.limits);
        let queued = QueuedStep { ticket, reply: outcome, late_at, queue: self };
        Entered::Queued(queued, batches)
    }

    /// Waits for the outcome of a step in a batch.
    async fn wait(
        self: &Arc<Self>,
        queued: &mut QueuedStep<'_, S, R>,
        start: impl Fn(Batches<S, R>),
    ) -> Waited<R> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        let mut pause = queued.late_at.map_or(deadline, |late_at| late_at.min(deadline));
        loop {
            if let Ok(outcome) = timeout_at(pause, &mut queued.reply).await {
                return Waited::Replied(outcome);
            }
            match self.advance(queued, deadline) {
                Advance::InBatch => return Waited::Replied((&mut queued.reply).await),
                Advance::TimedOut => return Waited::TimedOut,
                Advance::Alone => return Waited::Passed,
                Advance::Wait { until, batches } => {
                    pause = until;
                    if let Some(batches) = batches {
                        start(batches);
                    }
                }
            }
        }
    }

    /// Decides what a step does that has waited until its deadline, or until a batch was late.
    fn advance(
        self: &Arc<Self>,
        queued: &QueuedStep<'_, S, R>,
        deadline: Instant,
    ) -> Advance<S, R> {
        let mut state = self.state();
        let Some(index) = state.index_of(queued.ticket) else { return Advance::InBatch };
        let now = Instant::now();
        let late_at = state.late_at(self.limits).unwrap_or(deadline);
        if now < late_at.min(deadline) {
            return Advance::Wait { until: late_at.min(deadline), batches: None };
        }
        if now < deadline && state.tasks < self.limits.batches {
            let batches = self.start_task(&mut state);
            let until = now + state.usual.late_after();
            return Advance::Wait { until: until.min(deadline), batches: Some(batches) };
        }
        state.queue.remove(index);
        if now < deadline { Advance::Alone } else { Advance::TimedOut }
    }

    fn start_task(self: &Arc<Self>, state: &mut State<S, R>) -> Batches<S, R> {
        let number = state.next_task;
        state.next_task += 1;
        state.tasks += 1;
        state.current = Some(Task { number, since: Instant::now() });
        Batches::new(self.clone(), number)
    }

    fn alone(&self, state: &mut State<S, R>) -> AloneTurn<'_, S, R> {
        state.alone += 1;
        AloneTurn { group: self, repeated: false }
    }
}

impl<S, R> GroupCommit<S, R> {
    fn state(&self) -> MutexGuard<'_, State<S, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, R> State<S, R> {
    /// When the current task's batch is late; `None` if it cannot be passed.
    fn late_at(&self, limits: GroupCommitLimits) -> Option<Instant> {
        let task = self.current.as_ref().filter(|_| limits.batches > 1)?;
        Some(task.since + self.usual.late_after())
    }

    fn index_of(&self, ticket: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&ticket, |queued| queued.ticket).ok()
    }
}

impl<S, R> Drop for AloneTurn<'_, S, R> {
    fn drop(&mut self) {
        self.group.state().alone -= 1;
    }
}

enum Entered<'a, S, R> {
    Alone(AloneTurn<'a, S, R>),
    Queued(QueuedStep<'a, S, R>, Option<Batches<S, R>>),
}

enum Waited<R> {
    /// By the batch, or not at all if its task has ended.
    Replied(Result<InBatch<R>, oneshot::error::RecvError>),
    /// It has left the queue, to be executed alone.
    Passed,
    TimedOut,
}

/// What a step does after a wait.
enum Advance<S, R> {
    /// Nothing: a batch has taken it.
    InBatch,
    /// It waits, for a new task if there is one.
    Wait { until: Instant, batches: Option<Batches<S, R>> },
    /// It has left the queue, and is executed alone.
    Alone,
    /// It has left the queue, and is not executed.
    TimedOut,
}

/// A step in the queue or in a batch. Leaves the queue when it is dropped.
struct QueuedStep<'a, S, R> {
    ticket: u64,
    reply: oneshot::Receiver<InBatch<R>>,
    /// When the batch before it is late, if it can be passed.
    late_at: Option<Instant>,
    queue: &'a GroupCommit<S, R>,
}

impl<S, R> Drop for QueuedStep<'_, S, R> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let withdrawn = state.index_of(self.ticket).and_then(|index| state.queue.remove(index));
        // Dropped after the state is unlocked, since the step may be large.
        drop(state);
        drop(withdrawn);
    }
}

#[cfg(test)]
mod tests;
