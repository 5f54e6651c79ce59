//! An attempt whose claim is part of its transaction.

use std::{error::Error, time::Duration};

use super::{
    attempt_outcome::AttemptOutcome,
    claimed::{Claimed, CommitOutcome, Effects, is_completed},
};
use crate::{
    error::StoreError,
    policy::Abandoned,
    protocol::{Fence, Rejection},
    record::RecordState,
    runtime::{end_action::EndAction, open_claims::OpenClaim},
    store::{Transaction, TransactionClaim, commit_if_passed},
};

/// How long a claim waits for a transaction whose commit was not acknowledged.
const IN_DOUBT: Duration = Duration::from_secs(2);

/// An attempt whose claim is part of its transaction. It has no lease, and the store knows nothing
/// of it until the transaction is committed.
pub(super) struct TransactionalAttempt {
    pub(super) claimed: Claimed,
    /// Lets claims of this process find the key until the attempt has ended.
    _open: OpenClaim,
}

impl TransactionalAttempt {
    pub(super) fn new(
        mut claimed: Claimed,
        open: OpenClaim,
        transaction: Box<dyn Transaction>,
    ) -> Self {
        claimed.begun(transaction);
        Self { claimed, _open: open }
    }

    /// Ends the attempt. Its effects are committed if `commits`, and rolled back otherwise.
    pub(super) async fn end(&mut self, action: EndAction, commits: bool) -> AttemptOutcome {
        let Effects::In(mut transaction) = self.claimed.take_effects() else {
            return self.end_without_transaction().await;
        };
        if commits {
            return self.commit(transaction, action).await;
        }
        if transaction.has_escaped().await {
            self.claimed.parts.store.roll_back(transaction).await;
            return self.hold_escaped().await;
        }
        if let EndAction::Release | EndAction::GiveBack | EndAction::Abandon(Abandoned::Retry) =
            action
        {
            // The claim is rolled back with the effects, unless the handler has committed both.
            return match self.roll_back(transaction).await {
                Ok(()) => self.claimed.outcome(Fence::Passed).await,
                Err(outcome) => outcome,
            };
        }
        match self.claimed.parts.store.limit("undo", transaction.undo()).await {
            Ok(()) => self.commit(transaction, action).await,
            Err(error) => {
                tracing::warn!(
                    id = %self.claimed.lease.id.short(), %error, cause = error.source(),
                    "undoing the effects of an attempt failed; rolling back its transaction"
                );
                let transient = error.is_transient();
                let rolled_back = self.roll_back(transaction).await;
                rolled_back.err().unwrap_or(AttemptOutcome::NotCommitted { transient })
            }
        }
    }

    /// Rolls back the transaction, and with it the claim. Fails with the outcome of the attempt if
    /// the handler has committed them, or may have.
    async fn roll_back(&self, transaction: Box<dyn Transaction>) -> Result<(), AttemptOutcome> {
        if !self.claimed.parts.store.roll_back(transaction).await {
            return Err(self.end_in_doubt());
        }
        if self.hold_after_rollback().await { Err(self.claimed.held()) } else { Ok(()) }
    }

    /// Ends the claim as the transaction's last statement, and commits.
    async fn commit(&self, transaction: Box<dyn Transaction>, action: EndAction) -> AttemptOutcome {
        let error = match self.claimed.commit(transaction, &action).await {
            Ok(fence) => {
                if fence == Fence::Passed {
                    self.claimed.observe_end(&action);
                }
                return self.claimed.outcome(fence).await;
            }
            Err(error) if error.is_escaped() => return self.hold_escaped().await,
            Err(error) => error,
        };
        self.claimed.log_in_doubt(&error);
        let found = self.resolve(&action).await;
        if let Ok(CommitOutcome::Committed) = found {
            self.claimed.observe_end(&action);
        }
        self.claimed.outcome_of_commit(&error, found).await
    }

    /// Finds the outcome of a commit. A claim in another transaction waits for the one in doubt. If
    /// that claim is granted, the transaction in doubt was not committed.
    async fn resolve(&self, action: &EndAction) -> Result<CommitOutcome, StoreError> {
        let Claimed { parts, lease, claim, .. } = &self.claimed;
        let probe = claim.with_owner(parts.store.draw_owner()?);
        let claimed = parts.store.transactions()?.claim(&lease.id, &probe, IN_DOUBT);
        match parts.store.limit("claim", claimed).await? {
            TransactionClaim::Granted { transaction, .. } => {
                parts.store.roll_back(transaction).await;
                let held = self.hold_if_committed().await?;
                Ok(if held { CommitOutcome::Held } else { CommitOutcome::NotCommitted })
            }
            TransactionClaim::Rejected(Rejection::InFlight { .. }) => {
                self.resolve_in_flight(action).await
            }
            // The handler has committed its claim, whose lease has expired since.
            TransactionClaim::Rejected(rejection @ Rejection::Held { newly: true, .. }) => {
                parts.store.observe_rejection(&lease.id, &claim.operation, &rejection);
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

    /// Reads whether this attempt's transaction was committed with the action as its end.
    async fn read_action(&self, action: &EndAction) -> Result<CommitOutcome, StoreError> {
        let completes = action.is_completion();
        self.claimed.read_commit(|state| is_completed(state) == completes).await
    }

    /// Ends an attempt whose handler has kept the transaction, which can then only be rolled back.
    async fn end_without_transaction(&self) -> AttemptOutcome {
        self.claimed.log_kept();
        self.claimed.held_or_not_committed(self.hold_after_rollback().await)
    }

    /// Ends an attempt whose handler has ended its transaction itself. What it has written since
    /// may be committed, so that the key must not be free.
    async fn hold_escaped(&self) -> AttemptOutcome {
        match self.claim_and_hold().await {
            Ok(fence) => {
                self.claimed.log_escaped(fence);
                self.claimed.held_or_not_committed(fence == Fence::Passed)
            }
            Err(error) => {
                tracing::error!(
                    id = %self.claimed.lease.id.short(), %error, cause = error.source(),
                    "an operation ended its transaction itself, and what it has written since may \
                     be committed; holding its key failed, and is retried in the background"
                );
                let hold = EndAction::HoldAgain(Box::new(self.claimed.claim.clone()));
                self.claimed.parts.deferrals.defer(self.claimed.deferred(hold));
                self.claimed.held()
            }
        }
    }

    /// The claim has ended with its transaction, so the key is claimed again, and held.
    async fn claim_and_hold(&self) -> Result<Fence, StoreError> {
        let Claimed { parts, lease, claim, .. } = &self.claimed;
        let store = &parts.store;
        let claimed = store.transactions()?.claim(&lease.id, claim, IN_DOUBT);
        let TransactionClaim::Granted { mut transaction, .. } =
            store.limit("claim", claimed).await?
        else {
            return Ok(Fence::Fenced);
        };
        let held = store.limit("abandon", transaction.abandon(lease, Abandoned::Hold)).await;
        let held = store.limit("commit", Box::pin(commit_if_passed(transaction, held))).await?;
        if held == Fence::Passed {
            self.claimed.observe_end(&EndAction::Abandon(Abandoned::Hold));
        }
        Ok(held)
    }

    /// Ends an attempt whose transaction has not ended yet. A handler that was dropped in the
    /// middle of its own `COMMIT` has committed its effects with its claim; the background holds
    /// the key as soon as it finds the claim.
    fn end_in_doubt(&self) -> AttemptOutcome {
        let Claimed { parts, lease, claim, .. } = &self.claimed;
        tracing::warn!(
            id = %lease.id.short(),
            "the outcome of a transaction is unknown; the key will be held if the operation \
             committed it"
        );
        let Ok(owner) = parts.store.draw_owner() else {
            return AttemptOutcome::NotCommitted { transient: true };
        };
        let probe = Box::new(claim.with_owner(owner));
        parts.deferrals.defer(self.claimed.deferred(EndAction::HoldIfCommitted(probe)));
        AttemptOutcome::Deferred
    }

    /// Holds the key if the handler has committed this attempt's claim, and with it everything that
    /// it had written until then. Returns whether the key was held.
    async fn hold_if_committed(&self) -> Result<bool, StoreError> {
        let Claimed { parts, lease, .. } = &self.claimed;
        let own = self.claimed.read_own().await?;
        if own.is_none_or(|record| record.state != RecordState::InFlight) {
            return Ok(false);
        }
        let fence =
            parts.store.call("abandon", |store| store.abandon(lease, Abandoned::Hold)).await?;
        let held = fence == Fence::Passed;
        if held {
            self.claimed.observe_end(&EndAction::Abandon(Abandoned::Hold));
            tracing::error!(
                id = %lease.id.short(),
                "an operation committed its transaction itself; its key is held"
            );
        }
        Ok(held)
    }

    /// Holds the key if the handler has committed its claim before the transaction was rolled back.
    /// Returns whether the key was held.
    async fn hold_after_rollback(&self) -> bool {
        self.hold_if_committed().await.unwrap_or_else(|error| {
            tracing::warn!(
                id = %self.claimed.lease.id.short(), %error, cause = error.source(),
                "verifying that a claim was rolled back failed; its key is not held"
            );
            false
        })
    }
}
