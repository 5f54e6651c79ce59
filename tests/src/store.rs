//! A store that fails when a test wants it to.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, StoreError,
    clock::ManualClock,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    store::{Store, Transactions, memory::MemoryStore},
};
use tokio::sync::watch;

use crate::wait_for;

/// A call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of this name")]
pub enum Op {
    Claim,
    Renew,
    Complete,
    Release,
    Abandon,
    LookUp,
    Resolve,
    Purge,
}

/// When a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before it took effect.
    Before,
    /// After it took effect: its acknowledgement is lost.
    After,
    /// Before it took effect, for a reason that lasts: a missing privilege, say.
    Permanent,
    /// The record is damaged.
    Unreadable,
}

/// A memory store with faults to order. Clones share everything.
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<MemoryStore>,
    faults: Arc<Mutex<HashMap<Op, VecDeque<Fault>>>>,
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<Op, usize>,
    blocked: Option<Op>,
    damaged: bool,
}

impl FaultyStore {
    /// An empty store that works, on this clock.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        Self { inner: Arc::new(MemoryStore::with_clock(clock)), faults: Arc::default(), state: Arc::default() }
    }

    /// Lets the next calls of a kind fail.
    pub fn fail(&self, op: Op, times: usize, fault: Fault) {
        let mut faults = self.faults.lock().unwrap();
        faults.entry(op).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// No further call fails.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// Holds the calls of a kind up before they take effect, or lets all go on.
    pub fn block(&self, op: Option<Op>) {
        self.state.send_modify(|state| state.blocked = op);
    }

    /// Flips a bit of every recording that is read.
    pub fn damage(&self) {
        self.state.send_modify(|state| state.damaged = true);
    }

    /// How many calls of a kind have ended, failed ones counted.
    #[must_use]
    pub fn calls(&self, op: Op) -> usize {
        self.state.borrow().calls.get(&op).copied().unwrap_or(0)
    }

    /// Waits until so many calls of a kind have ended.
    pub fn await_calls(&self, op: Op, calls: usize) {
        let mut state = self.state.subscribe();
        let ended = |state: &State| state.calls.get(&op).is_some_and(|ended| *ended >= calls);
        wait_for(&format!("{op:?}"), async { state.wait_for(ended).await.map(drop) }).unwrap();
    }

    async fn call<T>(&self, op: Op, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut state = self.state.subscribe();
        drop(state.wait_for(|state| state.blocked != Some(op)).await);
        let fault = self.faults.lock().unwrap().get_mut(&op).and_then(VecDeque::pop_front);
        let failed = || StoreError::transient("faulty", "do as it was told", "the internal cause");
        let result = match fault {
            None => call.await,
            Some(Fault::Before) => Err(failed()),
            Some(Fault::Permanent) => Err(StoreError::permanent("faulty", "do it", "the internal cause")),
            Some(Fault::Unreadable) => Err(StoreError::unreadable("faulty", "read it", "the internal cause")),
            Some(Fault::After) => call.await.and_then(|_| Err(failed())),
        };
        self.state.send_modify(|state| *state.calls.entry(op).or_default() += 1);
        result
    }

    fn read(&self, recording: &Bytes) -> Bytes {
        let mut bytes = recording.to_vec();
        if let Some(byte) = bytes.first_mut().filter(|_| self.state.borrow().damaged) {
            *byte ^= 0x40;
        }
        bytes.into()
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.inner.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }

    fn namespace(&self) -> Option<&str> {
        self.inner.namespace()
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.call(Op::Claim, self.inner.claim(id, claim)).await?;
        let ClaimOutcome::Completed(recording) = outcome else { return Ok(outcome) };
        Ok(ClaimOutcome::Completed(self.read(&recording)))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.call(Op::Renew, self.inner.renew(leases)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.call(Op::Complete, self.inner.complete(lease, recording)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.call(Op::Release, self.inner.release(lease)).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.call(Op::Abandon, self.inner.abandon(lease, policy)).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.call(Op::LookUp, self.inner.look_up(id)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        self.call(Op::Resolve, self.inner.resolve(id, seen, resolution)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.call(Op::Purge, self.inner.purge(limit)).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }
}
