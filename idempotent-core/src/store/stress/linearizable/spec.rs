//! One call after another: the pure function.

use std::time::Duration;

use bytes::Bytes;
use stateright::semantics::SequentialSpec;

use super::LEASE;
use crate::{
    clock::Timestamp,
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome},
    record::{Record, RecordState},
    transition::{Change, Event, Outcome, transition},
};

/// Time stands still: no lease ends but by being given up.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A key, as the pure function has it.
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

/// What a call came to, without times.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Claim(ClaimOutcome),
    Fence(Fence),
    Seen(Option<(OwnerToken, u32, RecordState)>),
}

impl Told {
    pub(super) fn claim(outcome: ClaimOutcome) -> Self {
        let in_flight = matches!(outcome, ClaimOutcome::InFlight { .. });
        Self::Claim(if in_flight { ClaimOutcome::InFlight { lease_left: Duration::ZERO } } else { outcome })
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
    type Ret = Told;

    fn invoke(&mut self, op: &Op) -> Told {
        let event = match op {
            Op::Claim(claim) => Event::Claim(claim),
            Op::Complete(owner, answer) => Event::Complete(*owner, answer),
            Op::Release(owner) => Event::Release(*owner),
            Op::Renew(owner) => Event::Renew(*owner, LEASE),
            Op::Abandon(owner) => Event::Abandon(*owner, Abandoned::Retry),
            Op::LookUp => return Told::seen(self.0.as_ref()),
        };
        let (change, outcome) = transition(self.0.as_ref(), &event, NOW);
        match change {
            Change::Keep => {}
            Change::Put(record) => self.0 = Some(record),
            Change::Remove => self.0 = None,
        }
        match outcome {
            Outcome::Claim(outcome) => Told::claim(outcome),
            Outcome::Fence(fence) => Told::Fence(fence),
            Outcome::Resolve(_) | Outcome::Purge(_) => unreachable!("nobody resolves or purges"),
        }
    }
}
