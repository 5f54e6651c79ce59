//! Duplicates that wait for the attempt in flight.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use tokio::sync::{Notify, futures::Notified};

use crate::{
    record_id::RecordId,
    sync::{AtomicUsize, Mutex},
};

/// The waiters of each key, which an attempt that ends in this process wakes at once.
pub(super) struct Waiters {
    per_key: usize,
    /// The number of waiters of all keys. If it is 0, an attempt that ends need not take the lock.
    pub(super) total: AtomicUsize,
    pub(super) keys: Mutex<HashMap<RecordId, Arc<KeyWaiters>>>,
}

/// The waiters of one key.
#[derive(Default)]
pub(super) struct KeyWaiters {
    count: AtomicUsize,
    ended: Notify,
}

impl Waiters {
    pub(super) fn new(per_key: usize) -> Self {
        Self { per_key, total: AtomicUsize::new(0), keys: Mutex::default() }
    }

    /// Wakes all waiters of a key.
    pub(super) fn wake(&self, id: &RecordId) {
        if self.total.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(key) = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            key.ended.notify_waiters();
        }
    }

    /// Registers a waiter of this key; `None` if the key already has the maximum number of them.
    pub(super) fn register(&self, id: &RecordId) -> Option<Waiter<'_>> {
        if self.per_key == 0 {
            return None;
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.entry(*id).or_default();
        if key.count.load(Ordering::SeqCst) >= self.per_key {
            return None;
        }
        key.count.fetch_add(1, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
        Some(Waiter { waiters: self, id: *id, key: key.clone() })
    }
}

/// A registered waiter, until it is dropped.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    key: Arc<KeyWaiters>,
}

impl Waiter<'_> {
    /// Returns a future that completes once an attempt ends. An end counts from this call on, even
    /// if the future is not polled yet.
    pub(super) fn ended(&self) -> Notified<'_> {
        self.key.ended.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut keys = self.waiters.keys.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.total.fetch_sub(1, Ordering::SeqCst);
        if self.key.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            keys.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod interleavings;
