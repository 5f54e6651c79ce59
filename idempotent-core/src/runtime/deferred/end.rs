//! An end of an attempt that waits for the store.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, Rejection},
    record_id::RecordId,
    runtime::{end_action::EndAction, observer::HeldOperation},
};

/// The bytes that an end takes beside its recording: itself, its task, and its places in the maps.
const OVERHEAD: usize = 1024;

/// An end of an attempt that the store does not have yet.
pub(in crate::runtime) struct DeferredEnd {
    pub(super) id: RecordId,
    /// The claim that it ends, with the attempt's owner token.
    pub(super) claim: Claim,
    pub(super) action: EndAction,
    /// The number of the attempt; 0 if none ran.
    pub(super) attempt: u32,
    /// The record cannot have expired before this time.
    pub(super) lasts: Instant,
    /// The key that it holds, for the observer if there is one.
    pub(super) held: Option<HeldOperation>,
    state: Mutex<EndState>,
}

/// Who sends an end to the store, and whether another attempt may own its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    /// Its own attempt sends it, so that no other request does.
    Sending,
    /// The background sends it, or another request with the key.
    Deferred,
    /// As `Deferred`, but the store has fenced it: another attempt may own the record, so nothing
    /// is replayed from memory.
    FoundFenced,
    /// As `FoundFenced`, but its attempt was known to be fenced before, so its response was not
    /// sent to its client.
    Fenced,
    /// Another request with the key has stored it, or has found that another attempt owns the
    /// record.
    Done,
}

/// What changes the state of an end.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndEvent {
    /// The store has fenced the end.
    Fenced,
    /// The store has granted the claim again.
    GrantedAgain,
    /// Another request has stored the end, or has found that another attempt owns the record.
    Settled,
}

impl EndState {
    fn after(self, event: EndEvent) -> Self {
        match (self, event) {
            (Self::Deferred, EndEvent::Fenced) => Self::FoundFenced,
            (Self::FoundFenced, EndEvent::GrantedAgain) => Self::Deferred,
            (Self::Deferred | Self::FoundFenced | Self::Fenced, EndEvent::Settled) => Self::Done,
            (state, EndEvent::Fenced | EndEvent::GrantedAgain | EndEvent::Settled) => state,
        }
    }

    /// Whether another attempt may own the record, so that nothing is replayed from memory.
    pub(super) fn may_be_superseded(self) -> bool {
        matches!(self, Self::FoundFenced | Self::Fenced)
    }
}

impl DeferredEnd {
    pub(in crate::runtime) fn new(
        id: RecordId,
        claim: Claim,
        attempt: u32,
        action: EndAction,
        lasts: Instant,
    ) -> Self {
        let (held, state) = (None, Mutex::new(EndState::Deferred));
        Self { id, claim, action, attempt, lasts, held, state }
    }

    /// Sets the key that the end holds, for the observer.
    pub(in crate::runtime) fn holding(self, held: Option<HeldOperation>) -> Self {
        Self { held, ..self }
    }

    /// Marks the end of an attempt that is known to be fenced. Its response must not be replayed
    /// from memory.
    pub(in crate::runtime) fn into_fenced(self) -> Self {
        Self { state: Mutex::new(EndState::Fenced), ..self }
    }

    /// Marks an end that its own attempt sends.
    pub(super) fn into_sending(self) -> Self {
        Self { state: Mutex::new(EndState::Sending), ..self }
    }

    pub(super) fn state(&self) -> EndState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, event: EndEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.after(event);
    }

    pub(super) fn lease(&self) -> Lease {
        Lease { id: self.id, owner: self.claim.owner }
    }

    /// Why later claims are rejected, if this end decides it.
    pub(super) fn rejection(&self) -> Option<Rejection> {
        match &self.action {
            EndAction::Complete(recording) => {
                Some(Rejection::Completed(recording.as_bytes().clone()))
            }
            EndAction::Abandon(Abandoned::Hold) | EndAction::HoldAgain(_) => {
                Some(Rejection::Held { newly: false, reference: None })
            }
            EndAction::Abandon(Abandoned::Retry)
            | EndAction::Release
            | EndAction::GiveBack
            | EndAction::HoldIfCommitted(_) => None,
        }
    }

    /// How long the end is retried.
    ///
    /// An end that decides the outcome of later requests is retried for as long as its record would
    /// last: the owner token fences it, and while the store fails, no other process can take the
    /// key over either. An end that gives the key back is retried for a lease, after which the key
    /// is free anyway.
    pub(super) fn retried_for(&self) -> Duration {
        let decides =
            self.rejection().is_some() || matches!(self.action, EndAction::HoldIfCommitted(_));
        if decides { self.claim.ttl.max(self.claim.lease) } else { self.claim.lease }
    }

    pub(super) fn bytes(&self) -> usize {
        let EndAction::Complete(recording) = &self.action else { return OVERHEAD };
        recording.as_bytes().len().saturating_add(OVERHEAD)
    }

    /// The same end with a recording that omits its largest part, if it has one.
    pub(super) fn shortened(&self) -> Option<Self> {
        let EndAction::Complete(recording) = &self.action else { return None };
        let action = EndAction::Complete(recording.shortened()?);
        let smaller = Self::new(self.id, self.claim.clone(), self.attempt, action, self.lasts);
        Some(Self { state: Mutex::new(self.state()), ..smaller })
    }
}

#[cfg(test)]
mod tests {
    use super::{EndEvent as Event, EndState as State};

    #[test]
    fn only_an_end_that_was_deferred_unfenced_is_replayed_after_a_new_grant() {
        for (state, fenced, granted, settled) in [
            (State::Sending, State::Sending, State::Sending, State::Sending),
            (State::Deferred, State::FoundFenced, State::Deferred, State::Done),
            (State::FoundFenced, State::FoundFenced, State::Deferred, State::Done),
            (State::Fenced, State::Fenced, State::Fenced, State::Done),
            (State::Done, State::Done, State::Done, State::Done),
        ] {
            let after = [Event::Fenced, Event::GrantedAgain, Event::Settled];
            let after = after.map(|event| state.after(event));
            assert_eq!(after, [fenced, granted, settled], "{state:?}");
        }
    }
}
