//! The end of an attempt that has a lease.

use std::{error::Error, future::poll_fn, mem, pin::pin};

use super::{AttemptOutcome, Effects, Inner, Phase};
use crate::{
    error::StoreError,
    policy::Abandoned,
    protocol::{Fence, Note},
    runtime::{
        deferred::DeferredEnd,
        end_action::EndAction,
        timing::{after, with_retry},
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
        // A renewal at the same time as the completion would only wait for it in the store.
        let live = self.parts.renewer.leases.remove(&self.lease);
        // A renewal that was fenced has removed the lease before.
        let fenced = live.is_none();
        self.phase = Phase::Ending(action.clone(), live);
        if let Some(note) = self.operation.take_pending() {
            Box::pin(self.note(&note)).await;
        }
        let sent = if fenced {
            self.send_after_renewals(&action).await
        } else {
            self.send_shown(&action).await
        };
        match sent {
            // Boxed: keeps the caller's future small, since few attempts are fenced.
            Ok(Fence::Fenced) => Box::pin(self.end_fenced(action)).await,
            Ok(fence) => {
                self.phase = Phase::Ended;
                self.sending.take();
                self.outcome(fence).await
            }
            Err(_) if fenced => {
                self.phase = Phase::Ended;
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

    /// Stores the reference that the handler has set while its transaction was open.
    async fn note(&self, note: &Note) {
        let noted = self.parts.store.call(|store| store.note(&self.lease, note)).await;
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
        self.phase = Phase::Ending(action, None);
        let reclaimed = self.parts.deferrals.reclaim(&end).await;
        self.phase = Phase::Ended;
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
    async fn send_shown(&self, action: &EndAction) -> Result<Fence, StoreError> {
        let mut sent = pin!(self.send_after_renewals(action));
        poll_fn(|cx| {
            let sent = sent.as_mut().poll(cx);
            if sent.is_pending() && self.sending.get().is_none() {
                // Only this attempt sets it.
                let shown = self.parts.deferrals.show(self.deferred(action.clone()));
                let _ = self.sending.set(shown);
            }
            sent
        })
        .await
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
        // A key that is given up must not be kept alive, since a renewal would revive its lease. A
        // key that is to be held must be, or the next request would run before the store has it.
        let keep = matches!(action, EndAction::Complete(_) | EndAction::Abandon(Abandoned::Hold));
        if let Some(live) = live.filter(|_| keep) {
            leases.restore(self.lease, live);
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
        match mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Running => {
                self.parts.renewer.leases.remove(&self.lease);
            }
            Phase::Ending(action, live) => self.defer_unfinished(action, live),
            Phase::Ended => {}
        }
    }
}
