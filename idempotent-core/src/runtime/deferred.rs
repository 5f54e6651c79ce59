//! Ends of attempts that the store has not taken yet.
//!
//! Until the background or another request with the key brings one to the store, it exists in this process only. So it is this
//! process that must not run the operation again in the meantime, and that must not keep more of them than its memory allows.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record::RecordState,
    record_id::RecordId,
    recording::{RecordedBody, Recording},
    runtime::{Shared, background::Step, patience::now},
};

/// What an end takes beside the bytes of its recording: itself, its task, and its places in the maps.
const OVERHEAD: usize = 1024;
/// How many ends may be deferred before claims of unknown outcome are left to expire by themselves.
const MOST_RELEASES: usize = 256;

/// An end of an attempt that the store has not taken.
pub(super) struct End {
    id: RecordId,
    /// The claim that it ends; the attempt's owner token is in it.
    pub(super) claim: Claim,
    pub(super) step: Step,
    /// The number of the attempt; 0 where none began.
    attempt: u32,
    /// The record cannot have expired before this time.
    lasts: Instant,
    /// Whether the store has said that the record does not carry the attempt's token: another attempt may own it.
    fenced: bool,
    /// Whether its own attempt is sending it to the store at present, so that no other request sends it.
    under_way: bool,
    /// Set once another request with the key has brought it to the store, or has found that another attempt owns the record.
    settled: AtomicBool,
}

impl End {
    pub(super) fn new(id: RecordId, claim: Claim, attempt: u32, step: Step, lasts: Instant) -> Self {
        Self { id, claim, step, attempt, lasts, fenced: false, under_way: false, settled: AtomicBool::new(false) }
    }

    /// The end of an attempt that is known to be fenced. Its response must not be replayed from memory.
    pub(super) fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(super) fn lease(&self) -> Lease {
        Lease { id: self.id, owner: self.claim.owner }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    /// What later requests get, if that is decided by this end.
    fn outcome(&self) -> Option<ClaimOutcome> {
        match &self.step {
            Step::Complete(recording) => Some(ClaimOutcome::Completed(recording.clone())),
            Step::Abandon(Abandoned::Hold) => Some(ClaimOutcome::Held { newly: false }),
            Step::Abandon(Abandoned::Retry) | Step::Release | Step::GiveBack | Step::HoldIfCommitted(_) => None,
        }
    }

    /// How long it makes sense to bring it to the store. What decides the outcome of later requests is worth it for as long as the record
    /// would be kept: the owner token is what fences it, and while the store fails, no other process can take the key over either.
    /// What gives a key back is worth it for a lease, after which the key is free by itself.
    pub(super) fn retried_for(&self) -> Duration {
        let decides = self.outcome().is_some() || matches!(self.step, Step::HoldIfCommitted(_));
        if decides { self.claim.ttl.max(self.claim.lease) } else { self.claim.lease }
    }

    fn bytes(&self) -> usize {
        let recording = if let Step::Complete(recording) = &self.step { recording.len() } else { 0 };
        recording.saturating_add(OVERHEAD)
    }

    /// The same with status and headers only.
    fn without_body(&self) -> Option<Self> {
        let Step::Complete(recording) = &self.step else { return None };
        let recording = Recording { body: RecordedBody::Omitted, ..Recording::decode(recording).ok()? };
        let smaller = Self::new(self.id, self.claim, self.attempt, Step::Complete(recording.encode()), self.lasts);
        Some(Self { fenced: self.fenced, ..smaller })
    }
}

/// The deferred ends of a runtime.
#[derive(Default)]
pub(super) struct Deferrals {
    /// Those that decide what later requests get.
    decided: Mutex<HashMap<RecordId, Arc<End>>>,
    /// How many those are; spares each claim the look under the lock.
    count: AtomicUsize,
    load: watch::Sender<Load>,
}

/// How many ends are deferred, of all kinds, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) ends: usize,
    pub(super) bytes: usize,
}

impl Deferrals {
    pub(super) fn load(&self) -> Load {
        *self.load.borrow()
    }

    /// Returns when none is left.
    pub(super) async fn settled(&self) {
        // The sender lives as long as this, so waiting cannot fail.
        let _ = self.load.subscribe().wait_for(|load| load.ends == 0).await;
    }

    /// Counts an end, unless that would take more than `limit` bytes in all.
    fn reserve(&self, bytes: usize, limit: usize) -> bool {
        self.load.send_if_modified(|load| {
            let fits = load.bytes.saturating_add(bytes) <= limit;
            if fits {
                *load = Load { ends: load.ends + 1, bytes: load.bytes + bytes };
            }
            fits
        })
    }

    fn insert(&self, end: &Arc<End>) {
        if end.outcome().is_none() {
            return;
        }
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two attempts of this process at one record, the later has fenced off the earlier. The background alone brings the earlier
        // one to the store (case `of_two_attempts_that_are_deferred_the_later_one_counts`).
        let rank = |end: &End| (!end.fenced, end.attempt);
        if decided.get(&end.id).is_none_or(|other| rank(other) <= rank(end)) {
            decided.insert(end.id, end.clone());
            self.count.store(decided.len(), Ordering::SeqCst);
        }
    }

    fn remove(&self, end: &Arc<End>) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(entry) = decided.entry(end.id)
            && Arc::ptr_eq(entry.get(), end)
        {
            entry.remove();
            self.count.store(decided.len(), Ordering::SeqCst);
        }
    }

    /// Whether no claim can meet a deferred end.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    fn find(&self, id: &RecordId) -> Option<Arc<End>> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

/// The account of a deferred end. It is settled when this is dropped, whether the step was taken, given up, or lost to a panic.
///
/// It keeps the runtime alive: an application that drops its own handle still has its responses stored.
pub(super) struct Pending {
    pub(super) shared: Arc<Shared>,
    pub(super) end: Arc<End>,
    bytes: usize,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let deferrals = &self.shared.deferrals;
        deferrals.remove(&self.end);
        self.shared.renewal.remove(&self.end.lease());
        self.shared.waiting.wake(&self.end.id);
        let freed = self.bytes;
        deferrals.load.send_modify(|load| *load = Load { ends: load.ends - 1, bytes: load.bytes - freed });
    }
}

/// An end that is being sent to the store. Claims of this process see it until this is dropped.
pub(super) struct Announced {
    shared: Arc<Shared>,
    end: Arc<End>,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.shared.deferrals.remove(&self.end);
        self.shared.waiting.wake(&self.end.id);
    }
}

impl Shared {
    /// Makes an end that is being sent to the store known to claims of this process.
    pub(super) fn announce(self: &Arc<Self>, end: End) -> Announced {
        let end = Arc::new(End { under_way: true, ..end });
        self.deferrals.insert(&end);
        Announced { shared: self.clone(), end }
    }

    /// Gives back, in the background, a claim that may or may not have taken effect.
    pub(super) fn give_back(self: &Arc<Self>, id: RecordId, claim: Claim) {
        if self.deferrals.load().ends < MOST_RELEASES {
            self.defer(End::new(id, claim, 0, Step::GiveBack, now()));
        }
    }

    /// Hands an end to the background, which retries it for as long as [`End::retried_for`] says. Where there is no room for a
    /// response's body, its status and headers are kept; where there is none for these, the end is dropped and the lease expires.
    /// Returns whether it was kept.
    pub(super) fn defer(self: &Arc<Self>, end: End) -> bool {
        let limit = self.options.deferred_bytes;
        let id = end.id;
        let mut kept = end;
        if !self.deferrals.reserve(kept.bytes(), limit) {
            match kept.without_body() {
                Some(smaller) if self.deferrals.reserve(smaller.bytes(), limit) => {
                    tracing::warn!(%id, limit, "no room to defer a response's body; its status and headers are kept");
                    kept = smaller;
                }
                Some(_) | None => {
                    tracing::error!(%id, limit, "no room to defer the end of an attempt; it is dropped, and its lease expires");
                    return false;
                }
            }
        }
        let bytes = kept.bytes();
        let pending = Pending { shared: self.clone(), end: Arc::new(kept), bytes };
        self.deferrals.insert(&pending.end);
        // Without a thread, or with one that has ended, the drop of `pending` settles its account.
        self.background.settle(pending, now());
        true
    }

    /// What a deferred end makes of a claim of its record; `None` where there is no such end, or where the store decides again.
    ///
    /// The end is brought to the store first. While the store fails, the outcome comes from memory: a response is replayed, since its
    /// first client has it already; a key that is to be held is held; and a key whose attempt may have been replaced is in flight. It
    /// is never an error: an application that runs unguarded while its store fails would run a handler again that is known to have run.
    pub(super) async fn claim_deferred(&self, id: &RecordId, digest: RequestDigest) -> Option<ClaimOutcome> {
        let end = self.deferrals.find(id)?;
        if !self.is_same(end.claim.fingerprint, digest) {
            return Some(ClaimOutcome::Mismatch { recorded: end.claim.fingerprint });
        }
        if end.under_way {
            return Some(self.read_under_way(&end).await);
        }
        match self.take_or_reclaim(&end).await {
            Ok(fence) => {
                end.settled.store(true, Ordering::SeqCst);
                self.deferrals.remove(&end);
                self.waiting.wake(id);
                if fence == Fence::Passed { end.outcome() } else { None }
            }
            Err(error) if end.fenced => {
                tracing::warn!(%id, %error, "the store failed, so the owner of a record is unknown; the key is reported as in flight");
                Some(ClaimOutcome::InFlight { lease_left: Duration::ZERO })
            }
            Err(error) => {
                tracing::warn!(%id, %error, "the store has not taken the end of an attempt; a claim gets its outcome from memory");
                end.outcome()
            }
        }
    }

    /// The outcome of a claim while the attempt itself is sending its end. The store may have taken it already, so the record is read. It
    /// is not claimed: a store that has lost the record would grant it.
    async fn read_under_way(&self, end: &End) -> ClaimOutcome {
        let found = self.answer(self.store.look_up(&end.id)).await.ok().flatten().map(|found| found.record);
        match found.filter(|record| record.owner == end.claim.owner).map(|record| record.state) {
            Some(RecordState::Completed(recording)) => ClaimOutcome::Completed(recording),
            Some(RecordState::Held) => ClaimOutcome::Held { newly: false },
            Some(RecordState::InFlight) | None => ClaimOutcome::InFlight { lease_left: Duration::ZERO },
        }
    }

    /// Takes a step, and [reclaims](Self::reclaim) its record if need be.
    pub(super) async fn take_or_reclaim(&self, end: &End) -> Result<Fence, StoreError> {
        match self.take(end).await? {
            Fence::Passed => Ok(Fence::Passed),
            Fence::Fenced => self.reclaim(end).await,
        }
    }

    /// Takes a step that was fenced, if it was so because the store has lost the record: the record is claimed again first, under the
    /// same token. Only a step that decides what later requests get is worth that; without it the next of them would run.
    ///
    /// A record that is absent after it may have expired does not count as lost: another attempt may have completed it before.
    ///
    /// Between the look and the claim another process may claim the record; the step is then fenced as ever (case
    /// `another_request_that_took_a_lost_key_keeps_it`).
    pub(super) async fn reclaim(&self, end: &End) -> Result<Fence, StoreError> {
        if end.outcome().is_none() || end.lasts <= now() || self.answer(self.store.look_up(&end.id)).await?.is_some() {
            return Ok(Fence::Fenced);
        }
        tracing::warn!(id = %end.id, "a claimed record was lost, or released by an operator; claiming it again for its outcome");
        let sent = now();
        if let ClaimOutcome::Granted { .. } = self.answer(self.store.claim(&end.id, &end.claim)).await? {
            // A renewal that found the record lost has removed its lease. It is removed again below, or when the end is dropped.
            self.renewal.restore_lost(end.lease(), end.claim.lease, sent);
        }
        let fence = self.take(end).await?;
        self.renewal.remove(&end.lease());
        Ok(fence)
    }

    async fn take(&self, end: &End) -> Result<Fence, StoreError> {
        self.answer(end.step.take(&*self.store, &end.lease())).await
    }
}
