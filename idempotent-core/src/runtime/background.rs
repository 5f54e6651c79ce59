//! The thread that renews, purges, and tells the store again what it failed to take.

use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{sync::mpsc, task::LocalSet};

use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    runtime::{
        Shared,
        patience::{after, jittered, now},
    },
    store::{Fence, Store},
};

/// How many records one purge removes at most.
const PURGE_BATCH: u32 = 1000;
/// How long a purge lets others at the store between two batches.
const PURGE_PAUSE: Duration = Duration::from_millis(50);
/// How many steps may be waiting to be told again before claims of unknown outcome are left to lapse by themselves.
const MOST_RELEASES: usize = 256;
/// The first pause before a step is tried again; it doubles up to a second.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// A step that ends an attempt.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Complete(Bytes),
    Release,
    Abandon(Abandoned),
}

impl Step {
    pub(super) async fn take(&self, store: &dyn Store, lease: &Lease) -> Result<Fence, StoreError> {
        match self {
            Self::Complete(recording) => store.complete(lease, recording).await,
            Self::Release => store.release(lease).await,
            Self::Abandon(policy) => store.abandon(lease, *policy).await,
        }
    }
}

/// A step that the store failed to take, and for how long it makes sense to try again.
struct Deferred {
    lease: Lease,
    step: Step,
    until: Instant,
}

/// The way to the thread. It ends when the last runtime is dropped.
pub(super) struct Handle {
    deferred: mpsc::UnboundedSender<Deferred>,
}

/// Starts the thread if it is not running yet.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), StoreError> {
    if shared.background.get().is_some() {
        return Ok(());
    }
    let failed = |error| StoreError::transient("runtime", "start its thread", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (sender, receiver) = mpsc::unbounded_channel();
    let weak = Arc::downgrade(shared);
    let body = move || LocalSet::new().block_on(&runtime, run(weak, receiver));
    thread::Builder::new().name("idempotency".into()).spawn(body).map_err(failed)?;
    // Another thread may have been faster: then this sender is dropped here, and the new thread ends by itself.
    let _ = shared.background.set(Handle { deferred: sender });
    Ok(())
}

async fn run(shared: Weak<Shared>, mut deferred: mpsc::UnboundedReceiver<Deferred>) {
    tokio::task::spawn_local(renew(shared.clone()));
    tokio::task::spawn_local(purge(shared.clone()));
    while let Some(deferred) = deferred.recv().await {
        if let Some(shared) = shared.upgrade() {
            tokio::task::spawn_local(async move { shared.settle(deferred).await });
        }
    }
}

async fn renew(shared: Weak<Shared>) {
    let Some(live) = shared.upgrade().map(|shared| shared.renewal.clone()) else { return };
    loop {
        live.sleep().await;
        let Some(shared) = shared.upgrade() else { return };
        shared.renew_due().await;
    }
}

async fn purge(shared: Weak<Shared>) {
    let Some(every) = shared.upgrade().and_then(|shared| shared.options.purge_every) else { return };
    loop {
        tokio::time::sleep(jittered(every.max(PURGE_PAUSE))).await;
        let Some(shared) = shared.upgrade() else { return };
        loop {
            match shared.store.purge(PURGE_BATCH).await {
                Ok(removed) if removed >= u64::from(PURGE_BATCH) => tokio::time::sleep(PURGE_PAUSE).await,
                Ok(_) => break,
                Err(error) => {
                    let cause = std::error::Error::source(&error);
                    tracing::warn!(%error, cause, "expired records could not be purged");
                    break;
                }
            }
        }
    }
}

impl Shared {
    /// Gives back, in the background, a claim that may or may not have taken effect.
    pub(super) fn give_back(&self, lease: Lease, extend: Duration) {
        if *self.deferred.borrow() < MOST_RELEASES {
            self.defer(lease, extend, Step::Release);
        }
    }

    /// Hands a step to the thread, to be told to the store again for as long as the lease may last.
    pub(super) fn defer(&self, lease: Lease, extend: Duration, step: Step) {
        let Some(background) = self.background.get() else { return };
        self.deferred.send_modify(|deferred| *deferred += 1);
        let sent = background.deferred.send(Deferred { lease, step, until: after(now(), extend) });
        if sent.is_err() {
            self.deferred.send_modify(|deferred| *deferred -= 1);
        }
    }

    async fn settle(&self, Deferred { lease, step, until }: Deferred) {
        let mut pause = FIRST_RETRY;
        loop {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
            match step.take(&*self.store, &lease).await {
                Ok(Fence::Passed) => break,
                Ok(Fence::Fenced) => {
                    // A release that finds nothing of its own is what a claim that never took effect looks like.
                    if matches!(step, Step::Complete(_)) {
                        tracing::error!(id = %lease.id, "an answer was sent but not kept: another attempt had taken over");
                    }
                    break;
                }
                Err(error) if now() < until => {
                    tracing::debug!(id = %lease.id, %error, "the store still fails");
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error);
                    tracing::error!(id = %lease.id, %error, cause, "an attempt's end could not be stored in time");
                    break;
                }
            }
        }
        self.renewal.remove(&lease);
        self.waiting.wake(&lease.id);
        self.deferred.send_modify(|deferred| *deferred -= 1);
    }
}
