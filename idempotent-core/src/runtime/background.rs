//! The thread that renews, purges, and tells the store again what it failed to take.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    task::{LocalSet, spawn_local},
};

use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record_id::RecordId,
    runtime::{
        Shared,
        deferred::Pending,
        patience::{FIRST_RETRY, after, in_time, jittered, now},
        process::Process,
    },
    store::{Store, TransactionClaim},
};

/// How many rounds of renewals may be in progress at once.
const ROUNDS: usize = 4;
/// How many records one purge removes at most.
const PURGE_BATCH: u32 = 200;
/// A purge may take longer than what a client waits for, by so many times.
const PURGE_TIMEOUTS: u32 = 6;
/// How long a purge removes batches before it lets others at the store.
const PURGE_TURN: Duration = Duration::from_millis(1);
/// For how long it lets them, at least.
const PURGE_PAUSE: Duration = Duration::from_millis(5);
/// And how many times as long as it took, so that a busy store is not kept busier.
const PURGE_REST: u32 = 4;
/// The longest pause before a step is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// After how many panics of the store in a row a step is given up.
const PANICS: u32 = 5;

/// A step that the store is taking.
type Taking<'a> = Pin<Box<dyn Future<Output = Result<Fence, StoreError>> + Send + 'a>>;

/// A step that ends an attempt. It has no `Debug`: a response may be in it.
#[derive(Clone)]
pub(super) enum Step {
    Complete(Bytes),
    Release,
    Abandon(Abandoned),
    /// Undoes a claim that may have been granted, and whose work never began.
    GiveBack,
    /// Holds a key that was claimed within a transaction whose end is not known yet, if that transaction is committed. The claim is
    /// another one for the same key, which is granted once the transaction is rolled back.
    HoldIfCommitted(Box<Claim>),
}

impl Step {
    /// Not an `async fn`, which would wrap the store's future in a larger one.
    pub(super) fn take<'a>(&'a self, store: &'a dyn Store, lease: &'a Lease) -> Taking<'a> {
        match self {
            Self::Complete(recording) => store.complete(lease, recording),
            Self::Release => store.release(lease),
            Self::Abandon(policy) => store.abandon(lease, *policy),
            Self::GiveBack => Box::pin(async move {
                match store.look_up(&lease.id).await? {
                    // What the attempts before it did is still unknown, so the record stays, free to be taken over.
                    Some(found) if found.record.attempt > 1 => store.abandon(lease, Abandoned::Retry).await,
                    Some(_) | None => store.release(lease).await,
                }
            }),
            Self::HoldIfCommitted(probe) => Box::pin(hold_if_committed(store, lease, probe)),
        }
    }
}

async fn hold_if_committed(store: &dyn Store, lease: &Lease, probe: &Claim) -> Result<Fence, StoreError> {
    if store.abandon(lease, Abandoned::Hold).await? == Fence::Passed {
        tracing::error!(id = %lease.id, "a handler has committed its transaction itself; its key is held");
        return Ok(Fence::Passed);
    }
    let Some(transactions) = store.transactions() else { return Ok(Fence::Fenced) };
    let in_doubt = || StoreError::transient("runtime", "learn how a transaction ended", InDoubt);
    match transactions.claim(&lease.id, probe, Duration::ZERO).await? {
        TransactionClaim::Granted { transaction, .. } => {
            transaction.roll_back().await;
            // Between the step above and the claim the transaction may be committed, and its lease expire; the step is repeated then.
            let found = store.look_up(&lease.id).await?;
            let ours = found.is_some_and(|found| found.record.owner == lease.owner);
            if ours { Err(in_doubt()) } else { Ok(Fence::Fenced) }
        }
        // By the transaction, or by another attempt, which does not show whether the transaction has ended.
        TransactionClaim::Rejected(ClaimOutcome::InFlight { .. }) => Err(in_doubt()),
        TransactionClaim::Rejected(_) => Ok(Fence::Fenced),
    }
}

/// A transaction is neither committed nor rolled back yet.
#[derive(Debug)]
struct InDoubt;

impl std::fmt::Display for InDoubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server still works on it")
    }
}

impl std::error::Error for InDoubt {}

/// An end that the store failed to take, and for how long it makes sense to try again.
struct Deferred {
    pending: Pending,
    until: Instant,
}

/// The way to the thread, once it runs. The thread ends when the last runtime is dropped.
#[derive(Default)]
pub(super) struct Background {
    /// The one that the runtime was made in.
    pub(super) process: Process,
    deferred: OnceLock<mpsc::UnboundedSender<Deferred>>,
    starting: Mutex<()>,
}

/// Starts the thread if it is not running yet.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let background = &shared.background;
    background.process.verify()?;
    if background.deferred.get().is_some() {
        return Ok(());
    }
    // One at a time: a second thread, though it ends at once, could take a wake-up from the first.
    let _starting = background.starting.lock().unwrap_or_else(PoisonError::into_inner);
    if background.deferred.get().is_some() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    spawn(Arc::downgrade(shared), receiver)
        .map_err(|error| StoreError::transient("runtime", "start its thread", error))?;
    let _ = background.deferred.set(sender);
    Ok(())
}

/// The thread makes its own tokio runtime: dropped here, after a failure, it would panic.
fn spawn(shared: Weak<Shared>, deferred: mpsc::UnboundedReceiver<Deferred>) -> io::Result<()> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (runtime, result) = built.map_or_else(|error| (None, Err(error)), |runtime| (Some(runtime), Ok(())));
        let _ = tell.send(result);
        if let Some(runtime) = runtime {
            LocalSet::new().block_on(&runtime, run(shared, deferred));
        }
    };
    thread::Builder::new().name("idempotency".into()).spawn(body)?;
    told.recv().map_err(io::Error::other)?
}

/// Ends, and the tasks with it, when the last runtime is dropped.
async fn run(shared: Weak<Shared>, mut deferred: mpsc::UnboundedReceiver<Deferred>) {
    spawn_local(renew(shared.clone()));
    spawn_local(purge(shared));
    while let Some(deferred) = deferred.recv().await {
        spawn_local(settle(deferred));
    }
}

async fn renew(shared: Weak<Shared>) {
    let Some(live) = shared.upgrade().map(|shared| shared.renewal.clone()) else { return };
    let rounds = Arc::new(Semaphore::new(ROUNDS));
    loop {
        live.sleep().await;
        // The semaphore is never closed.
        let Ok(round) = rounds.clone().acquire_owned().await else { return };
        let Some(shared) = shared.upgrade() else { return };
        // In a task of its own, so that leases that are due in the meantime do not wait for a slow round.
        spawn_local(async move {
            shared.renew_due().await;
            drop(round);
        });
    }
}

async fn purge(shared: Weak<Shared>) {
    let Some(every) = shared.upgrade().and_then(|shared| shared.options.purge_every) else { return };
    loop {
        tokio::time::sleep(jittered(every.max(PURGE_PAUSE))).await;
        // As above; and each batch anew, so that a long purge does not keep alive what was dropped.
        let mut began = now();
        while let Some(shared) = shared.upgrade()
            && let Ok(true) = spawn_local(async move { shared.purge_batch().await }).await
        {
            if let Some(rest) = rest(began.elapsed()) {
                tokio::time::sleep(rest).await;
                began = now();
            }
        }
    }
}

/// For how long a purge that has worked so long lets others at the store. Many batches of a store in memory take no longer than one takes
/// elsewhere.
pub(super) fn rest(worked: Duration) -> Option<Duration> {
    (worked >= PURGE_TURN).then(|| PURGE_PAUSE.max(worked * PURGE_REST))
}

impl Background {
    /// Hands an end to the thread, if it runs. One that is gone gives the end back, which settles its account.
    pub(super) fn settle(&self, pending: Pending, since: Instant) {
        if let Some(thread) = self.deferred.get() {
            let until = after(since, pending.end.retried_for());
            let _ = thread.send(Deferred { pending, until });
        }
    }
}

async fn settle(Deferred { pending, until }: Deferred) {
    let Pending { shared, end, .. } = &pending;
    let id = end.lease().id;
    let (mut pause, mut reported, mut panics) = (FIRST_RETRY, false, 0);
    loop {
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_RETRY);
        if end.is_settled() {
            return;
        }
        // In a task of its own, so that a store that panics once does not cost a response that its client has.
        let (taking, taken) = (shared.clone(), end.clone());
        let Ok(taken) = spawn_local(async move { taking.take_or_reclaim(&taken).await }).await else {
            panics += 1;
            if panics < PANICS {
                continue;
            }
            tracing::error!(%id, "the store panics at the end of an attempt, again and again; its lease expires");
            return;
        };
        panics = 0;
        match taken {
            Ok(Fence::Passed) => return,
            Ok(Fence::Fenced) => {
                // A release that finds nothing of its own is what a claim that never took effect looks like.
                if matches!(end.step, Step::Complete(_)) && !end.is_fenced() {
                    tracing::error!(%id, "a response was sent but not kept: another attempt had taken over");
                }
                return;
            }
            // A permanent error too: its cause may be mended, and giving up only brings a second run nearer.
            // A damaged record stays as it is.
            Err(error) if now() < until && !error.is_unreadable() => {
                if error.is_transient() || reported {
                    tracing::debug!(%id, %error, "the store still fails; retrying");
                } else {
                    let cause = std::error::Error::source(&error);
                    tracing::error!(%id, %error, cause, "the store refuses the end of an attempt; retrying");
                    reported = true;
                }
            }
            Err(error) => return log_end(&end.step, id, &error),
        }
    }
}

/// Logs that an end is given up.
fn log_end(step: &Step, id: RecordId, error: &StoreError) {
    let cause = std::error::Error::source(error);
    if matches!(step, Step::GiveBack) {
        tracing::debug!(%id, %error, cause, "a claim could not be given back; its lease expires");
    } else {
        tracing::error!(%id, %error, cause, "the end of an attempt could not be stored in time; its lease expires");
    }
}

impl Shared {
    /// Removes some expired records; says whether there may be more.
    async fn purge_batch(&self) -> bool {
        let limit = self.options.store_timeout.saturating_mul(PURGE_TIMEOUTS);
        match in_time(limit, self.store.purge(PURGE_BATCH)).await {
            Ok(removed) => removed >= u64::from(PURGE_BATCH),
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::warn!(%error, cause, "expired records could not be purged");
                false
            }
        }
    }
}
