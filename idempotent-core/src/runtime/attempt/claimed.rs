//! What an attempt consists of, however its key was claimed.

use std::{error::Error, mem, sync::Arc, time::Instant};

use super::attempt_outcome::AttemptOutcome;
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    history::Kind,
    lease::Lease,
    policy::{Abandoned, OnAbandon},
    protocol::{Claim, Fence, Note},
    record::{Record, RecordState},
    record_id::RecordId,
    runtime::{
        deferred::DeferredEnd,
        end_action::EndAction,
        observer::{FencedStep, HeldOperation, Observer},
        operation::Run,
        parts::RuntimeParts,
        timing::after,
    },
    store::{Transaction, commit_if_passed},
};

/// What both kinds of attempts consist of.
pub(in crate::runtime) struct Claimed {
    pub(super) parts: Arc<RuntimeParts>,
    pub(super) lease: Lease,
    pub(super) claim: Claim,
    digest: RequestDigest,
    pub(super) number: u32,
    /// When the claim was sent.
    since: Instant,
    /// When the claim was granted, if there is an observer.
    granted: Option<Instant>,
    pub(super) operation: Run,
    pub(super) effects: Effects,
}

/// When a claim was granted.
#[derive(Clone, Copy)]
pub(in crate::runtime) struct Grant {
    /// The number of the attempt.
    pub(in crate::runtime) number: u32,
    /// When the claim was sent.
    pub(in crate::runtime) since: Instant,
    /// When it was decided, if there is an observer.
    pub(in crate::runtime) decided: Option<Instant>,
}

/// Where the handler writes.
pub(super) enum Effects {
    /// Outside of the store's transactions.
    Elsewhere,
    /// In a transaction.
    In(Box<dyn Transaction>),
    /// In a transaction that the handler has taken.
    WithHandler,
}

/// The outcome of a commit that was not acknowledged.
pub(super) enum CommitOutcome {
    Committed,
    /// The key is free for the next attempt.
    NotCommitted,
    /// Not committed as the action says, and the key is held.
    Held,
    /// Another attempt owns the key, or an operator has resolved it.
    Fenced,
}

impl Claimed {
    pub(in crate::runtime) fn new(
        parts: Arc<RuntimeParts>,
        id: RecordId,
        claim: Claim,
        digest: RequestDigest,
        grant: Grant,
        rule: OnAbandon,
    ) -> Self {
        let lease = Lease { id, owner: claim.owner };
        let Grant { number, since, decided: granted } = grant;
        let operation = Run::new(parts.clone(), lease, number, rule);
        let effects = Effects::Elsewhere;
        parts.store.observe(|observer| observer.began(&claim.operation));
        Self { parts, lease, claim, digest, number, since, granted, operation, effects }
    }

    /// Sets the transaction in which the handler writes.
    pub(super) fn begun(&mut self, transaction: Box<dyn Transaction>) {
        self.operation.transaction_begun();
        self.effects = Effects::In(transaction);
    }

    pub(super) fn take_effects(&mut self) -> Effects {
        mem::replace(&mut self.effects, Effects::Elsewhere)
    }

    /// An end of this attempt, for the background to store.
    pub(super) fn deferred(&self, action: EndAction) -> DeferredEnd {
        // A lease was renewed until now, even past the ttl.
        let now = self.parts.store.environment().now();
        let lasts = after(self.since, self.claim.ttl).max(after(now, self.claim.lease));
        let held = self.held_by(&action);
        DeferredEnd::new(self.lease.id, self.claim.clone(), self.number, action, lasts)
            .holding(held)
    }

    /// The key that this action holds, for the observer if there is one.
    fn held_by(&self, action: &EndAction) -> Option<HeldOperation> {
        let holds = match action {
            EndAction::Complete(_) | EndAction::Release | EndAction::GiveBack => false,
            // After the point of no return the store holds the key.
            EndAction::Abandon(_) => {
                action.keeps_lease() || self.operation.abandoned() == Abandoned::Hold
            }
            EndAction::HoldIfCommitted(_) | EndAction::HoldAgain(_) => true,
        };
        (self.granted.is_some() && holds).then(|| {
            let (operation, reference) = (self.claim.operation.clone(), self.operation.reference());
            HeldOperation::new(self.lease.id, operation, reference)
        })
    }

    /// Tells the observer that the store has this action, if it holds the key.
    pub(super) fn observe_end(&self, action: &EndAction) {
        if let Some(held) = self.held_by(action) {
            self.parts.store.observe(|observer| observer.held(&held));
        }
    }

    /// Tells the observer how long the work took, which ended at this time, and what followed.
    pub(super) fn observe_times(&self, ended: Option<Instant>) {
        let (Some(granted), Some(ended)) = (self.granted, ended) else { return };
        let (operation, ran) = (&self.claim.operation, ended.duration_since(granted));
        let observe = |observer: &dyn Observer, took| observer.ended(operation, ran, took);
        self.parts.store.measured(Some(ended), observe);
    }

    pub(super) async fn outcome(&self, fence: Fence) -> AttemptOutcome {
        let id = self.lease.id;
        match fence {
            Fence::Passed => {
                self.parts.waiters.wake(&id);
                AttemptOutcome::Stored
            }
            Fence::Fenced => {
                tracing::warn!(
                    id = %id.short(),
                    "another attempt has taken over the key of this attempt; its response is \
                     not sent"
                );
                self.parts.store.observe(|observer| observer.fenced(FencedStep::End));
                Box::pin(self.parts.store.append_history(&id, Kind::Fenced)).await;
                let (claims, claimed) = (&self.parts.claims, self.claim.fingerprint);
                let successor = Box::pin(claims.successor(&id, claimed, self.digest));
                AttemptOutcome::Fenced(successor.await)
            }
        }
    }

    /// The outcome of an attempt whose key is held.
    pub(super) fn held(&self) -> AttemptOutcome {
        self.parts.waiters.wake(&self.lease.id);
        AttemptOutcome::Held
    }

    /// The outcome of an attempt whose handler has kept or ended its transaction, which is then
    /// not committed.
    pub(super) fn held_or_not_committed(&self, is_held: bool) -> AttemptOutcome {
        if is_held {
            return self.held();
        }
        self.parts.waiters.wake(&self.lease.id);
        AttemptOutcome::NotCommitted { transient: false }
    }

    pub(super) fn log_failure(&self, error: &StoreError) {
        let (id, cause) = (self.lease.id, error.source());
        tracing::warn!(
            id = %id.short(), %error, cause,
            "storing the end of an attempt failed; retrying in the background"
        );
    }

    pub(super) fn log_kept(&self) {
        tracing::error!(
            id = %self.lease.id.short(),
            "an operation has ended without returning its transaction, which is rolled back; drop \
             the transaction before the operation ends"
        );
    }

    /// Logs the outcome of an attempt whose handler has ended its transaction, and whose key was
    /// to be held.
    pub(super) fn log_escaped(&self, fence: Fence) {
        let id = self.lease.id;
        match fence {
            Fence::Passed => tracing::error!(
                %id,
                "an operation ended its transaction itself, and what it has written since may be \
                 committed; its key is held"
            ),
            Fence::Fenced => tracing::error!(
                %id,
                "an operation ended its transaction itself, and what it has written since may be \
                 committed; another attempt has its key"
            ),
        }
    }

    /// Adds the pending note, ends the claim as the transaction's last statement, and commits.
    pub(super) fn commit(
        &self,
        transaction: Box<dyn Transaction>,
        action: &EndAction,
    ) -> impl Future<Output = Result<Fence, StoreError>> {
        let note = self.operation.take_pending();
        self.parts
            .store
            .limit("commit", Box::pin(commit_with(transaction, &self.lease, note, action)))
    }

    pub(super) fn log_in_doubt(&self, error: &StoreError) {
        tracing::warn!(
            id = %self.lease.id.short(), %error, cause = error.source(),
            "the outcome of a commit is unknown; reading it from the store"
        );
    }

    /// The outcome of an attempt whose commit has failed with an error, as found in the store.
    pub(super) async fn outcome_of_commit(
        &self,
        error: &StoreError,
        found: Result<CommitOutcome, StoreError>,
    ) -> AttemptOutcome {
        match found {
            Ok(CommitOutcome::Committed) => self.outcome(Fence::Passed).await,
            Ok(CommitOutcome::Fenced) => self.outcome(Fence::Fenced).await,
            Ok(CommitOutcome::NotCommitted) => {
                self.parts.waiters.wake(&self.lease.id);
                AttemptOutcome::NotCommitted { transient: error.is_transient() }
            }
            Ok(CommitOutcome::Held) => self.held(),
            Err(unknown) => {
                self.log_failure(&unknown);
                AttemptOutcome::NotCommitted { transient: true }
            }
        }
    }

    /// Reads whether this attempt's transaction was committed, so that its record is in a state
    /// that `is_ours` recognizes.
    pub(super) async fn read_commit(
        &self,
        is_ours: impl Fn(&RecordState) -> bool,
    ) -> Result<CommitOutcome, StoreError> {
        let ours = self.read_own().await?.is_some_and(|record| is_ours(&record.state));
        Ok(if ours { CommitOutcome::Committed } else { CommitOutcome::Fenced })
    }

    /// Reads the record, if it has this attempt's owner token.
    pub(super) async fn read_own(&self) -> Result<Option<Record>, StoreError> {
        let found = self.parts.store.call("look up", |store| store.look_up(&self.lease.id)).await?;
        Ok(found.map(|found| found.record).filter(|record| record.owner == self.lease.owner))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.parts.store.observe(|observer| observer.left(&self.claim.operation));
    }
}

pub(super) fn is_completed(state: &RecordState) -> bool {
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
