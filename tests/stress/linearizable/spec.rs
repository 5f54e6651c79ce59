//! The sequential specification: the state machine.

use bytes::Bytes;
use stateright::semantics::SequentialSpec;

use super::LEASE;
use idempotent_core::{
    Abandoned, OwnerToken, Record, RecordState,
    clock::Timestamp,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome},
    transition::{Change, Event, EventOutcome, transition},
};

/// Time stands still: a lease ends only when it is abandoned.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A key, as modeled by the state machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Key(Option<Record>);

#[derive(Clone, Debug)]
pub(super) enum Op {
    Claim(Claim),
    Complete(OwnerToken, Bytes),
    Release(OwnerToken),
    Renew(OwnerToken),
    Abandon(OwnerToken),
    LookUp,
}

/// The outcome of a call, without times.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallResult {
    Claim(ClaimOutcome),
    Fence(Fence),
    Seen(Option<(OwnerToken, u32, RecordState)>),
}

impl CallResult {
    pub(super) fn claim(outcome: ClaimOutcome) -> Self {
        let in_flight = matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }));
        Self::Claim(if in_flight { ClaimOutcome::IN_FLIGHT } else { outcome })
    }

    pub(super) fn renew(outcome: RenewOutcome) -> Self {
        Self::Fence(if outcome == RenewOutcome::Renewed { Fence::Passed } else { Fence::Fenced })
    }

    pub(super) fn seen(record: Option<&Record>) -> Self {
        Self::Seen(record.map(|record| (record.owner, record.attempt, record.state.clone())))
    }
}

impl SequentialSpec for Key {
    type Op = Op;
    type Ret = CallResult;

    fn invoke(&mut self, op: &Op) -> CallResult {
        let event = match op {
            Op::Claim(claim) => Event::Claim(claim),
            Op::Complete(owner, response) => Event::Complete(*owner, response),
            Op::Release(owner) => Event::Release(*owner),
            Op::Renew(owner) => Event::Renew(*owner, LEASE),
            Op::Abandon(owner) => Event::Abandon(*owner, Abandoned::Retry),
            Op::LookUp => return CallResult::seen(self.0.as_ref()),
        };
        let (change, outcome) = transition(self.0.as_ref(), &event, NOW);
        match change {
            Change::Keep => {}
            Change::Put(record) => self.0 = Some(record),
            Change::Remove => self.0 = None,
        }
        match outcome {
            EventOutcome::Claim(outcome) => CallResult::claim(outcome),
            EventOutcome::Fence(fence) => CallResult::Fence(fence),
            EventOutcome::Resolve(_)
            | EventOutcome::Changed(_)
            | EventOutcome::Appended
            | EventOutcome::Purge(_) => unreachable!("there is neither an operator nor a purge"),
        }
    }
}
