//! The end of an attempt whose effects are in a transaction.

use std::{error::Error, mem, time::Duration};

use super::{AttemptOutcome, AttemptPhase, Effects, Inner};
use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Note},
    record::{Record, RecordState},
    runtime::{end_action::EndAction, timing::once_pending},
    store::{Transaction, TransactionClaim, commit_if_passed},
};

/// How long a claim waits for a transaction whose commit was not acknowledged.
const IN_DOUBT: Duration = Duration::from_secs(2);

/// The outcome of a commit that was not acknowledged.
enum CommitOutcome {
    Committed,
    /// The key is free for the next attempt.
    NotCommitted,
    /// Not committed as the action says, and the key is held.
    Held,
    /// Another attempt owns the key, or an operator has resolved it.
    Fenced,
}

impl Inner {
    /// Ends the claim as the transaction's last statement, and commits.
    pub(super) async fn commit(
        &mut self,
        transaction: Box<dyn Transaction>,
        action: EndAction,
    ) -> AttemptOutcome {
        let live = self.parts.renewer.leases.remove(&self.lease);
        if self.open.is_none() {
            // If this future is dropped, the transaction may be committed; the abandonment is
            // fenced then.
            self.phase = AttemptPhase::Ending(EndAction::Abandon(self.operation.abandoned()), live);
        }
        let note = self.operation.take_pending();
        let committed = Box::pin(commit_with(transaction, &self.lease, note, &action));
        let committed = self.parts.store.limit(committed);
        let error = match once_pending(committed, || self.keep_lease()).await {
            Ok(fence) => {
                self.set_ended();
                return self.outcome(fence).await;
            }
            Err(error) if error.is_escaped() => return self.hold_escaped().await,
            Err(error) => error,
        };
        tracing::warn!(
            id = %self.lease.id.short(), %error, cause = error.source(),
            "the outcome of a commit is unknown; reading it from the store"
        );
        let found = match self.open {
            None => self.resolve_with_lease().await,
            Some(_) => self.resolve_in_transaction(&action).await,
        };
        if found.is_ok() {
            self.set_ended();
        }
        match found {
            Ok(CommitOutcome::Committed) => self.outcome(Fence::Passed).await,
            Ok(CommitOutcome::Fenced) => self.outcome(Fence::Fenced).await,
            Ok(CommitOutcome::NotCommitted) => {
                self.parts.waiters.wake(&self.lease.id);
                AttemptOutcome::NotCommitted { transient: error.is_transient() }
            }
            Ok(CommitOutcome::Held) => self.held(),
            // Dropping `self` gives a lease up in the background.
            Err(unknown) => {
                self.log_failure(&unknown);
                AttemptOutcome::NotCommitted { transient: true }
            }
        }
    }

    /// Ends the attempt, and rolls back what its transaction has written.
    pub(super) async fn end_rolled_back(&mut self, action: EndAction) -> AttemptOutcome {
        let mut effects = mem::replace(&mut self.effects, Effects::Elsewhere);
        if let Effects::In(transaction) = &mut effects
            && transaction.has_escaped().await
        {
            if let Effects::In(transaction) = effects {
                self.parts.store.roll_back(transaction).await;
            }
            return self.hold_escaped().await;
        }
        if self.open.is_none() {
            if let Effects::In(transaction) = effects {
                self.parts.store.roll_back(transaction).await;
            }
            return self.end(action).await;
        }
        let Effects::In(mut transaction) = effects else {
            return self.end_without_transaction().await;
        };
        if let EndAction::Release | EndAction::GiveBack | EndAction::Abandon(Abandoned::Retry) =
            action
        {
            // The claim is rolled back with the effects, unless the handler has committed both.
            if !self.parts.store.roll_back(transaction).await {
                return self.end_in_doubt();
            }
            if self.hold_after_rollback().await {
                return self.held();
            }
            return self.outcome(Fence::Passed).await;
        }
        match self.parts.store.limit(transaction.undo()).await {
            Ok(()) => self.commit(transaction, action).await,
            Err(error) => {
                tracing::warn!(
                    id = %self.lease.id.short(), %error, cause = error.source(),
                    "undoing the effects of an attempt failed; rolling back its transaction"
                );
                if !self.parts.store.roll_back(transaction).await {
                    return self.end_in_doubt();
                }
                if self.hold_after_rollback().await {
                    return self.held();
                }
                let transient = error.is_transient();
                AttemptOutcome::NotCommitted { transient }
            }
        }
    }

    /// Ends an attempt whose handler has ended its transaction itself. What it has written since
    /// may be committed, so that the key must not be free.
    async fn hold_escaped(&mut self) -> AttemptOutcome {
        let held = match self.open {
            None => self.hold_lease().await,
            Some(_) => self.hold_in_new_transaction().await,
        };
        let id = self.lease.id;
        // What fails is repeated in the background.
        let is_held = !matches!(held, Ok(Fence::Fenced));
        match held {
            Ok(Fence::Passed) => tracing::error!(
                %id,
                "a handler ended its transaction itself, and what it has written since may be \
                 committed; its key is held"
            ),
            Ok(Fence::Fenced) => tracing::error!(
                %id,
                "a handler ended its transaction itself, and what it has written since may be \
                 committed; another attempt has its key"
            ),
            // Dropping `self` holds a lease.
            Err(error) if self.open.is_none() => self.log_failure(&error),
            Err(error) => {
                tracing::error!(
                    %id, %error, cause = error.source(),
                    "a handler ended its transaction itself, and what it has written since may be \
                     committed; holding its key failed, and is retried in the background"
                );
                let hold = EndAction::HoldAgain(Box::new(self.claim.clone()));
                self.parts.deferrals.defer(self.deferred(hold));
            }
        }
        if is_held {
            return self.held();
        }
        self.parts.waiters.wake(&id);
        AttemptOutcome::NotCommitted { transient: false }
    }

    /// The outcome of an attempt whose key is held.
    fn held(&self) -> AttemptOutcome {
        self.parts.waiters.wake(&self.lease.id);
        AttemptOutcome::Held
    }

    async fn hold_lease(&mut self) -> Result<Fence, StoreError> {
        let live = match mem::replace(&mut self.phase, AttemptPhase::Ended) {
            AttemptPhase::Ending(_, live) => live,
            AttemptPhase::Running | AttemptPhase::Ended => {
                self.parts.renewer.leases.remove(&self.lease)
            }
        };
        let hold = EndAction::Abandon(Abandoned::Hold);
        self.phase = AttemptPhase::Ending(hold.clone(), live);
        let fence = self.send_after_renewals(&hold).await?;
        self.phase = AttemptPhase::Ended;
        Ok(fence)
    }

    /// The claim has ended with its transaction, so the key is claimed again, and held.
    async fn hold_in_new_transaction(&mut self) -> Result<Fence, StoreError> {
        self.phase = AttemptPhase::Ended;
        let store = &self.parts.store;
        let claimed = store.transactions()?.claim(&self.lease.id, &self.claim, IN_DOUBT);
        let TransactionClaim::Granted { mut transaction, .. } = store.limit(claimed).await? else {
            return Ok(Fence::Fenced);
        };
        let held = store.limit(transaction.abandon(&self.lease, Abandoned::Hold)).await;
        store.limit(Box::pin(commit_if_passed(transaction, held))).await
    }

    /// Ends an attempt whose transaction has not ended yet. A handler that was dropped in the
    /// middle of its own `COMMIT` has committed its effects with its claim; the background holds
    /// the key as soon as it finds the claim.
    fn end_in_doubt(&self) -> AttemptOutcome {
        tracing::warn!(
            id = %self.lease.id.short(),
            "the outcome of a transaction is unknown; the key will be held if the handler \
             committed it"
        );
        let Ok(owner) = self.parts.store.draw_owner() else {
            return AttemptOutcome::NotCommitted { transient: true };
        };
        let probe = Box::new(self.claim.with_owner(owner));
        self.parts.deferrals.defer(self.deferred(EndAction::HoldIfCommitted(probe)));
        AttemptOutcome::Deferred
    }

    /// Ends an attempt whose handler has kept the transaction, which can then only be rolled back.
    pub(super) async fn end_without_transaction(&mut self) -> AttemptOutcome {
        tracing::error!(
            id = %self.lease.id.short(),
            "a handler responded but kept its transaction, which is rolled back; drop `Tx` before \
             the handler returns"
        );
        let is_held = if self.open.is_none() {
            let policy = self.operation.abandoned();
            let ended = self.end(EndAction::Abandon(policy)).await;
            policy == Abandoned::Hold && !matches!(ended, AttemptOutcome::Fenced(_))
        } else {
            self.hold_after_rollback().await
        };
        if is_held { self.held() } else { AttemptOutcome::NotCommitted { transient: false } }
    }

    /// Between the loss of the acknowledgment and this call the server may still commit; the
    /// abandonment waits for the lock on the record and is fenced if the commit succeeded (case
    /// `a_commit_without_its_acknowledgment_is_settled`).
    async fn resolve_with_lease(&self) -> Result<CommitOutcome, StoreError> {
        let abandon = EndAction::Abandon(self.operation.abandoned());
        if !abandon.keeps_lease() {
            self.parts.renewer.leases.remove(&self.lease);
        }
        match self.send_after_renewals(&abandon).await? {
            Fence::Passed if abandon.keeps_lease() => Ok(CommitOutcome::Held),
            Fence::Passed => Ok(CommitOutcome::NotCommitted),
            Fence::Fenced => self.read_commit(is_completed).await,
        }
    }

    /// A claim in another transaction waits for the one in doubt. If that claim is granted, the
    /// transaction in doubt was not committed.
    async fn resolve_in_transaction(
        &self,
        action: &EndAction,
    ) -> Result<CommitOutcome, StoreError> {
        let store = &self.parts.store;
        let probe = self.claim.with_owner(store.draw_owner()?);
        let claimed = store.transactions()?.claim(&self.lease.id, &probe, IN_DOUBT);
        match store.limit(claimed).await? {
            TransactionClaim::Granted { transaction, .. } => {
                store.roll_back(transaction).await;
                let held = self.hold_if_committed().await?;
                Ok(if held { CommitOutcome::Held } else { CommitOutcome::NotCommitted })
            }
            TransactionClaim::Rejected(ClaimOutcome::InFlight { .. }) => {
                self.resolve_in_flight(action).await
            }
            // The handler has committed its claim, whose lease has expired since.
            TransactionClaim::Rejected(ClaimOutcome::Held { newly: true, .. }) => {
                Ok(CommitOutcome::Held)
            }
            TransactionClaim::Rejected(_) => self.read_action(action).await,
        }
    }

    /// The key is in flight: by another attempt, or by this one, whose claim the handler has
    /// committed without its completion.
    async fn resolve_in_flight(&self, action: &EndAction) -> Result<CommitOutcome, StoreError> {
        if self.hold_if_committed().await? {
            return Ok(CommitOutcome::Held);
        }
        // Between the probe and the lookup the server may finish the commit in doubt; reading the
        // record again finds its outcome.
        self.read_action(action).await
    }

    /// Holds the key if the handler has committed this attempt's claim, and with it everything that
    /// it had written until then. Returns whether the key was held.
    async fn hold_if_committed(&self) -> Result<bool, StoreError> {
        let store = &self.parts.store;
        let found = store.call(|store| store.look_up(&self.lease.id)).await?;
        let is_ours = |record: &Record| {
            record.owner == self.lease.owner && record.state == RecordState::InFlight
        };
        if !found.is_some_and(|found| is_ours(&found.record)) {
            return Ok(false);
        }
        let fence = store.call(|store| store.abandon(&self.lease, Abandoned::Hold)).await?;
        let held = fence == Fence::Passed;
        if held {
            tracing::error!(
                id = %self.lease.id.short(),
                "a handler committed its transaction itself; its key is held"
            );
        }
        Ok(held)
    }

    /// Holds the key if the handler has committed its claim before the transaction was rolled back.
    /// Returns whether the key was held.
    async fn hold_after_rollback(&self) -> bool {
        self.hold_if_committed().await.unwrap_or_else(|error| {
            let (id, cause) = (self.lease.id, error.source());
            tracing::warn!(
                id = %id.short(), %error, cause,
                "verifying that a claim was rolled back failed; its key is not held"
            );
            false
        })
    }

    /// Reads whether this attempt's transaction was committed with the action as its end.
    async fn read_action(&self, action: &EndAction) -> Result<CommitOutcome, StoreError> {
        let completes = action.is_completion();
        self.read_commit(|state| is_completed(state) == completes).await
    }

    async fn read_commit(
        &self,
        is_ours: impl Fn(&RecordState) -> bool,
    ) -> Result<CommitOutcome, StoreError> {
        let found = self.parts.store.call(|store| store.look_up(&self.lease.id)).await?;
        let ours = found.is_some_and(|found| {
            found.record.owner == self.lease.owner && is_ours(&found.record.state)
        });
        Ok(if ours { CommitOutcome::Committed } else { CommitOutcome::Fenced })
    }
}

fn is_completed(state: &RecordState) -> bool {
    matches!(state, RecordState::Completed(_))
}

/// Adds the pending note, ends the claim as the transaction's last statement, and commits. If the
/// end is fenced, the transaction is rolled back.
async fn commit_with(
    mut transaction: Box<dyn Transaction>,
    lease: &Lease,
    note: Option<Note>,
    action: &EndAction,
) -> Result<Fence, StoreError> {
    if let Some(note) = note {
        let noted = transaction.note(lease, &note).await;
        if !matches!(noted, Ok(Fence::Passed)) {
            transaction.roll_back().await;
            return noted;
        }
    }
    let fence = match action {
        EndAction::Complete(recording) => {
            return transaction.complete_and_commit(lease, recording.as_bytes()).await;
        }
        EndAction::Abandon(policy) => transaction.abandon(lease, *policy).await,
        EndAction::Release
        | EndAction::GiveBack
        | EndAction::HoldIfCommitted(_)
        | EndAction::HoldAgain(_) => Ok(Fence::Fenced),
    };
    commit_if_passed(transaction, fence).await
}
