//! A claim that was granted, until it is ended.

use std::{
    fmt,
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Instant,
};

use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, Fence},
    record_id::RecordId,
    recording::EncodedRecording,
    runtime::{
        Shared, Verdict,
        background::Step,
        deferred::{Announced, End},
        patience::{after, now, twice},
        renewal::Kept,
        within::Running,
    },
    store::Transaction,
};

mod commit;

/// The right to run an operation once. Its lease is renewed until it is ended.
///
/// An attempt that is dropped without an end is abandoned the hard way: nobody knows what it did, so its lease runs out as if the
/// process had died.
///
/// It may work in a [transaction](Self::transact), which is then committed together with its completion.
pub struct Attempt {
    /// Boxed, since it goes from future to future, and each of them has room for it, most of them twice.
    granted: Box<Granted>,
}

/// What an attempt has.
struct Granted {
    shared: Arc<Shared>,
    lease: Lease,
    claim: Claim,
    digest: RequestDigest,
    number: u32,
    /// When the claim was sent.
    since: Instant,
    stage: Stage,
    work: Work,
    /// There if the claim is part of the transaction: then there is no lease, and nothing to tell the store if nothing is committed.
    within: Option<Running>,
    /// Set while a completion waits for the store's response. Dropped only after an unfinished end has been deferred, so that claims of
    /// this process always find one of the two.
    announced: OnceLock<Announced>,
}

/// Where an attempt's effects are written.
enum Work {
    /// Where the store cannot see them.
    Anywhere,
    /// In a transaction.
    Here(Box<dyn Transaction>),
    /// In a transaction that the handler has.
    Lent,
}

enum Stage {
    Running,
    /// The store is being told. Dropped here, the attempt leaves the rest to the background.
    Ending(Step, Option<Kept>),
    Ended,
}

/// What the end of an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The store has it.
    Stored,
    /// The store failed. The attempt's response counts, and its completion is retried in the background for as long as its record would
    /// last, within the bounds of [`RuntimeOptions::deferred_bytes`](super::RuntimeOptions::deferred_bytes).
    Deferred,
    /// Someone else had taken over. The attempt's answer must not reach its client; this is what the client is told.
    Fenced(Verdict),
    /// The attempt's transaction was not committed, or nobody can say whether it was. Its answer must not reach its client, who may send
    /// the request again to know.
    NotCommitted {
        /// Whether that may go well next time.
        transient: bool,
    },
}

impl Attempt {
    /// The lease is kept alive already.
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Lease,
        claim: Claim,
        digest: RequestDigest,
        number: u32,
        since: Instant,
    ) -> Self {
        let (stage, work) = (Stage::Running, Work::Anywhere);
        let (within, announced) = (None, OnceLock::new());
        let granted = Granted { shared, lease, claim, digest, number, since, stage, work, within, announced };
        Self { granted: Box::new(granted) }
    }

    /// The claim is part of the transaction.
    pub(super) fn within(mut self, running: Running, transaction: Box<dyn Transaction>) -> Self {
        self.granted.work = Work::Here(transaction);
        self.granted.within = Some(running);
        self
    }

    /// The record that is claimed.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.granted.lease.id
    }

    /// 1 for the first attempt; from 2 on, an earlier one was abandoned.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.granted.number
    }

    /// Begins a transaction for the attempt's work, which is committed when the attempt [completes](Self::complete), and only then.
    ///
    /// # Errors
    /// When the store has no transactions, or fails. Nothing was done then: [release](Self::release) the attempt.
    pub async fn transact(&mut self) -> Result<(), StoreError> {
        self.granted.work = Work::Here(self.granted.shared.transaction().await?);
        Ok(())
    }

    /// Lends the transaction out, if there is one. Without having it [back](Self::take_back) the attempt cannot complete.
    pub fn lend(&mut self) -> Option<Box<dyn Transaction>> {
        match mem::replace(&mut self.granted.work, Work::Lent) {
            Work::Here(transaction) => Some(transaction),
            work @ (Work::Anywhere | Work::Lent) => {
                self.granted.work = work;
                None
            }
        }
    }

    /// Takes back what was lent.
    pub fn take_back(&mut self, transaction: Box<dyn Transaction>) {
        self.granted.work = Work::Here(transaction);
    }

    /// Ends with an answer that is kept, and with what the transaction has written.
    ///
    /// # Cancel safety
    /// If it is dropped once it was polled, the store is told in the background, as after a failure. With a transaction, nobody knows then
    /// whether it was committed; if it was not, the attempt is abandoned.
    pub async fn complete(mut self, recording: impl Into<EncodedRecording>) -> AttemptOutcome {
        let step = Step::Complete(recording.into().into());
        match mem::replace(&mut self.granted.work, Work::Anywhere) {
            Work::Anywhere => self.granted.end(step).await,
            // Apart, so that attempts without a transaction do not carry what those with one need.
            Work::Here(transaction) => Box::pin(self.granted.commit(transaction, step)).await,
            Work::Lent => Box::pin(self.granted.never_came_back()).await,
        }
    }

    /// Ends with an answer that is kept, while what the transaction has written is undone.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn complete_rolled_back(mut self, recording: impl Into<EncodedRecording>) -> AttemptOutcome {
        self.granted.end_without_effects(Step::Complete(recording.into().into())).await
    }

    /// Ends without a trace: nothing was done, the next request runs as the first. Where an earlier attempt was abandoned, what that
    /// one did is still unknown: its trace stays, and the next request takes over.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn release(mut self) -> AttemptOutcome {
        let step = if self.granted.number > 1 { Step::Abandon(Abandoned::Retry) } else { Step::Release };
        self.granted.end_without_effects(step).await
    }

    /// Ends without an outcome: the next request takes over at once, or the key is held. What the transaction has written is undone.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn abandon(mut self, policy: Abandoned) -> AttemptOutcome {
        self.granted.end_without_effects(Step::Abandon(policy)).await
    }
}

impl Granted {
    async fn end_without_effects(&mut self, step: Step) -> AttemptOutcome {
        match self.work {
            Work::Anywhere if self.within.is_none() => self.end(step).await,
            Work::Anywhere | Work::Here(_) | Work::Lent => Box::pin(self.end_undone(step)).await,
        }
    }

    async fn end(&mut self, step: Step) -> AttemptOutcome {
        // A renewal that meets the completion in the store would only wait for it.
        let kept = self.shared.renewal.remove(&self.lease);
        // A renewal that was fenced has taken it out before.
        let lost = kept.is_none();
        self.stage = Stage::Ending(step.clone(), kept);
        let told = if lost { self.tell_calmly(&step).await } else { self.tell_announced(&step).await };
        match told {
            // Boxed: keeps the caller's future small, since hardly an attempt is fenced.
            Ok(Fence::Fenced) => Box::pin(self.end_fenced(step)).await,
            Ok(fence) => {
                self.stage = Stage::Ended;
                self.announced.take();
                self.ended(fence).await
            }
            Err(_) if lost => {
                self.stage = Stage::Ended;
                self.shared.defer(self.ending(step).fenced());
                self.ended(Fence::Fenced).await
            }
            Err(error) => {
                self.log(&error);
                AttemptOutcome::Deferred // by its drop
            }
        }
    }

    /// Ends an attempt whose step was fenced: another attempt owns the record, or the store has lost it.
    async fn end_fenced(&mut self, step: Step) -> AttemptOutcome {
        let end = self.ending(step.clone());
        // Dropped here, the attempt may have been replaced: its response must not be replayed from memory.
        self.stage = Stage::Ending(step, None);
        let reclaimed = self.shared.reclaim(&end).await;
        self.stage = Stage::Ended;
        match reclaimed {
            Ok(fence) => {
                self.announced.take();
                self.ended(fence).await
            }
            // The background learns which of the two it is.
            Err(error) => {
                self.log(&error);
                if !self.shared.defer(end.fenced()) {
                    self.shared.renewal.remove(&self.lease);
                }
                AttemptOutcome::Fenced(Verdict::of_unread(&error))
            }
        }
    }

    fn ending(&self, step: Step) -> End {
        // The lease was renewed until now, even past the ttl.
        let lasts = after(self.since, self.claim.ttl).max(after(now(), self.claim.lease));
        End::new(self.lease.id, self.claim, self.number, step, lasts)
    }

    /// Sends the step to the store. Until the store responds, claims of this process report the key as in flight: a store that was
    /// restarted without the record would grant them, though the handler is done (case `a_finished_attempt_whose_end_is_under_way_is_not_run_again`).
    async fn tell_announced(&self, step: &Step) -> Result<Fence, StoreError> {
        let mut told = pin!(self.tell_calmly(step));
        poll_fn(|cx| {
            let told = told.as_mut().poll(cx);
            if told.is_pending() && self.announced.get().is_none() {
                // Only this attempt sets it.
                let _ = self.announced.set(self.shared.announce(self.ending(step.clone())));
            }
            told
        })
        .await
    }

    async fn tell_calmly(&self, step: &Step) -> Result<Fence, StoreError> {
        if matches!(step, Step::Abandon(_)) {
            // Between the abandonment and the next claim a renewal that is under way may revive the lease; waiting for its answer
            // prevents it (case `a_renewal_under_way_does_not_revive_what_is_abandoned`).
            self.shared.renewal.calm(&self.lease).await;
        }
        self.tell(step).await
    }

    /// A completion is told twice if need be: it is the one step that passes again for the owner whose step was taken before.
    async fn tell(&self, step: &Step) -> Result<Fence, StoreError> {
        let take = || self.shared.answer(step.take(&*self.shared.store, &self.lease));
        if matches!(step, Step::Complete(_)) { twice(take).await } else { take().await }
    }

    async fn ended(&self, fence: Fence) -> AttemptOutcome {
        match fence {
            Fence::Passed => {
                self.shared.waiting.wake(&self.lease.id);
                AttemptOutcome::Stored
            }
            Fence::Fenced => {
                tracing::warn!(id = %self.lease.id, "an attempt lost its key to another; its answer is not sent");
                AttemptOutcome::Fenced(Box::pin(self.shared.successor(&self.lease.id, self.digest)).await)
            }
        }
    }

    fn log(&self, error: &StoreError) {
        let cause = std::error::Error::source(error);
        tracing::warn!(id = %self.lease.id, %error, cause, "an attempt's end is told again in the background");
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        match mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Running => {
                self.shared.renewal.remove(&self.lease);
            }
            Stage::Ending(step, kept) => {
                // What is given up for the next one must not be kept alive: a renewal would revive it. What is to be held must be,
                // until the store has it, or the next one would run.
                // Without its place among the renewals, the attempt is known to be fenced.
                let fenced = kept.is_none();
                let kept = kept.filter(|_| matches!(step, Step::Complete(_) | Step::Abandon(Abandoned::Hold)));
                if let Some(kept) = kept {
                    self.shared.renewal.restore(self.lease, kept);
                }
                let end = self.ending(step);
                if !self.shared.defer(if fenced { end.fenced() } else { end }) {
                    self.shared.renewal.remove(&self.lease);
                }
            }
            Stage::Ended => {}
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("id", self.id()).field("number", &self.number()).finish_non_exhaustive()
    }
}
