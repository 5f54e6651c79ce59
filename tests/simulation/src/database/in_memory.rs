//! The shipped memory store, which takes each step beside the state machine.

use std::time::Duration;

use futures_util::FutureExt;
use idempotent_core::{
    Lease, RecordId,
    clock::{ManualClock, Timestamp},
    protocol::{Actor, AuditAction, AuditEntry, AuditedState, Fence, RenewOutcome, Renewal},
    store::{Store, memory::MemoryStore},
    transition::{Event, EventOutcome},
};

/// Sets its clock to the time of the database.
pub(super) fn set(clock: &ManualClock, now: Timestamp) {
    clock.set_back(Duration::from_secs(1 << 40));
    clock.advance(now.duration_since(Timestamp::EPOCH));
}

/// Takes a step. The calls of this store never wait.
pub(super) fn step_in_memory(
    memory: &MemoryStore,
    id: &RecordId,
    event: &Event<'_>,
) -> EventOutcome {
    let lease = |owner| Lease { id: *id, owner };
    let fence =
        |fence: Option<Result<Fence, _>>| fence.and_then(Result::ok).map(EventOutcome::Fence);
    let outcome = match event {
        Event::Claim(claim) => {
            memory.claim(id, claim).now_or_never().and_then(Result::ok).map(EventOutcome::Claim)
        }
        Event::Renew(owner, extend) => {
            let renewed = memory.renew(&[Renewal::new(lease(*owner), *extend)]).now_or_never();
            renewed.and_then(Result::ok).and_then(|outcomes| outcomes.first().copied()).map(
                |outcome| match outcome {
                    RenewOutcome::Renewed => EventOutcome::Fence(Fence::Passed),
                    RenewOutcome::Fenced | RenewOutcome::Unknown => {
                        EventOutcome::Fence(Fence::Fenced)
                    }
                },
            )
        }
        Event::Note(owner, note) => fence(memory.note(&lease(*owner), note).now_or_never()),
        Event::Complete(owner, recording) => {
            fence(memory.complete(&lease(*owner), recording).now_or_never())
        }
        Event::Release(owner) => fence(memory.release(&lease(*owner)).now_or_never()),
        Event::Abandon(owner, policy) => {
            fence(memory.abandon(&lease(*owner), *policy).now_or_never())
        }
        Event::Resolve(seen, resolution) => {
            let (action, actor) = (AuditAction::Release, Actor::default());
            let audit = AuditEntry::new(action, *id, AuditedState::Held, actor);
            let resolved = memory.resolve(id, seen, resolution, &audit).now_or_never();
            resolved.and_then(Result::ok).map(EventOutcome::Resolve)
        }
        // No process of a simulation sends these.
        Event::Remove(_) | Event::Replace(_) | Event::Append(_) | Event::Purge => None,
    };
    outcome.expect("the memory store never waits and never fails here")
}
