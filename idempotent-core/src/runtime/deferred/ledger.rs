//! The bookkeeping of deferred ends: which record has one, and the memory that they take.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::watch;

use super::end::{DeferredEnd, EndState};
use crate::record_id::RecordId;

#[derive(Default)]
pub(in crate::runtime) struct Ledger {
    /// The ends that decide the outcome of later requests.
    by_record: Mutex<HashMap<RecordId, Arc<DeferredEnd>>>,
    /// The number of ends in `by_record`. If it is 0, a claim need not take the lock.
    count: AtomicUsize,
    load: watch::Sender<Load>,
}

/// The number of deferred ends of all kinds, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct Load {
    pub(in crate::runtime) ends: usize,
    pub(in crate::runtime) bytes: usize,
}

impl Ledger {
    pub(in crate::runtime) fn load(&self) -> Load {
        *self.load.borrow()
    }

    /// Returns when no end is left.
    pub(super) async fn drain(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.load.subscribe().wait_for(|load| load.ends == 0).await;
    }

    /// Counts an end, unless all of them would take more than `limit` bytes.
    pub(super) fn reserve(&self, bytes: usize, limit: usize) -> bool {
        self.load.send_if_modified(|load| {
            let fits = load.bytes.saturating_add(bytes) <= limit;
            if fits {
                *load = Load { ends: load.ends + 1, bytes: load.bytes + bytes };
            }
            fits
        })
    }

    /// Stops counting an end of this size.
    pub(super) fn free(&self, bytes: usize) {
        self.load.send_modify(|load| {
            *load = Load { ends: load.ends - 1, bytes: load.bytes - bytes };
        });
    }

    pub(super) fn insert(&self, end: &Arc<DeferredEnd>) {
        if end.rejection().is_none() {
            return;
        }
        let mut by_record = self.by_record.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two attempts of this process at one record, the later has fenced the earlier, whose
        // end only the background sends (case
        // `of_two_attempts_that_are_deferred_the_later_one_counts`).
        let rank = |end: &DeferredEnd| (end.state() != EndState::Fenced, end.attempt);
        if by_record.get(&end.id).is_none_or(|other| rank(other) <= rank(end)) {
            by_record.insert(end.id, end.clone());
            self.count.store(by_record.len(), Ordering::SeqCst);
        }
    }

    pub(super) fn remove(&self, end: &Arc<DeferredEnd>) {
        let mut by_record = self.by_record.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(entry) = by_record.entry(end.id)
            && Arc::ptr_eq(entry.get(), end)
        {
            entry.remove();
            self.count.store(by_record.len(), Ordering::SeqCst);
        }
    }

    /// Whether no claim can find an end.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(super) fn find(&self, id: &RecordId) -> Option<Arc<DeferredEnd>> {
        self.by_record.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}
