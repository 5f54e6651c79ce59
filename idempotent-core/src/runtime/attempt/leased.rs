//! An attempt whose key is claimed by a lease.

use std::{error::Error, mem, sync::OnceLock};

use super::{
    attempt_outcome::AttemptOutcome,
    claimed::{Claimed, CommitOutcome, Effects, is_completed},
};
use crate::{
    error::StoreError,
    policy::Abandoned,
    protocol::{Fence, Note},
    runtime::{
        deferred::SendingEnd,
        end_action::EndAction,
        renewer::LiveLease,
        timing::{OncePending, with_retry},
        verdict::Verdict,
    },
    store::Transaction,
};

/// An attempt whose key is claimed by a lease, which is renewed until the attempt ends.
pub(super) struct LeasedAttempt {
    pub(super) claimed: Claimed,
    phase: LeasePhase,
    /// Set while an end waits for the store's response. It is dropped only after an unfinished end
    /// has been deferred, so that claims of this process always find either the end that is being
    /// sent or the deferred end.
    sending: OnceLock<SendingEnd>,
}

enum LeasePhase {
    Running,
    /// The end is being sent to the store. If the attempt is dropped in this phase, the background
    /// sends the end again. The live lease is absent if the attempt was fenced.
    Ending(EndAction, Option<LiveLease>),
    Ended,
}

impl LeasedAttempt {
    pub(super) fn new(claimed: Claimed) -> Self {
        Self { claimed, phase: LeasePhase::Running, sending: OnceLock::new() }
    }

    /// Ends an attempt with a transaction, which is committed if `commits` and there is one, and
    /// rolled back otherwise.
    pub(super) async fn end_with_transaction(
        &mut self,
        action: EndAction,
        commits: bool,
    ) -> AttemptOutcome {
        match self.claimed.take_effects() {
            Effects::In(transaction) if commits => self.commit(transaction, action).await,
            Effects::In(mut transaction) => {
                let has_escaped = transaction.has_escaped().await;
                self.claimed.parts.store.roll_back(transaction).await;
                if has_escaped { self.hold_escaped().await } else { self.end(action).await }
            }
            Effects::WithHandler if commits => self.end_without_transaction().await,
            Effects::WithHandler | Effects::Elsewhere => self.end(action).await,
        }
    }

    /// Ends the attempt without its transaction.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` stores its arguments twice")]
    pub(super) fn end(&mut self, action: EndAction) -> impl Future<Output = AttemptOutcome> {
        async move {
            let live = self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
            // A renewal that was fenced has removed the lease before.
            let fenced = live.is_none();
            self.phase = LeasePhase::Ending(action.clone(), live);
            let sent = if fenced {
                self.send_noted(&action).await
            } else {
                self.send_shown(&action).await
            };
            if sent.is_ok() && self.sending.get().is_some() {
                self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
            }
            match sent {
                // Boxed: keeps the caller's future small, since few attempts are fenced.
                Ok(Fence::Fenced) => Box::pin(self.end_fenced(action)).await,
                Ok(fence) => {
                    self.phase = LeasePhase::Ended;
                    self.sending.take();
                    self.claimed.outcome(fence).await
                }
                Err(_) if fenced => {
                    self.phase = LeasePhase::Ended;
                    let end = self.claimed.deferred(action).into_fenced();
                    self.claimed.parts.deferrals.defer(end);
                    self.claimed.outcome(Fence::Fenced).await
                }
                Err(error) => {
                    self.claimed.log_failure(&error);
                    // Dropping `self` defers the end.
                    AttemptOutcome::Deferred
                }
            }
        }
    }

    /// Ends the claim as the transaction's last statement, and commits.
    async fn commit(
        &mut self,
        transaction: Box<dyn Transaction>,
        action: EndAction,
    ) -> AttemptOutcome {
        let live = self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
        // If this future is dropped, the transaction may be committed; the abandonment is fenced
        // then.
        let abandon = EndAction::Abandon(self.claimed.operation.abandoned());
        self.phase = LeasePhase::Ending(abandon, live);
        let committed = self.claimed.commit(transaction, &action);
        let error = match OncePending::new(committed, || self.keep_lease()).await {
            Ok(fence) => {
                self.set_ended();
                return self.claimed.outcome(fence).await;
            }
            Err(error) if error.is_escaped() => return self.hold_escaped().await,
            Err(error) => error,
        };
        self.claimed.log_in_doubt(&error);
        let found = self.resolve().await;
        // Otherwise dropping `self` gives the lease up in the background.
        if found.is_ok() {
            self.set_ended();
        }
        self.claimed.outcome_of_commit(&error, found).await
    }

    /// Finds the outcome of a commit.
    ///
    /// Between the loss of the acknowledgment and this call the server may still commit; the
    /// abandonment waits for the lock on the record and is fenced if the commit succeeded (case
    /// `a_commit_without_its_acknowledgment_is_settled`).
    async fn resolve(&self) -> Result<CommitOutcome, StoreError> {
        let abandon = EndAction::Abandon(self.claimed.operation.abandoned());
        if !abandon.keeps_lease() {
            self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
        }
        match self.send_after_renewals(&abandon).await? {
            Fence::Passed if abandon.keeps_lease() => Ok(CommitOutcome::Held),
            Fence::Passed => Ok(CommitOutcome::NotCommitted),
            Fence::Fenced => self.claimed.read_commit(is_completed).await,
        }
    }

    /// Ends an attempt whose handler has kept the transaction, which can then only be rolled back.
    async fn end_without_transaction(&mut self) -> AttemptOutcome {
        self.claimed.log_kept();
        let policy = self.claimed.operation.abandoned();
        let ended = self.end(EndAction::Abandon(policy)).await;
        let is_held = policy == Abandoned::Hold && !matches!(ended, AttemptOutcome::Fenced(_));
        self.claimed.held_or_not_committed(is_held)
    }

    /// Ends an attempt whose handler has ended its transaction itself. What it has written since
    /// may be committed, so that the key must not be free.
    async fn hold_escaped(&mut self) -> AttemptOutcome {
        let live = match mem::replace(&mut self.phase, LeasePhase::Ended) {
            LeasePhase::Ending(_, live) => live,
            LeasePhase::Running | LeasePhase::Ended => {
                self.claimed.parts.renewer.leases.remove(&self.claimed.lease)
            }
        };
        let hold = EndAction::Abandon(Abandoned::Hold);
        self.phase = LeasePhase::Ending(hold.clone(), live);
        match self.send_after_renewals(&hold).await {
            Ok(fence) => {
                self.phase = LeasePhase::Ended;
                self.claimed.log_escaped(fence);
                self.claimed.held_or_not_committed(fence == Fence::Passed)
            }
            // Dropping `self` holds the key in the background.
            Err(error) => {
                self.claimed.log_failure(&error);
                self.claimed.held()
            }
        }
    }

    /// Sends the action after the reference that the handler has set while its transaction was
    /// open.
    async fn send_noted(&self, action: &EndAction) -> Result<Fence, StoreError> {
        if let Some(note) = self.claimed.operation.take_pending() {
            Box::pin(self.note(note)).await;
        }
        self.send_after_renewals(action).await
    }

    async fn note(&self, note: Note) {
        let Claimed { parts, lease, .. } = &self.claimed;
        if let Err(error) = parts.store.call("note", |store| store.note(lease, &note)).await {
            tracing::warn!(
                id = %lease.id.short(), %error, cause = error.source(),
                "storing the reference of an operation failed"
            );
        }
    }

    /// Ends an attempt whose action was fenced: another attempt owns the record, or the store has
    /// lost it.
    async fn end_fenced(&mut self, action: EndAction) -> AttemptOutcome {
        let end = self.claimed.deferred(action.clone());
        // If this future is dropped here, another attempt may own the record: the response must not
        // be replayed from memory.
        self.phase = LeasePhase::Ending(action, None);
        let Claimed { parts, lease, .. } = &self.claimed;
        let reclaimed = parts.deferrals.reclaim(&end).await;
        self.phase = LeasePhase::Ended;
        match reclaimed {
            Ok(fence) => {
                self.sending.take();
                self.claimed.outcome(fence).await
            }
            // The background learns which of the two is the case.
            Err(error) => {
                self.claimed.log_failure(&error);
                if !parts.deferrals.defer(end.into_fenced()) {
                    parts.renewer.leases.remove(lease);
                }
                AttemptOutcome::Fenced(Verdict::of_failed_read(&error))
            }
        }
    }

    /// Sends the action to the store. Until the store responds, claims of this process report the
    /// key as in flight: a store that was restarted without the record would grant them, though the
    /// handler is done (case `an_attempt_whose_end_is_in_progress_is_not_run_again`).
    ///
    /// Between the call and its effect the lease may expire, and another process may take over the
    /// key; renewals prevent it (case `a_lease_is_renewed_while_its_end_is_sent`).
    async fn send_shown(&self, action: &EndAction) -> Result<Fence, StoreError> {
        OncePending::new(self.send_noted(action), || {
            if action.keeps_lease() {
                self.keep_lease();
            }
            // Only this attempt sets it.
            let end = self.claimed.deferred(action.clone());
            let _ = self.sending.set(self.claimed.parts.deferrals.show(end));
        })
        .await
    }

    /// Keeps the lease alive while the end is sent, even if renewals have to wait for it.
    fn keep_lease(&self) {
        if let LeasePhase::Ending(_, Some(live)) = &self.phase {
            self.claimed.parts.renewer.leases.restore(self.claimed.lease, *live);
        }
    }

    /// Notes that the store has the end, and stops keeping the lease alive.
    fn set_ended(&mut self) {
        self.phase = LeasePhase::Ended;
        self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
    }

    async fn send_after_renewals(&self, action: &EndAction) -> Result<Fence, StoreError> {
        let Claimed { parts, lease, .. } = &self.claimed;
        if matches!(action, EndAction::Abandon(_)) {
            // Between the abandonment and the next claim a renewal in progress may revive the
            // lease; waiting for the renewal prevents that (case
            // `a_renewal_in_progress_does_not_revive_an_abandoned_attempt`).
            parts.renewer.leases.wait_for_calls(lease).await;
        }
        // A completion is the one action that passes again for an owner whose action was stored
        // before.
        let send = || parts.store.call(action.step(), |store| action.send(store, lease));
        let sent = if action.is_completion() { with_retry(send).await } else { send().await };
        if let Ok(Fence::Passed) = sent {
            self.claimed.observe_end(action);
        }
        sent
    }

    /// Defers an end whose outcome is unknown.
    fn defer_unfinished(&self, action: EndAction, live: Option<LiveLease>) {
        let Claimed { parts, lease, .. } = &self.claimed;
        // An attempt without a live lease is known to be fenced.
        let fenced = live.is_none();
        match live {
            Some(live) if action.keeps_lease() => parts.renewer.leases.restore(*lease, live),
            // A commit that was being sent has kept the lease alive.
            Some(_) => drop(parts.renewer.leases.remove(lease)),
            None => {}
        }
        let end = self.claimed.deferred(action);
        let end = if fenced { end.into_fenced() } else { end };
        if !parts.deferrals.defer(end) {
            parts.renewer.leases.remove(lease);
        }
    }
}

impl Drop for LeasedAttempt {
    fn drop(&mut self) {
        match mem::replace(&mut self.phase, LeasePhase::Ended) {
            LeasePhase::Running => {
                self.claimed.parts.renewer.leases.remove(&self.claimed.lease);
            }
            LeasePhase::Ending(action, live) => self.defer_unfinished(action, live),
            LeasePhase::Ended => {}
        }
    }
}
