//! The thread that renews leases, purges expired records, and stores deferred ends.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{LocalSet, spawn_local},
};

use super::{
    deferred::{Deferrals, QueuedEnd},
    environment::Environment,
    store_calls::StoreCalls,
    timing::jittered,
};
use crate::{error::StoreError, store::BatchSizes};

/// The maximum number of renewal rounds in progress at the same time.
const ROUNDS: usize = 4;
/// The maximum number of records that one purge removes.
const PURGE_BATCH: u32 = 200;
/// The time limit of a purge, as a multiple of the time limit of a call that a client waits for.
const PURGE_TIMEOUTS: u32 = 6;
/// The minimum pause between two counts of the records.
const COUNT_PAUSE: Duration = Duration::from_secs(1);
/// How long a purge removes batches before it pauses.
const PURGE_TURN: Duration = Duration::from_millis(1);
/// The minimum pause of a purge, in which other callers get the store.
const PURGE_PAUSE: Duration = Duration::from_millis(5);
/// The pause as a multiple of the time that the purge took, so that a busy store is not kept
/// busier.
const PURGE_REST: u32 = 4;

/// The background thread of a runtime, started at the first claim.
///
/// The thread ends when the [`Deferrals`] of its runtime are dropped: with the last clone of the
/// runtime, the last attempt, and the last deferred end.
#[derive(Default)]
pub(super) struct Background {
    starting: Mutex<()>,
}

impl Background {
    /// Starts the thread unless it runs.
    pub(super) fn start(&self, deferrals: &Arc<Deferrals>) -> Result<(), StoreError> {
        if deferrals.has_queue() {
            return Ok(());
        }
        deferrals.store().process().verify()?;
        // Only one thread is started: a second one would end at once, but could take a wake-up from
        // the first.
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if deferrals.has_queue() {
            return Ok(());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let work = Arc::downgrade(deferrals);
        match deferrals.store().environment() {
            Environment::System => spawn(work, receiver).map_err(|error| {
                StoreError::transient("runtime", "start the background thread", error)
            })?,
            #[cfg(feature = "internals")]
            Environment::Simulation => drop(spawn_local(run(work, receiver))),
        }
        deferrals.set_queue(sender);
        Ok(())
    }
}

/// Spawns the thread, which creates its own tokio runtime: that would panic if it were dropped here
/// after a failure.
fn spawn(deferrals: Weak<Deferrals>, queue: mpsc::UnboundedReceiver<QueuedEnd>) -> io::Result<()> {
    let (sender, built) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (runtime, result) = match runtime {
            Ok(runtime) => (Some(runtime), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let _ = sender.send(result);
        if let Some(runtime) = runtime {
            LocalSet::new().block_on(&runtime, run(deferrals, queue));
        }
    };
    thread::Builder::new().name("idempotency".into()).spawn(body)?;
    built.recv().map_err(io::Error::other)?
}

/// Runs until the queue is closed, and its tasks with it.
async fn run(deferrals: Weak<Deferrals>, mut queue: mpsc::UnboundedReceiver<QueuedEnd>) {
    spawn_local(renew(deferrals.clone()));
    spawn_local(purge(deferrals.clone()));
    spawn_local(count(deferrals));
    while let Some(end) = queue.recv().await {
        spawn_local(end.retry());
    }
}

async fn renew(deferrals: Weak<Deferrals>) {
    let leases = deferrals.upgrade().map(|deferrals| deferrals.renewer.leases.clone());
    let Some(leases) = leases else { return };
    let rounds = Arc::new(Semaphore::new(ROUNDS));
    loop {
        leases.wait_until_due().await;
        // The semaphore is never closed.
        let Ok(round) = rounds.clone().acquire_owned().await else { return };
        let Some(deferrals) = deferrals.upgrade() else { return };
        // In a separate task, so that leases that become due meanwhile need not wait for a slow
        // round.
        spawn_local(async move {
            deferrals.renewer.renew_due().await;
            drop(round);
        });
    }
}

async fn purge(deferrals: Weak<Deferrals>) {
    let Some((every, environment)) = deferrals.upgrade().and_then(|deferrals| {
        Some((deferrals.options().purge_every?, deferrals.store().environment()))
    }) else {
        return;
    };
    loop {
        tokio::time::sleep(jittered(every.max(PURGE_PAUSE))).await;
        let mut began = environment.now();
        // Upgraded for each batch, so that a long purge does not keep a dropped runtime alive.
        while let Some(deferrals) = deferrals.upgrade()
            && let Ok(true) = spawn_local(async move { purge_batch(deferrals.store()).await }).await
        {
            if let Some(rest) = rest_after(environment.now().duration_since(began)) {
                tokio::time::sleep(rest).await;
                began = environment.now();
            }
        }
    }
}

/// How long a purge pauses that has worked for this long; `None` if it goes on. The memory store
/// removes many batches in the time that other stores take for one.
fn rest_after(worked: Duration) -> Option<Duration> {
    (worked >= PURGE_TURN).then(|| PURGE_PAUSE.max(worked * PURGE_REST))
}

/// Removes some expired records; returns whether there may be more.
async fn purge_batch(store: &StoreCalls) -> bool {
    let limit = store.timeout().saturating_mul(PURGE_TIMEOUTS);
    match store.limit_to("purge", limit, store.store().purge(PURGE_BATCH)).await {
        Ok(removed) => {
            store.observe(|observer| observer.purged(removed));
            removed >= u64::from(PURGE_BATCH)
        }
        Err(error) => {
            let cause = error.source();
            tracing::warn!(
                %error, cause, "purging expired records failed; retrying at the next purge"
            );
            false
        }
    }
}

/// Counts the records of the store, and its batches, for the observer.
async fn count(deferrals: Weak<Deferrals>) {
    let every = deferrals.upgrade().and_then(|deferrals| deferrals.options().count_every);
    let Some(every) = every else { return };
    let mut batches = BatchSizes::default();
    loop {
        tokio::time::sleep(jittered(every.max(COUNT_PAUSE))).await;
        let Some(deferrals) = deferrals.upgrade() else { return };
        let counted = batches.clone();
        let counting = spawn_local(async move {
            let counted = count_batches(deferrals.store(), counted);
            count_once(deferrals.store()).await;
            counted
        });
        if let Ok(counted) = counting.await {
            batches = counted;
        }
    }
}

/// Tells the observer of the batches since those that were counted before.
fn count_batches(store: &StoreCalls, before: BatchSizes) -> BatchSizes {
    let Some(batches) = store.store().batches() else { return before };
    for (steps, batches) in batches.since(&before).iter() {
        store.observe(|observer| observer.batched(steps, batches));
    }
    batches
}

async fn count_once(store: &StoreCalls) {
    let Some(administration) = store.store().administration() else { return };
    let limit = store.timeout().saturating_mul(PURGE_TIMEOUTS);
    match store.limit_to("count", limit, administration.count()).await {
        Ok(count) => store.observe(|observer| observer.counted(&count)),
        Err(error) => {
            let cause = error.source();
            tracing::warn!(%error, cause, "counting the records failed; retrying later");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_pauses_for_longer_than_it_has_worked() {
        for (worked, pause) in [(0, 0), (1, 5), (2, 8), (500, 2000)] {
            let paused = rest_after(Duration::from_millis(worked)).unwrap_or_default();
            assert_eq!(paused, Duration::from_millis(pause), "{worked} ms");
        }
    }
}
