//! A store in memory that fails and hangs on command, and counts what it is asked.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::{
    clock::{ManualClock, Timestamp},
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record_id::RecordId,
    store::{Store, memory::MemoryStore},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Claim,
    Renew,
    Complete,
    Release,
    Abandon,
    LookUp,
    Purge,
    Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing happens, and an error is told.
    Before,
    /// It happens, and an error is told.
    After,
    /// As `Before`, with an error that stays.
    Permanent,
    /// It happens once [`Faulty::let_go`] is called.
    HangBefore,
    /// It happens, and is told once [`Faulty::let_go`] is called.
    HangAfter,
    Panic,
}

/// Clones are the same store.
#[derive(Clone)]
pub(super) struct Faulty {
    shared: Arc<Shared>,
}

struct Shared {
    store: MemoryStore,
    clock: ManualClock,
    faults: Mutex<HashMap<Op, (Fault, usize)>>,
    calls: Mutex<HashMap<Op, usize>>,
    batches: Mutex<Vec<usize>>,
    renewed: Mutex<HashMap<RecordId, usize>>,
    stuck: Mutex<HashSet<RecordId>>,
    hidden: Mutex<usize>,
    purged: Mutex<u64>,
    gate: watch::Sender<usize>,
    thread: Arc<()>,
}

thread_local! {
    static THREAD: RefCell<Option<Arc<()>>> = const { RefCell::new(None) };
}

impl Faulty {
    pub(super) fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
        let shared = Shared {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            faults: Mutex::default(),
            calls: Mutex::default(),
            batches: Mutex::default(),
            renewed: Mutex::default(),
            stuck: Mutex::default(),
            hidden: Mutex::default(),
            purged: Mutex::default(),
            gate: watch::Sender::new(0),
            thread: Arc::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The store without its faults.
    pub(super) fn inner(&self) -> &MemoryStore {
        &self.shared.store
    }

    pub(super) fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// The next so many calls of a kind meet a fault.
    pub(super) fn fail(&self, op: Op, fault: Fault, times: usize) {
        self.shared.faults.lock().unwrap().insert(op, (fault, times));
    }

    /// No further call meets a fault; those that hang go on hanging.
    pub(super) fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Lets the calls go on that hang now.
    pub(super) fn let_go(&self) {
        self.shared.gate.send_modify(|gate| *gate += 1);
    }

    /// The next grants are reported as in flight, as while an earlier sending of the same claim is being committed.
    pub(super) fn hide_grants(&self, grants: usize) {
        *self.shared.hidden.lock().unwrap() = grants;
    }

    fn hides_grant(&self) -> bool {
        let mut hidden = self.shared.hidden.lock().unwrap();
        let hides = *hidden > 0;
        *hidden = hidden.saturating_sub(1);
        hides
    }

    /// How often it was asked, faults and all.
    pub(super) fn calls(&self, op: Op) -> usize {
        self.shared.calls.lock().unwrap().get(&op).copied().unwrap_or(0)
    }

    /// How many leases each renewal had that was answered.
    pub(super) fn batches(&self) -> Vec<usize> {
        self.shared.batches.lock().unwrap().clone()
    }

    /// Lets every renewal hang for ever that has this record in it.
    pub(super) fn stick(&self, id: RecordId) {
        self.shared.stuck.lock().unwrap().insert(id);
    }

    /// Lets renewals go on again; those that hang go on hanging.
    pub(super) fn unstick(&self) {
        self.shared.stuck.lock().unwrap().clear();
    }

    /// How often a record's lease was renewed.
    pub(super) fn renewals(&self, id: &RecordId) -> usize {
        self.shared.renewed.lock().unwrap().get(id).copied().unwrap_or(0)
    }

    /// Forgets a record that is in flight, as a server does that restarts without its data.
    pub(super) async fn lose(&self, id: RecordId) {
        let found = self.inner().look_up(&id).await.unwrap().expect("there is nothing to lose");
        let lease = Lease { id, owner: found.record.owner };
        assert_eq!(self.inner().release(&lease).await.unwrap(), Fence::Passed);
    }

    /// How many records were purged.
    pub(super) fn purged(&self) -> u64 {
        *self.shared.purged.lock().unwrap()
    }

    /// Whether a thread that has renewed or purged is still alive.
    pub(super) fn thread_is_alive(&self) -> bool {
        Arc::strong_count(&self.shared.thread) > 1
    }

    /// How many hold the store: this handle and its clones.
    pub(super) fn holders(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    fn mark_thread(&self) {
        THREAD.with_borrow_mut(|thread| *thread = Some(self.shared.thread.clone()));
    }

    async fn meet<T>(&self, op: Op, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut gate = self.shared.gate.subscribe();
        let fault = self.next_fault(op);
        *self.shared.calls.lock().unwrap().entry(op).or_default() += 1;
        match fault {
            None => call.await,
            Some(Fault::Before) => Err(StoreError::transient("faulty", "do it", "a fault")),
            Some(Fault::Permanent) => Err(StoreError::permanent("faulty", "do it", "a lasting fault")),
            Some(Fault::After) => {
                call.await?;
                Err(StoreError::transient("faulty", "say so", "a fault"))
            }
            Some(Fault::HangBefore) => {
                let _ = gate.changed().await;
                call.await
            }
            Some(Fault::HangAfter) => {
                let outcome = call.await;
                let _ = gate.changed().await;
                outcome
            }
            Some(Fault::Panic) => panic!("the store panics, as it was told to"),
        }
    }

    fn next_fault(&self, op: Op) -> Option<Fault> {
        let mut faults = self.shared.faults.lock().unwrap();
        let (fault, times) = faults.get_mut(&op).filter(|(_, times)| *times > 0)?;
        *times -= 1;
        Some(*fault)
    }
}

#[async_trait]
impl Store for Faulty {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.inner().migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.meet(Op::Check, self.inner().check()).await
    }

    fn namespace(&self) -> Option<&str> {
        None
    }
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        match self.meet(Op::Claim, self.inner().claim(id, claim)).await {
            Ok(ClaimOutcome::Granted { .. }) if self.hides_grant() => {
                Ok(ClaimOutcome::InFlight { lease_left: Duration::ZERO })
            }
            outcome => outcome,
        }
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.mark_thread();
        let stuck = leases.iter().any(|renewal| self.shared.stuck.lock().unwrap().contains(&renewal.lease.id));
        if stuck {
            *self.shared.calls.lock().unwrap().entry(Op::Renew).or_default() += 1;
            std::future::pending::<()>().await;
        }
        let fences = self.meet(Op::Renew, self.inner().renew(leases)).await?;
        self.shared.batches.lock().unwrap().push(leases.len());
        for (renewal, _) in leases.iter().zip(&fences).filter(|(_, outcome)| **outcome == RenewOutcome::Renewed) {
            *self.shared.renewed.lock().unwrap().entry(renewal.lease.id).or_default() += 1;
        }
        Ok(fences)
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.meet(Op::Complete, self.inner().complete(lease, recording)).await
    }
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.meet(Op::Release, self.inner().release(lease)).await
    }
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.meet(Op::Abandon, self.inner().abandon(lease, policy)).await
    }
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.meet(Op::LookUp, self.inner().look_up(id)).await
    }
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        self.inner().resolve(id, seen, resolution).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.mark_thread();
        let removed = self.meet(Op::Purge, self.inner().purge(limit)).await?;
        *self.shared.purged.lock().unwrap() += removed;
        Ok(removed)
    }
    fn transactions(&self) -> Option<&dyn crate::store::Transactions> {
        None
    }
}
