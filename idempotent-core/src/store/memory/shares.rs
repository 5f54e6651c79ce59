//! How much of a store each principal uses.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{scope::Principal, store::memory::hashing::DigestHashBuilder};

/// The number of locks over which principals are spread.
const LOCKS: usize = 64;

/// A number of records, and the bytes of their recordings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// The usage of each principal, and the limit for one principal.
pub(super) struct Shares {
    pub(super) share: Share,
    used: Box<[Mutex<Map>]>,
    hashing: DigestHashBuilder,
}

type Map = HashMap<Principal, Share, DigestHashBuilder>;

impl Shares {
    pub(super) fn new(share: Share) -> Self {
        let hashing = DigestHashBuilder::random();
        let used = (0..LOCKS).map(|_| Mutex::new(Map::with_hasher(hashing))).collect();
        Self { share, used, hashing }
    }

    /// Whether a principal has reached its limit.
    pub(super) fn is_used_up(&self, principal: Principal) -> bool {
        let used = self.lock(principal).get(&principal).copied().unwrap_or_default();
        used.records >= self.share.records || used.bytes >= self.share.bytes
    }

    pub(super) fn take(&self, principal: Principal, bytes: usize) {
        let mut used = self.lock(principal);
        let used = used.entry(principal).or_default();
        used.records += 1;
        used.bytes += bytes;
    }

    pub(super) fn give_back(&self, principal: Principal, bytes: usize) {
        if let Entry::Occupied(mut used) = self.lock(principal).entry(principal) {
            used.get_mut().records -= 1;
            used.get_mut().bytes -= bytes;
            if used.get().records == 0 {
                used.remove();
            }
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the number of locks")]
    fn lock(&self, principal: Principal) -> MutexGuard<'_, Map> {
        // The map uses the lowest and highest bits of the hash.
        let lock = usize::try_from(self.hashing.hash_one(principal) >> 32 & 0xffff).unwrap_or(0);
        self.used[lock % self.used.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
