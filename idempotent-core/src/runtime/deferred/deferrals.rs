//! The deferred ends of a runtime: claims of their keys, and their way to the store.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    end::{DeferredEnd, EndEvent, EndState},
    ledger::{Ledger, Load},
};
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    history::Kind,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    record::RecordState,
    record_id::RecordId,
    runtime::{
        end_action::EndAction, observer::FencedStep, options::RuntimeOptions, renewer::Renewer,
        store_calls::StoreCalls, timing::after, waiters::Waiters,
    },
};

/// The number of deferred ends above which claims of unknown outcome are left to expire.
const MOST_RELEASES: usize = 256;

/// How long a claim waits for the store to take a deferred end. Then the outcome comes from memory,
/// so that a client whose first request had its response does not wait for a store that hangs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The deferred ends of a runtime. While one of them is left, the background thread runs.
pub(in crate::runtime) struct Deferrals {
    store: StoreCalls,
    options: Arc<RuntimeOptions>,
    pub(in crate::runtime) renewer: Arc<Renewer>,
    waiters: Arc<Waiters>,
    pub(in crate::runtime) ledger: Ledger,
    /// The queue of the background thread, once it runs.
    queue: OnceLock<mpsc::UnboundedSender<QueuedEnd>>,
}

/// A deferred end that the background retries. Dropping it forgets the end and frees its bytes,
/// whether the end was stored, given up, or lost to a panic.
///
/// It keeps the background thread running: the responses of an application that drops its own
/// runtime are still stored.
pub(in crate::runtime) struct QueuedEnd {
    pub(super) deferrals: Arc<Deferrals>,
    pub(super) end: Arc<DeferredEnd>,
    /// The bytes that are reserved for it.
    bytes: usize,
    /// Until when the end is retried.
    pub(super) until: Instant,
}

impl Drop for QueuedEnd {
    fn drop(&mut self) {
        let Deferrals { ledger, renewer, waiters, .. } = &*self.deferrals;
        ledger.remove(&self.end);
        renewer.leases.remove(&self.end.lease());
        waiters.wake(&self.end.id);
        ledger.free(self.bytes);
        self.deferrals.observe_load();
    }
}

/// An end that its attempt is sending to the store. Claims of this process find it until this is
/// dropped.
pub(in crate::runtime) struct SendingEnd {
    deferrals: Arc<Deferrals>,
    end: Arc<DeferredEnd>,
}

impl Drop for SendingEnd {
    fn drop(&mut self) {
        self.deferrals.ledger.remove(&self.end);
        self.deferrals.waiters.wake(&self.end.id);
    }
}

impl Deferrals {
    pub(in crate::runtime) fn new(
        store: StoreCalls,
        options: Arc<RuntimeOptions>,
        renewer: Arc<Renewer>,
        waiters: Arc<Waiters>,
    ) -> Self {
        let (ledger, queue) = (Ledger::default(), OnceLock::new());
        Self { store, options, renewer, waiters, ledger, queue }
    }

    pub(in crate::runtime) fn store(&self) -> &StoreCalls {
        &self.store
    }

    pub(super) fn now(&self) -> Instant {
        self.store.environment().now()
    }

    pub(in crate::runtime) fn options(&self) -> &RuntimeOptions {
        &self.options
    }

    pub(in crate::runtime) fn has_queue(&self) -> bool {
        self.queue.get().is_some()
    }

    /// Sets the queue of the background thread.
    pub(in crate::runtime) fn set_queue(&self, queue: mpsc::UnboundedSender<QueuedEnd>) {
        let _ = self.queue.set(queue);
    }

    /// Whether no claim can find a deferred end.
    pub(in crate::runtime) fn is_empty(&self) -> bool {
        self.ledger.is_empty()
    }

    /// Whether a claim of this record can find a deferred end.
    pub(in crate::runtime) fn has(&self, id: &RecordId) -> bool {
        !self.is_empty() && self.ledger.find(id).is_some()
    }

    /// Returns when no deferred end is left.
    pub(in crate::runtime) async fn drain(&self) {
        self.ledger.drain().await;
    }

    /// Shows an end that is being sent to the store to claims of this process.
    pub(in crate::runtime) fn show(self: &Arc<Self>, end: DeferredEnd) -> SendingEnd {
        let end = Arc::new(end.into_sending());
        self.ledger.insert(&end);
        SendingEnd { deferrals: self.clone(), end }
    }

    /// Gives back, in the background, a claim that may or may not have taken effect.
    pub(in crate::runtime) fn give_back(self: &Arc<Self>, id: RecordId, claim: Claim) {
        if self.ledger.load().ends < MOST_RELEASES {
            self.defer(DeferredEnd::new(id, claim, 0, EndAction::GiveBack, self.now()));
        }
    }

    /// Hands an end to the background, and returns whether there was room for it.
    ///
    /// If there is no room for a whole recording, it is kept without its body. If there is no room
    /// for that either, the end is dropped and the lease expires. A forked process defers nothing:
    /// it has no thread that would store it.
    pub(in crate::runtime) fn defer(self: &Arc<Self>, mut end: DeferredEnd) -> bool {
        if self.store.process().verify().is_err() {
            return false;
        }
        let (id, limit) = (end.id, self.options.deferred_bytes);
        if !self.ledger.reserve(end.bytes(), limit) {
            match end.shortened() {
                Some(smaller) if self.ledger.reserve(smaller.bytes(), limit) => {
                    tracing::warn!(
                        id = %id.short(), limit,
                        "no room to defer a whole recording; keeping it without its body"
                    );
                    end = smaller;
                }
                Some(_) | None => {
                    tracing::error!(
                        id = %id.short(), limit,
                        "no room to defer the end of an attempt; dropping it, and the lease will \
                         expire"
                    );
                    return false;
                }
            }
        }
        let (bytes, until) = (end.bytes(), after(self.now(), end.retried_for()));
        let queued = QueuedEnd { deferrals: self.clone(), end: Arc::new(end), bytes, until };
        self.ledger.insert(&queued.end);
        self.observe_load();
        // Without a thread, or with one that has ended, dropping `queued` frees its bytes.
        if let Some(queue) = self.queue.get() {
            let _ = queue.send(queued);
        }
        true
    }

    fn observe_load(&self) {
        let Load { ends, bytes } = self.ledger.load();
        self.store.observe(|observer| observer.deferred(ends, bytes));
    }

    /// Why a claim of a record that has a deferred end is rejected; `None` if it has none, or if
    /// the store decides again.
    ///
    /// The end is sent to the store first. While the store fails, or does not respond
    /// [soon](PATIENCE), the outcome comes from memory: a response is replayed, since its first
    /// client has it already; a key that is to be held is held; and a key that may have another
    /// owner is in flight. It is never an error, since an application that runs unguarded while its
    /// store fails would run a handler again that is known to have run.
    pub(in crate::runtime) async fn claim(
        self: &Arc<Self>,
        id: &RecordId,
        digest: RequestDigest,
    ) -> Option<Rejection> {
        let end = self.ledger.find(id)?;
        if !self.options.fingerprint_keys.matches(end.claim.fingerprint, digest) {
            return Some(Rejection::Mismatch { recorded: end.claim.fingerprint });
        }
        if end.state() == EndState::Sending {
            return Some(self.read_sent(&end).await);
        }
        let error = match self.settle_soon(&end).await {
            Some(Ok(Fence::Passed)) => return end.rejection(),
            Some(Ok(Fence::Fenced)) => return None,
            Some(Err(error)) => Some(error),
            None => None,
        };
        let (id, error) = (id.short(), error.as_ref().map(tracing::field::display));
        if end.state().may_be_superseded() {
            tracing::warn!(
                %id, error,
                "the owner of a record is unknown while the store fails; reporting it in flight"
            );
            return Some(Rejection::IN_FLIGHT);
        }
        tracing::warn!(
            %id, error,
            "storing the end of an attempt failed again; a waiting claim gets the outcome from \
             memory"
        );
        end.rejection()
    }

    /// Sends an end to the store for a claim. Returns `None` if the store does not respond soon; a
    /// task then continues the call.
    async fn settle_soon(
        self: &Arc<Self>,
        end: &Arc<DeferredEnd>,
    ) -> Option<Result<Fence, StoreError>> {
        let (deferrals, end) = (self.clone(), end.clone());
        let sent = tokio::spawn(async move {
            let sent = deferrals.send_or_reclaim(&end).await;
            if sent.is_ok() {
                end.note(EndEvent::Settled);
                deferrals.ledger.remove(&end);
                deferrals.waiters.wake(&end.id);
            }
            sent
        });
        tokio::time::timeout(PATIENCE, sent).await.ok()?.ok()
    }

    /// The outcome of a claim while the attempt itself is sending its end. The store may have it
    /// already, so the record is read. It is not claimed, since a store that has lost the record
    /// would grant the claim.
    async fn read_sent(&self, end: &DeferredEnd) -> Rejection {
        let found = self.store.call("look up", |store| store.look_up(&end.id)).await.ok().flatten();
        let record = found.map(|found| found.record);
        let Some(record) = record.filter(|record| record.owner == end.claim.owner) else {
            return Rejection::IN_FLIGHT;
        };
        let reference = record.notes.reference;
        match record.state {
            RecordState::Completed(recording) => Rejection::Completed(recording),
            RecordState::Held => Rejection::Held { newly: false, reference },
            RecordState::InFlight => Rejection::InFlight { lease_left: Duration::ZERO, reference },
        }
    }

    /// Sends an end to the store, and [reclaims](Self::reclaim) its record if necessary.
    pub(super) async fn send_or_reclaim(&self, end: &DeferredEnd) -> Result<Fence, StoreError> {
        match self.send(end).await? {
            Fence::Passed => {
                // There is no record of a key that was given back.
                if end.rejection().is_some() {
                    Box::pin(self.store.append_history(&end.id, Kind::Deferred)).await;
                }
                Ok(Fence::Passed)
            }
            Fence::Fenced => {
                // Between this outcome and that of the reclaim the store may fail; the mark
                // prevents a replay of this response, since another attempt may own the key (case
                // `a_deferred_completion_that_is_found_fenced_is_not_replayed_from_memory`).
                let was_fenced = end.state() == EndState::Fenced;
                end.note(EndEvent::Fenced);
                let fence = self.reclaim(end).await?;
                // There is no claim to give back if it never took effect.
                if fence == Fence::Fenced && end.rejection().is_some() && !was_fenced {
                    self.store.observe(|observer| observer.fenced(FencedStep::End));
                }
                Ok(fence)
            }
        }
    }

    /// Sends an end again that was fenced because the store has lost its record: the record is
    /// claimed again first, with the same owner token. This is done only for an end that decides
    /// the outcome of later requests; without it the next of them would run.
    ///
    /// A record that is absent after it may have expired is not considered lost, since another
    /// attempt may have completed it before.
    ///
    /// Between the lookup and the claim another process may claim the record; the fence prevents
    /// the end from taking effect then (case `another_request_that_took_a_lost_key_keeps_it`).
    pub(in crate::runtime) async fn reclaim(&self, end: &DeferredEnd) -> Result<Fence, StoreError> {
        let worthwhile = end.rejection().is_some() && end.lasts > self.now();
        if !worthwhile
            || self.store.call("look up", |store| store.look_up(&end.id)).await?.is_some()
        {
            return Ok(Fence::Fenced);
        }
        tracing::warn!(
            id = %end.id.short(),
            "the store lost a claimed record, or an operator released it; claiming it again"
        );
        let sent = self.now();
        let outcome = self.store.call("claim", |store| store.claim(&end.id, &end.claim)).await?;
        match &outcome {
            ClaimOutcome::Granted { .. } => {
                end.note(EndEvent::GrantedAgain);
                // A renewal that found the record lost has removed its lease. It is removed again
                // below, or when the end is dropped.
                self.renewer.leases.restore_lost(end.lease(), end.claim.lease, sent);
            }
            ClaimOutcome::Rejected(rejection) => {
                self.store.observe_rejection(&end.id, &end.claim.operation, rejection);
            }
        }
        let fence = self.send(end).await?;
        self.renewer.leases.remove(&end.lease());
        Ok(fence)
    }

    async fn send(&self, end: &DeferredEnd) -> Result<Fence, StoreError> {
        let lease = end.lease();
        let fence =
            self.store.call(end.action.step(), |store| end.action.send(store, &lease)).await?;
        if let (Fence::Passed, Some(held)) = (fence, &end.held) {
            self.store.observe(|observer| observer.held(held));
        }
        Ok(fence)
    }
}
