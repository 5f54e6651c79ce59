//! The database that all processes share: records, effects, row locks, transactions, one clock.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, ShortText,
    clock::{ManualClock, Timestamp, millis},
    protocol::{
        Claim, ClaimOutcome, Note, RenewOutcome, Renewal, Resolution, ResumablePage, Snapshot,
    },
    store::{Store, memory::MemoryStore},
    transition::{Change, Event, EventOutcome, transition},
};
use tokio::sync::Notify;

use self::in_memory::{set, step_in_memory};
use crate::{operation::Run, world::World};

mod first_claims;
mod in_memory;
mod transactions;

/// The time of the database when a history begins.
const BEGIN: u64 = 1_700_000_000_000;
/// How long a statement waits for a row lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// A statement, as it is sent to the database.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Claim(RecordId, Claim),
    Renew(Vec<Renewal>),
    Note(Lease, Note),
    Complete(Lease, Bytes),
    /// Completes a claim whose value in Redis is still this one; the recording is kept for this
    /// time.
    CompleteFirst(Lease, Bytes, Bytes, Duration),
    Release(Lease),
    Abandon(Lease, Abandoned),
    LookUp(RecordId),
    Resolve(RecordId, OwnerToken, Resolution),
    Purge(u32),
    Resumable(ShortText, Option<RecordId>, u32),
    /// Claims and completions that are executed together.
    Batch(Vec<Statement>),
    Begin(u64),
    ClaimIn(u64, RecordId, Claim, Duration),
    Insert(u64, Run),
    NoteIn(u64, Lease, Note),
    CompleteIn(u64, Lease, Bytes),
    AbandonIn(u64, Lease, Abandoned),
    Undo(u64),
    Commit(u64),
    CompleteAndCommit(u64, Lease, Bytes),
    RollBack(u64),
}

/// The response to a statement.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done,
    Step(EventOutcome),
    Renewed(Vec<RenewOutcome>),
    Found(Option<Box<Snapshot>>),
    Purged(u64),
    Resumable(ResumablePage),
    Batch(Vec<Reply>),
    /// The value is not the expected one.
    Changed,
    /// The statement has failed, and has changed nothing.
    Failed(&'static str),
}

pub(crate) struct Database {
    world: Arc<World>,
    state: Mutex<State>,
    unlocked: Notify,
}

struct State {
    /// How far the clock has been set forward, or back, in milliseconds.
    offset: i64,
    records: BTreeMap<RecordId, Record>,
    /// The shipped store, which takes each step beside the state machine.
    memory: Option<(MemoryStore, ManualClock)>,
    /// The transactions that have a row locked.
    locks: BTreeMap<RecordId, u64>,
    /// When the owners of first claims were granted them, since the history began.
    granted: BTreeMap<[u8; 16], Duration>,
    open: BTreeMap<u64, transactions::Open>,
}

impl Database {
    /// With `memory`, the shipped memory store takes each step as well, and transactions are not
    /// supported.
    pub(crate) fn new(world: Arc<World>, memory: bool) -> Arc<Self> {
        let clock = ManualClock::at(Timestamp::from_millis(BEGIN));
        let memory =
            memory.then(|| (MemoryStore::with_clock(clock.clone()).max_records(512), clock));
        let state = State {
            offset: 0,
            records: BTreeMap::new(),
            memory,
            locks: BTreeMap::new(),
            granted: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        Arc::new(Self { world, state: Mutex::new(state), unlocked: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_transactions(&self) -> bool {
        self.state().memory.is_none()
    }

    /// Sets the clock forward, or back.
    pub(crate) fn step_clock(&self, by: i64) {
        let mut state = self.state();
        state.offset = state.offset.saturating_add(by);
        let offset = state.offset;
        drop(state);
        self.world.oracle(|oracle| oracle.health.clock_stepped());
        self.world.trace(|| format!("clock: set by {by} ms, {offset} ms in all"));
    }

    /// All records.
    pub(crate) fn records(&self) -> Vec<(RecordId, Record)> {
        self.state().records.iter().map(|(id, record)| (*id, record.clone())).collect()
    }

    /// The present time of the database.
    pub(crate) fn now(&self) -> Timestamp {
        self.now_of(&self.state())
    }

    fn now_of(&self, state: &State) -> Timestamp {
        let now = BEGIN + millis(self.world.elapsed());
        Timestamp::from_millis(now.saturating_add_signed(state.offset))
    }

    /// Executes a statement once its row is not locked.
    pub(crate) async fn execute(&self, statement: Statement) -> Reply {
        let limit = match &statement {
            Statement::ClaimIn(_, _, _, wait) => *wait.max(&Duration::from_millis(50)),
            _ => LOCK_TIMEOUT,
        };
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let unlocked = self.unlocked.notified();
            if let Some(reply) = self.try_execute(&statement) {
                return reply;
            }
            if tokio::time::timeout_at(deadline, unlocked).await.is_err() {
                return match statement {
                    Statement::ClaimIn(tx, ..) => {
                        self.end(&mut self.state(), tx);
                        Reply::Step(EventOutcome::Claim(ClaimOutcome::IN_FLIGHT))
                    }
                    _ => Reply::Failed("lock timeout"),
                };
            }
        }
    }

    /// `None` if the row is locked by another transaction.
    fn try_execute(&self, statement: &Statement) -> Option<Reply> {
        let state = &mut *self.state();
        let step = |state: &mut State, id: &RecordId, event: Event<'_>| {
            let free = !state.locks.contains_key(id);
            free.then(|| Reply::Step(self.step(state, id, &event)))
        };
        match statement {
            Statement::Claim(id, claim) => step(state, id, Event::Claim(claim)),
            Statement::Note(Lease { id, owner }, note) => {
                step(state, id, Event::Note(*owner, note))
            }
            Statement::Complete(Lease { id, owner }, recording) => {
                step(state, id, Event::Complete(*owner, recording))
            }
            Statement::CompleteFirst(lease, recording, value, left) => {
                let free = !state.locks.contains_key(&lease.id);
                free.then(|| self.complete_first(state, lease, recording, (value, *left)))
            }
            Statement::Release(Lease { id, owner }) => step(state, id, Event::Release(*owner)),
            Statement::Abandon(Lease { id, owner }, policy) => {
                step(state, id, Event::Abandon(*owner, *policy))
            }
            Statement::Resolve(id, seen, resolution) => {
                step(state, id, Event::Resolve(*seen, resolution))
            }
            Statement::Renew(renewals) => Some(Reply::Renewed(self.renew(state, renewals))),
            Statement::LookUp(id) => Some(Reply::Found(self.look_up(state, id).map(Box::new))),
            Statement::Purge(limit) => Some(Reply::Purged(self.purge(state, *limit))),
            Statement::Resumable(operation, after, limit) => {
                let page = self.resumable(state, operation, after.as_ref(), *limit);
                Some(Reply::Resumable(page))
            }
            Statement::Batch(steps) => Some(self.execute_batch(state, steps)),
            Statement::Begin(tx)
            | Statement::ClaimIn(tx, ..)
            | Statement::Insert(tx, _)
            | Statement::NoteIn(tx, ..)
            | Statement::CompleteIn(tx, ..)
            | Statement::AbandonIn(tx, ..)
            | Statement::Undo(tx)
            | Statement::Commit(tx)
            | Statement::CompleteAndCommit(tx, ..)
            | Statement::RollBack(tx) => self.execute_in(state, *tx, statement),
        }
    }

    /// Executes all steps, or none if one of their rows is locked.
    fn execute_batch(&self, state: &mut State, steps: &[Statement]) -> Reply {
        let events = steps.iter().map(|step| match step {
            Statement::Claim(id, claim) => (id, Event::Claim(claim)),
            Statement::Complete(Lease { id, owner }, recording) => {
                (id, Event::Complete(*owner, recording))
            }
            other => panic!("{other:?} is not part of a batch"),
        });
        let events: Vec<_> = events.collect();
        if events.iter().any(|(id, _)| state.locks.contains_key(id)) {
            return Reply::Failed("lock timeout");
        }
        let mut step =
            |(id, event): (&RecordId, Event<'_>)| Reply::Step(self.step(state, id, &event));
        Reply::Batch(events.into_iter().map(&mut step).collect())
    }

    /// Takes one step of the state machine with a committed record.
    fn step(&self, state: &mut State, id: &RecordId, event: &Event<'_>) -> EventOutcome {
        let now = self.now_of(state);
        let before = state.records.get(id).cloned();
        let (change, expected) = transition(before.as_ref(), event, now);
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                state.records.insert(*id, record);
            }
            Change::Remove => {
                state.records.remove(id);
            }
        }
        if let EventOutcome::Claim(ClaimOutcome::Granted { attempt: 1 }) = expected
            && let Event::Claim(claim) = event
        {
            state.granted.entry(*claim.owner.as_bytes()).or_insert(self.world.elapsed());
        }
        let after = state.records.get(id).cloned();
        let outcome = match &state.memory {
            None => expected,
            Some((memory, clock)) => {
                set(clock, now);
                let outcome = step_in_memory(memory, id, event);
                self.compare(memory, id, (&expected, &outcome), after.as_ref(), now);
                outcome
            }
        };
        self.world.trace(|| format!("database: {event:?} -> {outcome:?}"));
        self.world.oracle(|oracle| {
            oracle.stepped(id, event, &outcome, before.as_ref(), after.as_ref(), now);
        });
        outcome
    }

    fn compare(
        &self,
        memory: &MemoryStore,
        id: &RecordId,
        (expected, outcome): (&EventOutcome, &EventOutcome),
        after: Option<&Record>,
        now: Timestamp,
    ) {
        let found = memory.look_up(id).now_or_never().and_then(Result::ok).flatten();
        let found = found.map(|found| found.record);
        let left = after.filter(|record| !record.is_expired(now));
        if expected != outcome || found.as_ref() != left {
            self.world.oracle(|oracle| {
                oracle.violated(format!(
                    "the memory store differs from the state machine: {outcome:?} and {found:?}, \
                     not {expected:?} and {left:?}"
                ));
            });
        }
    }

    fn renew(&self, state: &mut State, renewals: &[Renewal]) -> Vec<RenewOutcome> {
        let renew = |renewal: &Renewal| {
            let Lease { id, owner } = renewal.lease;
            if state.locks.contains_key(&id) {
                return RenewOutcome::Unknown;
            }
            match self.step(state, &id, &Event::Renew(owner, renewal.extend)) {
                EventOutcome::Fence(fence) => fence.into(),
                _ => RenewOutcome::Unknown,
            }
        };
        renewals.iter().map(renew).collect()
    }

    fn look_up(&self, state: &State, id: &RecordId) -> Option<Snapshot> {
        let now = self.now_of(state);
        let record = state.records.get(id).filter(|record| !record.is_expired(now));
        let found = record.map(|record| Snapshot::new(record.clone(), now));
        self.world.trace(|| format!("database: look up -> {found:?}"));
        found
    }

    fn resumable(
        &self,
        state: &State,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> ResumablePage {
        let now = self.now_of(state);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let ids = state.records.iter().filter(|(id, record)| {
            record.is_resumable(now)
                && record.operation == *operation
                && after.is_none_or(|after| *id > after)
        });
        let page = ResumablePage::of(ids.map(|(id, _)| *id).take(most).collect(), limit);
        if let Some((memory, clock)) = &state.memory {
            set(clock, now);
            let found = memory.resumable(operation, after, limit).now_or_never();
            let found = found.and_then(Result::ok).unwrap_or_default();
            if found != page {
                self.world.oracle(|oracle| {
                    oracle.violated(format!("the memory store can resume {found:?}, not {page:?}"));
                });
            }
        }
        page
    }

    fn purge(&self, state: &mut State, limit: u32) -> u64 {
        let ids: Vec<_> =
            state.records.keys().filter(|id| !state.locks.contains_key(id)).copied().collect();
        let memory = state.memory.take();
        let mut removed = 0;
        for id in ids {
            if removed < u64::from(limit)
                && self.step(state, &id, &Event::Purge) == EventOutcome::Purge(true)
            {
                removed += 1;
            }
        }
        if let Some((memory, clock)) = &memory {
            set(clock, self.now_of(state));
            let purged = memory.purge(limit).now_or_never().and_then(Result::ok);
            if purged != Some(removed) {
                self.world.oracle(|oracle| {
                    oracle.violated(format!("the memory store purged {purged:?}, not {removed}"));
                });
            }
        }
        state.memory = memory;
        removed
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}
