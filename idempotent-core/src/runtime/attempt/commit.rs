//! The end of an attempt whose effects are in a transaction.

use std::{mem, time::Duration};

use super::{AttemptOutcome, Granted, Stage, Work};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record::{Record, RecordState},
    runtime::{Shared, background::Step, claiming::draw},
    store::{Transaction, TransactionClaim, commit_what},
};

/// How long a transaction whose commit was not acknowledged is waited for.
const IN_DOUBT: Duration = Duration::from_secs(2);

/// What became of a commit that was not acknowledged.
enum Settled {
    Committed,
    /// And the key is free for the next attempt, or held.
    NotCommitted,
    /// The key is another attempt's, or was resolved by an operator.
    Fenced,
}

impl Granted {
    /// Ends the claim as the transaction's last statement, and commits.
    pub(super) async fn commit(&mut self, transaction: Box<dyn Transaction>, step: Step) -> AttemptOutcome {
        // A renewal that meets the completion in the store would only wait for it.
        let kept = self.shared.renewal.remove(&self.lease);
        if self.within.is_none() {
            // Dropped here, it may or may not be committed; if it is, the abandonment is refused.
            self.stage = Stage::Ending(Step::Abandon(self.claim.abandoned), kept);
        }
        let error = match self.shared.answer(Box::pin(commit_with(transaction, &self.lease, &step))).await {
            Ok(fence) => {
                self.stage = Stage::Ended;
                return self.ended(fence).await;
            }
            Err(error) => error,
        };
        self.log(&error);
        let settled = match self.within {
            None => self.settle_leased().await,
            Some(_) => self.settle_within(&step).await,
        };
        if settled.is_ok() {
            self.stage = Stage::Ended;
        }
        match settled {
            Ok(Settled::Committed) => self.ended(Fence::Passed).await,
            Ok(Settled::Fenced) => self.ended(Fence::Fenced).await,
            Ok(Settled::NotCommitted) => {
                self.shared.waiting.wake(&self.lease.id);
                AttemptOutcome::NotCommitted { transient: error.is_transient() }
            }
            // A lease is given up by the drop, in the background.
            Err(unsettled) => {
                self.log(&unsettled);
                AttemptOutcome::NotCommitted { transient: true }
            }
        }
    }

    /// Ends with nothing of what was written.
    pub(super) async fn end_undone(&mut self, step: Step) -> AttemptOutcome {
        let work = mem::replace(&mut self.work, Work::Anywhere);
        if self.within.is_none() {
            if let Work::Here(transaction) = work {
                self.shared.roll_back(transaction).await;
            }
            return self.end(step).await;
        }
        let Work::Here(mut transaction) = work else { return self.never_came_back().await };
        if let Step::Release | Step::GiveBack | Step::Abandon(Abandoned::Retry) = step {
            // The claim is rolled back with the effects, unless the handler has committed both.
            if !self.shared.roll_back(transaction).await {
                return self.end_in_doubt();
            }
            if self.hold_after_rollback().await {
                return AttemptOutcome::NotCommitted { transient: false };
            }
            return self.ended(Fence::Passed).await;
        }
        match self.shared.answer(transaction.undo()).await {
            Ok(()) => self.commit(transaction, step).await,
            Err(error) => {
                self.log(&error);
                if !self.shared.roll_back(transaction).await {
                    return self.end_in_doubt();
                }
                let held = self.hold_after_rollback().await;
                AttemptOutcome::NotCommitted { transient: error.is_transient() && !held }
            }
        }
    }

    /// The transaction has not ended yet. A handler that was dropped in the middle of a `COMMIT` of its own has then committed its effects
    /// with its claim, so the background holds the key as soon as it finds the claim.
    fn end_in_doubt(&self) -> AttemptOutcome {
        tracing::warn!(id = %self.lease.id, "the end of a transaction is unknown; if its handler has committed it, its key will be held");
        let Ok(owner) = draw() else { return AttemptOutcome::NotCommitted { transient: true } };
        let probe = Claim { owner, ..self.claim };
        self.shared.defer(self.ending(Step::HoldIfCommitted(Box::new(probe))));
        AttemptOutcome::Deferred
    }

    /// The handler has kept the transaction, which can then only be rolled back.
    pub(super) async fn never_came_back(&mut self) -> AttemptOutcome {
        tracing::error!(id = %self.lease.id, "a handler has answered and kept its transaction; its `Tx` is to be dropped before");
        if self.within.is_none() {
            let policy = self.claim.abandoned;
            self.end(Step::Abandon(policy)).await;
        } else {
            self.hold_after_rollback().await;
        }
        AttemptOutcome::NotCommitted { transient: false }
    }

    /// Between the loss of the acknowledgement and now the server may still be at the commit. The abandonment waits for its lock on the
    /// record, and is refused if it was committed (case `a_commit_without_its_acknowledgement_is_settled`).
    async fn settle_leased(&self) -> Result<Settled, StoreError> {
        match self.tell_calmly(&Step::Abandon(self.claim.abandoned)).await? {
            Fence::Passed => Ok(Settled::NotCommitted),
            Fence::Fenced => self.read_settled(|state| matches!(state, RecordState::Completed(_))).await,
        }
    }

    /// A claim in another transaction waits for the one in doubt. If the probe is granted, that transaction was not committed, or the
    /// handler has committed its claim and the lease has expired since.
    async fn settle_within(&self, step: &Step) -> Result<Settled, StoreError> {
        let probe = Claim { owner: draw()?, ..self.claim };
        let claimed = self.shared.transactions()?.claim(&self.lease.id, &probe, IN_DOUBT);
        match self.shared.answer(claimed).await? {
            TransactionClaim::Granted { transaction, .. } => {
                self.shared.roll_back(transaction).await;
                self.hold_committed().await?;
                Ok(Settled::NotCommitted)
            }
            TransactionClaim::Rejected(ClaimOutcome::InFlight { .. }) => self.settle_claimed(step).await,
            TransactionClaim::Rejected(_) => self.read_step(step).await,
        }
    }

    /// The key is in flight: by another attempt, or by this one, whose claim the handler has committed without its completion.
    async fn settle_claimed(&self, step: &Step) -> Result<Settled, StoreError> {
        if self.hold_committed().await? {
            return Ok(Settled::NotCommitted);
        }
        // Between the probe and the look the server may finish the commit in doubt; reading the record again finds its outcome.
        self.read_step(step).await
    }

    /// Holds the key if the handler has committed this attempt's claim: whatever the handler had written until then is committed too.
    /// Returns whether the key was held.
    async fn hold_committed(&self) -> Result<bool, StoreError> {
        let found = self.shared.answer(self.shared.store.look_up(&self.lease.id)).await?;
        let is_ours = |record: &Record| record.owner == self.lease.owner && record.state == RecordState::InFlight;
        if !found.is_some_and(|found| is_ours(&found.record)) {
            return Ok(false);
        }
        let held = self.shared.answer(self.shared.store.abandon(&self.lease, Abandoned::Hold)).await? == Fence::Passed;
        if held {
            tracing::error!(id = %self.lease.id, "a handler has committed its transaction itself; its key is held");
        }
        Ok(held)
    }

    /// Holds the key if the handler has committed its claim before the transaction was rolled back. Returns whether the key was held.
    async fn hold_after_rollback(&self) -> bool {
        self.hold_committed().await.unwrap_or_else(|error| {
            let cause = std::error::Error::source(&error);
            tracing::warn!(id = %self.lease.id, %error, cause, "verifying that a claim was rolled back failed; it is not held");
            false
        })
    }

    /// Whether the record shows that this attempt's transaction was committed with the step as its end.
    async fn read_step(&self, step: &Step) -> Result<Settled, StoreError> {
        let completes = matches!(step, Step::Complete(_));
        self.read_settled(|state| matches!(state, RecordState::Completed(_)) == completes).await
    }

    async fn read_settled(&self, is_ours: impl Fn(&RecordState) -> bool) -> Result<Settled, StoreError> {
        let found = self.shared.answer(self.shared.store.look_up(&self.lease.id)).await?;
        let ours = found.is_some_and(|found| found.record.owner == self.lease.owner && is_ours(&found.record.state));
        Ok(if ours { Settled::Committed } else { Settled::Fenced })
    }
}

impl Shared {
    /// Returns whether the transaction has ended. Where that takes too long, the connection is closed, which ends it later.
    async fn roll_back(&self, transaction: Box<dyn Transaction>) -> bool {
        let rolled_back = Box::pin(async { Ok(transaction.roll_back().await) });
        self.answer(rolled_back).await.unwrap_or(false)
    }
}

/// Ends the claim as the transaction's last statement, and commits. What is fenced is rolled back.
async fn commit_with(mut transaction: Box<dyn Transaction>, lease: &Lease, step: &Step) -> Result<Fence, StoreError> {
    let passed = match step {
        Step::Complete(recording) => return transaction.complete_and_commit(lease, recording).await,
        Step::Abandon(policy) => transaction.abandon(lease, *policy).await,
        Step::Release | Step::GiveBack | Step::HoldIfCommitted(_) => Ok(Fence::Fenced),
    };
    commit_what(transaction, passed).await
}
