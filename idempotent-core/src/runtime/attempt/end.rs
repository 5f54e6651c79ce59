//! The end of an attempt that has a lease.

use std::{error::Error, mem};

use super::{AttemptOutcome, AttemptPhase, Effects, Inner};
use crate::{
    error::StoreError,
    protocol::{Fence, Note},
    runtime::{
        deferred::DeferredEnd,
        end_action::EndAction,
        timing::{after, once_pending, with_retry},
        verdict::Verdict,
    },
};

impl Inner {
    pub(super) async fn end_without_effects(&mut self, action: EndAction) -> AttemptOutcome {
        match self.effects {
            Effects::Elsewhere if self.open.is_none() => self.end(action).await,
            // Boxed: keeps the future small for attempts without a transaction.
            Effects::Elsewhere | Effects::In(_) | Effects::WithHandler => {
                Box::pin(self.end_rolled_back(action)).await
            }
        }
    }

    pub(super) async fn end(&mut self, action: EndAction) -> AttemptOutcome {
        let live = self.parts.renewer.leases.remove(&self.lease);
        // A renewal that was fenced has removed the lease before.
        let fenced = live.is_none();
        self.phase = AttemptPhase::Ending(action.clone(), live);
        let sent =
            if fenced { self.send_noted(&action).await } else { self.send_shown(&action).await };
        if sent.is_ok() && self.sending.get().is_some() {
            self.parts.renewer.leases.remove(&self.lease);
        }
        match sent {
            // Boxed: keeps the caller's future small, since few attempts are fenced.
            Ok(Fence::Fenced) => Box::pin(self.end_fenced(action)).await,
            Ok(fence) => {
                self.phase = AttemptPhase::Ended;
                self.sending.take();
                self.outcome(fence).await
            }
            Err(_) if fenced => {
                self.phase = AttemptPhase::Ended;
                self.parts.deferrals.defer(self.deferred(action).into_fenced());
                self.outcome(Fence::Fenced).await
            }
            Err(error) => {
                self.log_failure(&error);
                // Dropping `self` defers the end.
                AttemptOutcome::Deferred
            }
        }
    }

    /// Sends the action after the reference that the handler has set while its transaction was
    /// open.
    async fn send_noted(&self, action: &EndAction) -> Result<Fence, StoreError> {
        if let Some(note) = self.operation.take_pending() {
            Box::pin(self.note(note)).await;
        }
        self.send_after_renewals(action).await
    }

    async fn note(&self, note: Note) {
        let noted = self.parts.store.call(|store| store.note(&self.lease, &note)).await;
        if let Err(error) = noted {
            let (id, cause) = (self.lease.id, error.source());
            tracing::warn!(
                id = %id.short(), %error, cause,
                "storing the reference of an operation failed"
            );
        }
    }

    /// Ends an attempt whose action was fenced: another attempt owns the record, or the store has
    /// lost it.
    async fn end_fenced(&mut self, action: EndAction) -> AttemptOutcome {
        let end = self.deferred(action.clone());
        // If this future is dropped here, another attempt may own the record: the response must not
        // be replayed from memory.
        self.phase = AttemptPhase::Ending(action, None);
        let reclaimed = self.parts.deferrals.reclaim(&end).await;
        self.phase = AttemptPhase::Ended;
        match reclaimed {
            Ok(fence) => {
                self.sending.take();
                self.outcome(fence).await
            }
            // The background learns which of the two is the case.
            Err(error) => {
                self.log_failure(&error);
                if !self.parts.deferrals.defer(end.into_fenced()) {
                    self.parts.renewer.leases.remove(&self.lease);
                }
                AttemptOutcome::Fenced(Verdict::of_failed_read(&error))
            }
        }
    }

    /// This end, for the background to store.
    pub(super) fn deferred(&self, action: EndAction) -> DeferredEnd {
        // The lease was renewed until now, even past the ttl.
        let now = self.parts.store.environment().now();
        let lasts = after(self.since, self.claim.ttl).max(after(now, self.claim.lease));
        DeferredEnd::new(self.lease.id, self.claim.clone(), self.number, action, lasts)
    }

    /// Sends the action to the store. Until the store responds, claims of this process report the
    /// key as in flight: a store that was restarted without the record would grant them, though the
    /// handler is done (case `an_attempt_whose_end_is_in_progress_is_not_run_again`).
    ///
    /// Between the call and its effect the lease may expire, and another process may take over the
    /// key; renewals prevent it (case `a_lease_is_renewed_while_its_end_is_sent`).
    async fn send_shown(&self, action: &EndAction) -> Result<Fence, StoreError> {
        once_pending(self.send_noted(action), || {
            if action.keeps_lease() {
                self.keep_lease();
            }
            // Only this attempt sets it.
            let shown = self.parts.deferrals.show(self.deferred(action.clone()));
            let _ = self.sending.set(shown);
        })
        .await
    }

    /// Keeps the lease alive while the end is sent, even if renewals have to wait for it.
    pub(super) fn keep_lease(&self) {
        if let AttemptPhase::Ending(_, Some(live)) = &self.phase {
            self.parts.renewer.leases.restore(self.lease, *live);
        }
    }

    /// Notes that the store has the end, and stops keeping the lease alive.
    pub(super) fn set_ended(&mut self) {
        self.phase = AttemptPhase::Ended;
        self.parts.renewer.leases.remove(&self.lease);
    }

    pub(super) async fn send_after_renewals(
        &self,
        action: &EndAction,
    ) -> Result<Fence, StoreError> {
        if matches!(action, EndAction::Abandon(_)) {
            // Between the abandonment and the next claim a renewal in progress may revive the
            // lease; waiting for the renewal prevents that (case
            // `a_renewal_in_progress_does_not_revive_an_abandoned_attempt`).
            self.parts.renewer.leases.wait_for_calls(&self.lease).await;
        }
        self.send(action).await
    }

    /// Sends the action, and retries a completion once: it is the one action that passes again for
    /// an owner whose action was stored before.
    async fn send(&self, action: &EndAction) -> Result<Fence, StoreError> {
        let send = || self.parts.store.call(|store| action.send(store, &self.lease));
        if action.is_completion() { with_retry(send).await } else { send().await }
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
                let (claims, claimed) = (&self.parts.claims, self.claim.fingerprint);
                let successor = Box::pin(claims.successor(&id, claimed, self.digest));
                AttemptOutcome::Fenced(successor.await)
            }
        }
    }

    pub(super) fn log_failure(&self, error: &StoreError) {
        let (id, cause) = (self.lease.id, error.source());
        tracing::warn!(
            id = %id.short(), %error, cause,
            "storing the end of an attempt failed; retrying in the background"
        );
    }

    /// Defers an end whose outcome is unknown.
    fn defer_unfinished(&self, action: EndAction, live: Option<super::LiveLease>) {
        let leases = &self.parts.renewer.leases;
        // An attempt without a live lease is known to be fenced.
        let fenced = live.is_none();
        match live {
            Some(live) if action.keeps_lease() => leases.restore(self.lease, live),
            // A commit that was being sent has kept the lease alive.
            Some(_) => drop(leases.remove(&self.lease)),
            None => {}
        }
        let end = self.deferred(action);
        let end = if fenced { end.into_fenced() } else { end };
        if !self.parts.deferrals.defer(end) {
            leases.remove(&self.lease);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.operation.end();
        match mem::replace(&mut self.phase, AttemptPhase::Ended) {
            AttemptPhase::Running => {
                self.parts.renewer.leases.remove(&self.lease);
            }
            AttemptPhase::Ending(action, live) => self.defer_unfinished(action, live),
            AttemptPhase::Ended => {}
        }
    }
}
