//! A fault-injecting store around any other store: its calls fail or hang, and its recordings are
//! damaged, as a test orders.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use idempotent_core::{
    Lease, RecordId, StoreError,
    clock::{ManualClock, Timestamp},
    protocol::Fence,
    store::{Store, memory::MemoryStore},
};
use tokio::sync::watch;

mod counts;
mod store_impl;

/// A call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of this name")]
pub enum Op {
    Check,
    Claim,
    Renew,
    Note,
    Complete,
    Release,
    Abandon,
    LookUp,
    Resolve,
    Purge,
    Resumable,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before it took effect.
    Before,
    /// After it took effect, so that its acknowledgment is lost.
    After,
    /// Before it took effect, with a permanent error, as for a missing privilege.
    Permanent,
    /// The record is damaged.
    Unreadable,
    /// It hangs until [`FaultyStore::resume`] is called, and takes effect then.
    HangBefore,
    /// It takes effect, and hangs until [`FaultyStore::resume`] is called.
    HangAfter,
    /// It panics before it took effect.
    Panic,
}

/// A store whose calls fail as a test orders. Clones share everything.
#[derive(Debug)]
pub struct FaultyStore<S = MemoryStore> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    /// The clock of `inner`, if the test controls it.
    clock: Option<ManualClock>,
    orders: Mutex<Orders>,
    /// Wakes the calls that hang.
    resumed: watch::Sender<usize>,
    state: watch::Sender<State>,
    counts: counts::Counts,
}

/// The faults of the next calls, each with the number of calls that it applies to.
type Faults = VecDeque<(Fault, usize)>;

/// What a test has ordered.
#[derive(Debug, Default)]
struct Orders {
    faults: HashMap<Op, Faults>,
    /// Records whose renewal never returns.
    hung_renewals: HashSet<RecordId>,
    /// How many further grants are reported as in flight.
    hidden_grants: usize,
}

#[derive(Debug, Default)]
struct State {
    ended: HashMap<Op, usize>,
    blocked: Option<Op>,
    damaged: bool,
}

impl FaultyStore {
    /// An empty store without faults, on this clock.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        Self::build(MemoryStore::with_clock(clock.clone()), Some(clock))
    }

    /// Moves the clock of the store.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.as_ref().expect("a clock that the test controls").advance(by);
    }
}

impl Default for FaultyStore {
    /// An empty store without faults, on a clock that stands still.
    fn default() -> Self {
        Self::new(ManualClock::at(Timestamp::from_millis(1_000_000)))
    }
}

impl<S: Store> FaultyStore<S> {
    /// A store that works like `inner` until a test injects a fault.
    #[must_use]
    pub fn around(inner: S) -> Self {
        Self::build(inner, None)
    }

    fn build(inner: S, clock: Option<ManualClock>) -> Self {
        let shared = Shared {
            inner,
            clock,
            orders: Mutex::default(),
            resumed: watch::Sender::default(),
            state: watch::Sender::default(),
            counts: counts::Counts::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The store without its faults.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// Adds a fault for `times` calls of this kind, after the faults that are already queued.
    /// `usize::MAX` stands for all calls.
    pub fn fail(&self, op: Op, times: usize, fault: Fault) {
        let mut orders = self.shared.orders.lock().unwrap();
        orders.faults.entry(op).or_default().push_back((fault, times));
    }

    /// Sets a fault for the next `times` calls of this kind, in place of the queued faults.
    pub fn set_fault(&self, op: Op, times: usize, fault: Fault) {
        self.shared.orders.lock().unwrap().faults.insert(op, [(fault, times)].into());
    }

    fn next_fault(&self, op: Op) -> Option<Fault> {
        let mut orders = self.shared.orders.lock().unwrap();
        let faults = orders.faults.get_mut(&op)?;
        while faults.pop_front_if(|(_, times)| *times == 0).is_some() {}
        let (fault, times) = faults.front_mut()?;
        *times -= 1;
        Some(*fault)
    }

    /// Removes all queued faults. Calls that hang continue to hang.
    pub fn heal(&self) {
        self.shared.orders.lock().unwrap().faults.clear();
    }

    /// Resumes the calls that are hanging now.
    pub fn resume(&self) {
        self.shared.resumed.send_modify(|resumed| *resumed += 1);
    }

    /// Blocks calls of this kind before they take effect; `None` unblocks them.
    pub fn block(&self, op: Option<Op>) {
        self.shared.state.send_modify(|state| state.blocked = op);
    }

    /// Flips a bit of every recording that is read.
    pub fn damage(&self) {
        self.shared.state.send_modify(|state| state.damaged = true);
    }

    /// Reports the next grants as in flight, as a store may while an earlier transmission of the
    /// same claim is being committed.
    pub fn hide_grants(&self, grants: usize) {
        self.shared.orders.lock().unwrap().hidden_grants = grants;
    }

    fn hides_grant(&self) -> bool {
        let mut orders = self.shared.orders.lock().unwrap();
        let hides = orders.hidden_grants > 0;
        orders.hidden_grants = orders.hidden_grants.saturating_sub(1);
        hides
    }

    /// Makes every renewal that contains this record hang forever.
    pub fn hang_renewals_of(&self, id: RecordId) {
        self.shared.orders.lock().unwrap().hung_renewals.insert(id);
    }

    /// Reverts [`hang_renewals_of`](Self::hang_renewals_of) for later renewals.
    pub fn allow_renewals(&self) {
        self.shared.orders.lock().unwrap().hung_renewals.clear();
    }

    /// Removes a record that is in flight, like a server that restarts without its data.
    pub async fn lose(&self, id: RecordId) {
        let found = self.inner().look_up(&id).await.unwrap().expect("a record to lose");
        let lease = Lease { id, owner: found.record.owner };
        assert_eq!(self.inner().release(&lease).await.unwrap(), Fence::Passed);
    }

    async fn call<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.wait_while_blocked(op).await;
        let mut resumed = self.shared.resumed.subscribe();
        let fault = self.next_fault(op);
        self.shared.counts.begin(op);
        let result = match fault {
            None => call.await,
            Some(Fault::Before) => Err(transient("start the call")),
            Some(Fault::Permanent) => {
                Err(StoreError::permanent("faulty", "execute the call", "the internal cause"))
            }
            Some(Fault::Unreadable) => {
                Err(StoreError::unreadable("faulty", "read the record", "the internal cause"))
            }
            Some(Fault::After) => call.await.and_then(|_| Err(transient("acknowledge the call"))),
            Some(Fault::HangBefore) => {
                drop(resumed.changed().await);
                call.await
            }
            Some(Fault::HangAfter) => {
                let outcome = call.await;
                drop(resumed.changed().await);
                outcome
            }
            Some(Fault::Panic) => panic!("the panic that the test ordered"),
        };
        self.shared.state.send_modify(|state| *state.ended.entry(op).or_default() += 1);
        result
    }

    async fn wait_while_blocked(&self, op: Op) {
        let blocked = |state: &State| state.blocked == Some(op);
        if blocked(&self.shared.state.borrow()) {
            let mut state = self.shared.state.subscribe();
            drop(state.wait_for(|state| !blocked(state)).await);
        }
    }
}

fn transient(operation: &'static str) -> StoreError {
    StoreError::transient("faulty", operation, "the internal cause")
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}
