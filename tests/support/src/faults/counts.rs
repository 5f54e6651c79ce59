//! What a [`FaultyStore`] has counted.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use idempotent_core::{
    RecordId,
    protocol::{RenewOutcome, Renewal},
    store::Store,
};

use super::{FaultyStore, Op, State};
use crate::wait_for;

#[derive(Debug, Default)]
pub(super) struct Counts {
    begun: Mutex<HashMap<Op, usize>>,
    renewals: Mutex<Renewals>,
    purged: Mutex<u64>,
    alone: Arc<Alone>,
    /// Each thread that has renewed or purged holds a clone, until it ends.
    thread: Arc<()>,
}

#[derive(Debug, Default)]
struct Renewals {
    /// The number of leases in each renewal that returned outcomes.
    batches: Vec<usize>,
    by_record: HashMap<RecordId, usize>,
}

/// The renewals of a single lease that hang now, and the most that did at a time.
#[derive(Debug, Default)]
struct Alone {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A renewal that hangs, until it is dropped.
pub(super) struct Hanging(Option<Arc<Alone>>);

impl Drop for Hanging {
    fn drop(&mut self) {
        if let Some(alone) = &self.0 {
            alone.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

thread_local! {
    static THREAD: RefCell<Option<Arc<()>>> = const { RefCell::new(None) };
}

impl Counts {
    pub(super) fn begin(&self, op: Op) {
        *self.begun.lock().unwrap().entry(op).or_default() += 1;
    }

    pub(super) fn renewed(&self, leases: &[Renewal], outcomes: &[RenewOutcome]) {
        let mut renewals = self.renewals.lock().unwrap();
        renewals.batches.push(leases.len());
        for (renewal, outcome) in leases.iter().zip(outcomes) {
            if *outcome == RenewOutcome::Renewed {
                *renewals.by_record.entry(renewal.lease.id).or_default() += 1;
            }
        }
    }

    pub(super) fn hanging(&self, leases: &[Renewal]) -> Hanging {
        let alone = (leases.len() == 1).then(|| self.alone.clone());
        if let Some(alone) = &alone {
            let now = alone.now.fetch_add(1, Ordering::SeqCst) + 1;
            alone.most.fetch_max(now, Ordering::SeqCst);
        }
        Hanging(alone)
    }

    pub(super) fn purged(&self, records: u64) {
        *self.purged.lock().unwrap() += records;
    }

    pub(super) fn mark_thread(&self) {
        THREAD.with_borrow_mut(|thread| *thread = Some(self.thread.clone()));
    }
}

impl<S: Store> FaultyStore<S> {
    /// How many calls of this kind have ended, including failed ones.
    #[must_use]
    pub fn calls(&self, op: Op) -> usize {
        self.shared.state.borrow().ended.get(&op).copied().unwrap_or(0)
    }

    /// How many calls of this kind have begun, including failed and hanging ones.
    #[must_use]
    pub fn begun(&self, op: Op) -> usize {
        self.shared.counts.begun.lock().unwrap().get(&op).copied().unwrap_or(0)
    }

    /// Waits until this many calls of this kind have ended.
    pub fn await_calls(&self, op: Op, calls: usize) {
        let mut state = self.shared.state.subscribe();
        let ended = |state: &State| state.ended.get(&op).is_some_and(|ended| *ended >= calls);
        wait_for(&format!("{calls} calls of {op:?}"), async {
            state.wait_for(ended).await.map(drop)
        })
        .unwrap();
    }

    /// The number of leases in each renewal that returned outcomes.
    #[must_use]
    pub fn batches(&self) -> Vec<usize> {
        self.shared.counts.renewals.lock().unwrap().batches.clone()
    }

    /// How many renewals of a single lease have hung at the same time, at most.
    #[must_use]
    pub fn most_hanging_alone(&self) -> usize {
        self.shared.counts.alone.most.load(Ordering::SeqCst)
    }

    /// How many times the lease of a record was renewed.
    #[must_use]
    pub fn renewals(&self, id: &RecordId) -> usize {
        self.shared.counts.renewals.lock().unwrap().by_record.get(id).copied().unwrap_or(0)
    }

    /// How many records were purged.
    #[must_use]
    pub fn purged(&self) -> u64 {
        *self.shared.counts.purged.lock().unwrap()
    }

    /// Whether a thread that has renewed or purged is still alive.
    #[must_use]
    pub fn thread_is_alive(&self) -> bool {
        Arc::strong_count(&self.shared.counts.thread) > 1
    }

    /// How many handles of the store exist: this one and its clones.
    #[must_use]
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.shared)
    }
}
