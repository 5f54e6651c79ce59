//! The keys that are claimed in open transactions of this process.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use super::waiters::Waiters;
use crate::{fingerprint::Fingerprint, record_id::RecordId};

/// The keys that are claimed in open transactions of this process. The store does not show them
/// until the transactions are committed.
pub(super) struct OpenClaims {
    keys: Mutex<HashMap<RecordId, Fingerprint>>,
    waiters: Arc<Waiters>,
}

/// A key that is claimed in an open transaction, until this is dropped.
pub(super) struct OpenClaim {
    open: Arc<OpenClaims>,
    id: RecordId,
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        self.open.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.open.waiters.wake(&self.id);
    }
}

impl OpenClaims {
    pub(super) fn new(waiters: Arc<Waiters>) -> Self {
        Self { keys: Mutex::default(), waiters }
    }

    /// The fingerprint of the request that has claimed this key.
    pub(super) fn fingerprint(&self, id: &RecordId) -> Option<Fingerprint> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// Registers a key, or returns the fingerprint of the request for which it is registered.
    pub(super) fn register(
        self: &Arc<Self>,
        id: &RecordId,
        fingerprint: Fingerprint,
    ) -> Result<OpenClaim, Fingerprint> {
        match self.keys.lock().unwrap_or_else(PoisonError::into_inner).entry(*id) {
            Entry::Occupied(entry) => Err(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(fingerprint);
                Ok(OpenClaim { open: self.clone(), id: *id })
            }
        }
    }
}
