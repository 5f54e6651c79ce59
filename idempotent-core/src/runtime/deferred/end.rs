//! An end of an attempt that waits for the store.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome},
    record_id::RecordId,
    runtime::end_action::EndAction,
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
    /// Whether the store has reported that the record does not carry the attempt's token, so that
    /// another attempt may own it.
    pub(super) fenced: bool,
    /// Whether the store has fenced this end since it last granted the claim: another attempt may
    /// own the record.
    pub(super) found_fenced: AtomicBool,
    /// Whether its own attempt is sending it to the store, so that no other request sends it.
    pub(super) sending: bool,
    /// Set once another request with the key has stored it, or has found that another attempt owns
    /// the record.
    pub(super) done: AtomicBool,
}

impl DeferredEnd {
    pub(in crate::runtime) fn new(
        id: RecordId,
        claim: Claim,
        attempt: u32,
        action: EndAction,
        lasts: Instant,
    ) -> Self {
        let (found_fenced, done) = Default::default();
        let (fenced, sending) = (false, false);
        Self { id, claim, action, attempt, lasts, fenced, found_fenced, sending, done }
    }

    /// Marks the end of an attempt that is known to be fenced. Its response must not be replayed
    /// from memory.
    pub(in crate::runtime) fn into_fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Notes that the store has fenced this end, or has granted its claim again.
    pub(super) fn found_fenced(&self, fenced: bool) {
        self.found_fenced.store(fenced, Ordering::SeqCst);
    }

    /// Whether another attempt may own the record, so that nothing is replayed from memory.
    pub(super) fn may_be_superseded(&self) -> bool {
        self.fenced || self.found_fenced.load(Ordering::SeqCst)
    }

    pub(super) fn lease(&self) -> Lease {
        Lease { id: self.id, owner: self.claim.owner }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// The outcome of later claims, if this end decides it.
    pub(super) fn outcome(&self) -> Option<ClaimOutcome> {
        match &self.action {
            EndAction::Complete(recording) => {
                Some(ClaimOutcome::Completed(recording.as_bytes().clone()))
            }
            EndAction::Abandon(Abandoned::Hold) | EndAction::HoldAgain(_) => {
                Some(ClaimOutcome::Held { newly: false, reference: None })
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
            self.outcome().is_some() || matches!(self.action, EndAction::HoldIfCommitted(_));
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
        Some(Self { fenced: self.fenced, ..smaller })
    }
}
