use std::time::Duration;

use tokio::{sync::mpsc, task::yield_now, time::Instant};

use super::*;

/// A step of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step(usize);

impl GroupedStep for Step {
    fn bytes(&self) -> usize {
        self.0
    }
}

type Group = Arc<GroupCommit<Step, usize>>;

/// A queue in which `alone` steps are executed side by side, up to `batches` batches run at the
/// same time, and batches have at most three steps and ten bytes.
fn group(alone: usize, batches: usize) -> Group {
    let limits = GroupCommitLimits::new(alone);
    let (steps, bytes) = (NonZeroU16::new(3).unwrap(), NonZeroUsize::new(10).unwrap());
    GroupCommit::new(GroupCommitLimits { batches, steps, bytes, ..limits })
}

/// How a step was executed.
#[derive(Debug, PartialEq, Eq)]
enum Executed {
    Alone,
    /// Alone, although a batch may have executed it.
    Repeated,
    InBatch(usize),
    TimedOut,
}

/// Sends steps to a queue and takes their batches.
struct Callers {
    group: Group,
    batches: mpsc::UnboundedReceiver<Batches<Step, usize>>,
    start: mpsc::UnboundedSender<Batches<Step, usize>>,
}

impl Callers {
    fn new(alone: usize) -> Self {
        Self::passing(alone, 1)
    }

    /// With up to this many batches at the same time.
    fn passing(alone: usize, batches: usize) -> Self {
        let group = group(alone, batches);
        let (start, batches) = mpsc::unbounded_channel();
        Self { group, batches, start }
    }

    async fn call(&self, bytes: usize) -> tokio::task::JoinHandle<Executed> {
        let (group, start) = (self.group.clone(), self.start.clone());
        let call = tokio::spawn(async move {
            let start = |batches| start.send(batches).unwrap();
            match group.turn(|| Step(bytes), start).await {
                Turn::Alone(turn) if turn.repeated => Executed::Repeated,
                Turn::Alone(_turn) => Executed::Alone,
                Turn::Done(result) => Executed::InBatch(result),
                Turn::TimedOut => Executed::TimedOut,
            }
        });
        yield_now().await;
        call
    }

    async fn next(&mut self) -> Batches<Step, usize> {
        self.batches.recv().await.unwrap()
    }
}

fn sizes(batch: &Batch<Step, usize>) -> Vec<usize> {
    batch.iter().map(|(Step(bytes), _)| *bytes).collect()
}

/// Replies to each step with its size.
fn reply(batch: Batch<Step, usize>) {
    for (Step(bytes), reply) in batch {
        reply.send(InBatch::Done(bytes));
    }
}

#[tokio::test]
async fn a_step_is_alone_while_few_are_under_way() {
    let group = group(2, 1);
    let no_batch = |_| panic!("a batch was started");
    let one = group.turn(|| unreachable!(), no_batch).await;
    let two = group.turn(|| unreachable!(), no_batch).await;
    assert!(matches!((&one, &two), (Turn::Alone(_), Turn::Alone(_))));
    drop(one);
    assert!(matches!(group.turn(|| unreachable!(), no_batch).await, Turn::Alone(_)));
    drop(two);
}

#[tokio::test]
async fn steps_that_arrive_during_a_batch_are_in_the_next_one() {
    let mut callers = Callers::new(0);
    let first = callers.call(1).await;
    let mut batches = callers.next().await;
    assert!(batches.are_left());
    let batch = batches.take();
    assert_eq!(sizes(&batch), [1]);
    let others = [callers.call(2).await, callers.call(3).await];
    assert!(callers.batches.try_recv().is_err(), "a second batch was started beside the first");
    reply(batch);
    assert_eq!(first.await.unwrap(), Executed::InBatch(1));
    assert!(batches.are_left());
    let batch = batches.take();
    assert_eq!(sizes(&batch), [2, 3]);
    reply(batch);
    for (other, expected) in others.into_iter().zip([2, 3]) {
        assert_eq!(other.await.unwrap(), Executed::InBatch(expected));
    }
    assert!(!batches.are_left());
    let _later = callers.call(4).await;
    assert!(callers.next().await.are_left(), "no batch was started for a later step");
}

#[tokio::test]
async fn a_batch_has_at_most_its_limit_of_steps_and_bytes() {
    let mut callers = Callers::new(0);
    let mut calls = Vec::new();
    for bytes in [1, 1, 1, 6, 4, 1, 11, 1] {
        calls.push(callers.call(bytes).await);
    }
    let mut batches = callers.next().await;
    let mut taken = Vec::new();
    while batches.are_left() {
        let batch = batches.take();
        taken.push(sizes(&batch));
        reply(batch);
    }
    assert_eq!(taken, [vec![1, 1, 1], vec![6, 4], vec![1], vec![11], vec![1]]);
    for call in calls {
        assert!(matches!(call.await.unwrap(), Executed::InBatch(_)));
    }
}

#[tokio::test]
async fn a_step_that_is_dropped_in_the_queue_is_not_executed() {
    let mut callers = Callers::new(0);
    let calls = [callers.call(1).await, callers.call(2).await, callers.call(3).await];
    calls[1].abort();
    yield_now().await;
    let mut batches = callers.next().await;
    assert!(batches.are_left());
    assert_eq!(sizes(&batches.take()), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_no_batch_takes_in_time_is_not_executed() {
    let mut callers = Callers::new(0);
    let (started, call) = (Instant::now(), callers.call(1).await);
    let mut batches = callers.next().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = callers.call(2).await;
    assert_eq!(call.await.unwrap(), Executed::TimedOut);
    assert_eq!(started.elapsed().as_secs(), ACQUIRE_TIMEOUT.as_secs());
    assert!(batches.are_left());
    let batch = batches.take();
    assert_eq!(sizes(&batch), [2], "each step has its own limit");
    tokio::time::sleep(Duration::from_secs(60)).await;
    reply(batch);
    assert_eq!(later.await.unwrap(), Executed::InBatch(2), "it had been taken in time");
}

#[tokio::test]
async fn steps_without_a_reply_are_executed_alone() {
    let mut callers = Callers::new(0);
    let calls = [callers.call(1).await, callers.call(2).await];
    let mut batches = callers.next().await;
    let mut batch = batches.take();
    let (_, second) = batch.pop().unwrap();
    second.send(InBatch::Alone);
    drop(batch);
    let [first, second] = calls;
    assert_eq!(first.await.unwrap(), Executed::Repeated, "the batch may have executed it");
    assert_eq!(second.await.unwrap(), Executed::Alone);
}

#[tokio::test]
async fn the_end_of_the_task_ends_the_queue() {
    let mut callers = Callers::new(0);
    let calls = [callers.call(1).await, callers.call(2).await];
    drop(callers.next().await);
    for call in calls {
        assert_eq!(call.await.unwrap(), Executed::Repeated);
    }
    let _later = callers.call(3).await;
    assert!(callers.next().await.are_left(), "no batch was started for a later step");
}

/// Longer than any batch takes that is not late.
const LATE: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_next_batch_passes_one_that_is_late() {
    let mut callers = Callers::passing(0, 2);
    let stuck = callers.call(1).await;
    let mut late = callers.next().await;
    assert!(late.are_left());
    let hanging = late.take();
    let (started, others) = (Instant::now(), [callers.call(2).await, callers.call(3).await]);
    let mut batches = callers.next().await;
    assert!(started.elapsed() < LATE, "the steps have waited too long for the late batch");
    assert!(batches.are_left());
    let batch = batches.take();
    assert_eq!(sizes(&batch), [2, 3], "the steps wait together");
    reply(batch);
    for (other, expected) in others.into_iter().zip([2, 3]) {
        assert_eq!(other.await.unwrap(), Executed::InBatch(expected));
    }
    // The late task leaves the queue to the one that has passed it.
    let _queued = callers.call(4).await;
    reply(hanging);
    assert_eq!(stuck.await.unwrap(), Executed::InBatch(1));
    assert!(!late.are_left());
    assert!(batches.are_left());
    assert_eq!(sizes(&batches.take()), [4]);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_alone_while_too_many_batches_are_late() {
    let mut callers = Callers::passing(0, 2);
    let mut late = Vec::new();
    for bytes in [1, 2] {
        drop(callers.call(bytes).await);
        let mut batches = callers.next().await;
        assert!(batches.are_left());
        late.push((batches.take(), batches));
    }
    let started = Instant::now();
    assert_eq!(callers.call(3).await.await.unwrap(), Executed::Alone);
    assert!(started.elapsed() < LATE);
    // Both tasks end, and the next step starts one again.
    for (batch, mut batches) in late {
        reply(batch);
        assert!(!batches.are_left());
    }
    let _next = callers.call(4).await;
    assert!(callers.next().await.are_left());
}

/// With one connection there is no other one to pass on.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_the_only_one_is_not_passed() {
    let mut callers = Callers::new(0);
    drop(callers.call(1).await);
    let mut batches = callers.next().await;
    let batch = batches.take();
    let waiting = callers.call(2).await;
    tokio::time::sleep(LATE).await;
    assert!(callers.batches.try_recv().is_err() && !waiting.is_finished());
    reply(batch);
    assert!(batches.are_left());
    assert_eq!(sizes(&batches.take()), [2]);
}

/// The first of the two that gets a connection takes the step.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_connection_is_passed_too() {
    for first in [0, 1] {
        let mut callers = Callers::passing(0, 2);
        let call = callers.call(1).await;
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let mut batches = callers.next().await;
            assert!(batches.are_left());
            tasks.push(batches);
        }
        reply(tasks[first].take());
        assert_eq!(call.await.unwrap(), Executed::InBatch(1));
        assert!(tasks[1 - first].take().is_empty());
        assert!(tasks.iter_mut().all(|batches| !batches.are_left()));
    }
}
