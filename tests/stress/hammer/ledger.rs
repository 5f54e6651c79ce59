//! What the workers record about a key, independently of the store.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{Checked, Violation, ensure};
use crate::effects::hex;
use idempotent_core::{OwnerToken, RecordId, RecordState, protocol::Snapshot};

pub(super) struct Ledger {
    pub(super) id: RecordId,
    /// Whether all owners of this key die.
    pub(super) never_completes: bool,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The owner of each granted attempt.
    granted: BTreeMap<u32, OwnerToken>,
    completed: Option<(u32, OwnerToken, Bytes)>,
    replayed: Option<Bytes>,
}

impl Ledger {
    /// Ledgers of this many keys that have to be completed, and a few more that never are.
    pub(super) fn many(keys: usize) -> Vec<Self> {
        let id = || {
            let mut id = [0; 32];
            id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
            RecordId::from_bytes(id)
        };
        let never_completes = keys / 20;
        (0..keys + never_completes)
            .map(|key| Self { id: id(), never_completes: key >= keys, entries: Mutex::default() })
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_completed(&self) -> bool {
        self.entries().completed.is_some()
    }

    pub(super) fn last_attempt(&self) -> u32 {
        self.entries().granted.keys().next_back().copied().unwrap_or(0)
    }

    /// Records a granted attempt. The workers release no key, so each attempt has one owner.
    pub(super) fn granted(&self, attempt: u32, owner: OwnerToken) -> Checked {
        let before = self.entries().granted.insert(attempt, owner);
        ensure(before.is_none_or(|before| before == owner), || {
            format!("attempt {attempt} was granted to two owners")
        })
    }

    pub(super) fn completed(&self, attempt: u32, owner: OwnerToken, response: Bytes) -> Checked {
        let before = self.entries().completed.replace((attempt, owner, response));
        ensure(before.is_none(), || format!("attempts {before:?} and {attempt} completed"))
    }

    pub(super) fn replayed(&self, recording: Bytes) -> Checked {
        let before = self.entries().replayed.replace(recording.clone());
        ensure(before.is_none_or(|before| before == recording), || {
            "two responses were replayed".into()
        })
    }

    /// Checks, at the end, that the key was completed by its last owner and by no other.
    pub(super) fn check(&self, found: Option<Snapshot>) -> Checked {
        let entries = self.entries();
        let Some((attempt, owner, response)) = &entries.completed else {
            let open = found.is_none_or(|found| found.record.state == RecordState::InFlight);
            return ensure(self.never_completes && open, || {
                "a key was not completed, or completed by an owner that died".into()
            });
        };
        let last = entries.granted.last_key_value();
        ensure(last == Some((attempt, owner)), || {
            format!("{last:?} was granted, {attempt} {owner:?} completed")
        })?;
        let replayed = entries.replayed.as_ref().is_none_or(|replayed| replayed == response);
        ensure(replayed, || format!("{:?} was replayed", entries.replayed))?;
        let Some(record) = found.map(|found| found.record) else {
            return Err(Violation("a completed key is absent".into()));
        };
        let kept = record.owner == *owner && record.attempt == *attempt;
        ensure(kept && record.state == RecordState::Completed(response.clone()), || {
            format!("{response:?} became {record:?}")
        })
    }

    /// Checks, at the end, that the owner that completed the key has one effect, and no other owner
    /// has any.
    pub(super) fn check_effects(&self, owners: &[String]) -> Checked {
        let completed =
            self.entries().completed.as_ref().map(|(_, owner, _)| hex(owner.as_bytes()));
        ensure(owners.iter().eq(&completed), || {
            format!("{owners:?} had effects, {completed:?} completed")
        })
    }
}
