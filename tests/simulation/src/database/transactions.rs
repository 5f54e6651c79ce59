//! Transactions of the simulated database: one connection each, with row locks.

use bytes::Bytes;
use idempotent_core::{
    Lease, Record, RecordId, RecordState,
    protocol::{ClaimOutcome, Fence},
    transition::{self, Change, Event, EventOutcome, transition},
};

use super::{Database, Reply, State, Statement};
use crate::operation::Run;

/// An open transaction.
#[derive(Default)]
pub(super) struct Open {
    /// The record that it has locked, with its state inside the transaction.
    record: Option<(RecordId, Option<Record>)>,
    effects: Vec<Run>,
    /// Whether the claim is part of the transaction.
    claims: bool,
}

impl Database {
    /// Executes a statement of a transaction; `None` if it has to wait for a row lock.
    pub(super) fn execute_in(
        &self,
        state: &mut State,
        tx: u64,
        statement: &Statement,
    ) -> Option<Reply> {
        if let Statement::Begin(_) | Statement::ClaimIn(..) = statement {
            state.open.entry(tx).or_default();
        }
        if !state.open.contains_key(&tx) {
            return Some(match statement {
                Statement::RollBack(_) => Reply::Done,
                _ => Reply::Failed("no transaction is open"),
            });
        }
        let reply = match statement {
            Statement::ClaimIn(_, id, claim, _) => return self.claim_in(state, tx, id, claim),
            Statement::Insert(_, run) => {
                state.open.entry(tx).or_default().effects.push(*run);
                Reply::Done
            }
            Statement::NoteIn(_, Lease { id, owner }, note) => {
                Reply::Step(self.step_in(state, tx, id, &Event::Note(*owner, note))?)
            }
            Statement::CompleteIn(_, lease, recording) => {
                Reply::Step(self.complete_in(state, tx, lease, recording)?)
            }
            Statement::AbandonIn(_, Lease { id, owner }, policy) => {
                Reply::Step(self.step_in(state, tx, id, &Event::Abandon(*owner, *policy))?)
            }
            Statement::Undo(_) => {
                state.open.entry(tx).or_default().effects.clear();
                Reply::Done
            }
            Statement::Commit(_) => {
                self.commit(state, tx);
                Reply::Done
            }
            Statement::CompleteAndCommit(_, lease, recording) => {
                let outcome = self.complete_in(state, tx, lease, recording)?;
                match outcome {
                    EventOutcome::Fence(Fence::Passed) => self.commit(state, tx),
                    _ => self.end(state, tx),
                }
                Reply::Step(outcome)
            }
            Statement::RollBack(_) => {
                self.end(state, tx);
                Reply::Done
            }
            _ => Reply::Done,
        };
        self.world.trace(|| format!("database: in transaction {tx} -> {reply:?}"));
        Some(reply)
    }

    fn complete_in(
        &self,
        state: &mut State,
        tx: u64,
        Lease { id, owner }: &Lease,
        recording: &Bytes,
    ) -> Option<EventOutcome> {
        self.step_in(state, tx, id, &Event::Complete(*owner, recording))
    }

    /// Takes a step with a record inside the transaction, which locks the record.
    fn step_in(
        &self,
        state: &mut State,
        tx: u64,
        id: &RecordId,
        event: &Event<'_>,
    ) -> Option<EventOutcome> {
        if state.locks.get(id).is_some_and(|locked_by| *locked_by != tx) {
            return None;
        }
        let now = self.now_of(state);
        let committed = state.records.get(id).cloned();
        let open = state.open.entry(tx).or_default();
        let record = match &open.record {
            Some((locked, record)) if locked == id => record.clone(),
            _ => committed,
        };
        let (change, outcome) = transition(record.as_ref(), event, now);
        let after = match change {
            Change::Keep => record,
            Change::Put(record) => Some(record),
            Change::Remove => None,
        };
        open.record = Some((*id, after));
        state.locks.insert(*id, tx);
        Some(outcome)
    }

    /// Claims a key inside a transaction, which ends if the claim is not granted.
    fn claim_in(
        &self,
        state: &mut State,
        tx: u64,
        id: &RecordId,
        claim: &idempotent_core::protocol::Claim,
    ) -> Option<Reply> {
        if state.locks.contains_key(id) {
            return None;
        }
        let now = self.now_of(state);
        let (_, outcome) = transition::claim(state.records.get(id), claim, now);
        let outcome = if let ClaimOutcome::Granted { .. } = outcome {
            self.world.oracle(|oracle| oracle.claimed_in(id, state.records.get(id), claim, now));
            state.open.entry(tx).or_default().claims = true;
            self.step_in(state, tx, id, &Event::Claim(claim))?
        } else {
            // A claim that holds the key is not part of the transaction.
            let outcome = self.step(state, id, &Event::Claim(claim));
            self.end(state, tx);
            outcome
        };
        self.world.trace(|| format!("database: claim in transaction {tx} -> {outcome:?}"));
        Some(Reply::Step(outcome))
    }

    fn commit(&self, state: &mut State, tx: u64) {
        let now = self.now_of(state);
        if let Some(Open { record, effects, claims }) = state.open.get_mut(&tx).map(std::mem::take)
        {
            let before = record.as_ref().and_then(|(id, _)| state.records.get(id).cloned());
            let after = record.as_ref().and_then(|(_, record)| record.clone());
            if let Some((id, record)) = record {
                self.world.oracle(|oracle| {
                    // Whether a claim could replace the record was verified when it was granted.
                    let replaced = before.as_ref().filter(|_| !claims);
                    oracle.track(&id, before.as_ref(), after.as_ref());
                    oracle.committed(&id, replaced, after.as_ref(), &effects, now);
                });
                match record {
                    Some(record) => state.records.insert(id, record),
                    None => state.records.remove(&id),
                };
                state.open.entry(tx).or_default().record = Some((id, None));
            } else if !effects.is_empty() {
                self.world.oracle(|oracle| {
                    oracle.violated(format!("effects without a record: {effects:?}"));
                });
            }
            self.world.trace(|| {
                let completed =
                    after.is_some_and(|it| matches!(it.state, RecordState::Completed(_)));
                format!("database: transaction {tx} committed {effects:?}, completed: {completed}")
            });
        }
        self.end(state, tx);
    }

    /// Ends a transaction; what it has written is undone unless it was committed.
    pub(super) fn end(&self, state: &mut State, tx: u64) {
        state.open.remove(&tx);
        state.locks.retain(|_, locked_by| *locked_by != tx);
        self.unlocked.notify_waiters();
    }
}
