//! What the workers know about a key, independently of the store.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{Checked, Violation, holds};
use crate::effects::hex;
use idempotent_core::{OwnerToken, RecordId, RecordState, protocol::Snapshot};

pub(super) struct Ledger {
    pub(super) id: RecordId,
    /// Its owners die.
    pub(super) doomed: bool,
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
    /// Ledgers of unique keys; to this many keys that are to be completed, a few are added that
    /// never are.
    pub(super) fn many(keys: usize) -> Vec<Self> {
        let id = || {
            let mut id = [0; 32];
            id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
            RecordId::from_bytes(id)
        };
        let doomed = keys / 20;
        (0..keys + doomed)
            .map(|key| Self { id: id(), doomed: key >= keys, entries: Mutex::default() })
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn done(&self) -> bool {
        self.entries().completed.is_some()
    }

    pub(super) fn last_attempt(&self) -> u32 {
        self.entries().granted.keys().next_back().copied().unwrap_or(0)
    }

    /// No key is released here, so each attempt has one owner.
    pub(super) fn granted(&self, attempt: u32, owner: OwnerToken) -> Checked {
        let before = self.entries().granted.insert(attempt, owner);
        holds(before.is_none_or(|before| before == owner), || {
            format!("attempt {attempt} was granted to two")
        })
    }

    pub(super) fn completed(&self, attempt: u32, owner: OwnerToken, response: Bytes) -> Checked {
        let before = self.entries().completed.replace((attempt, owner, response));
        holds(before.is_none(), || format!("attempts {before:?} and {attempt} completed"))
    }

    pub(super) fn replayed(&self, recording: Bytes) -> Checked {
        let before = self.entries().replayed.replace(recording.clone());
        holds(before.is_none_or(|before| before == recording), || {
            "two responses were replayed".into()
        })
    }

    /// At the end: the key is completed by its last owner, and by no other.
    pub(super) fn check(&self, found: Option<Snapshot>) -> Checked {
        let entries = self.entries();
        let Some((attempt, owner, response)) = &entries.completed else {
            let open = found.is_none_or(|found| found.record.state == RecordState::InFlight);
            return holds(self.doomed && open, || {
                "a key was left, or completed by the dead".into()
            });
        };
        let last = entries.granted.last_key_value();
        holds(last == Some((attempt, owner)), || {
            format!("{last:?} was granted, {attempt} {owner:?} completed")
        })?;
        let replayed = entries.replayed.as_ref().is_none_or(|replayed| replayed == response);
        holds(replayed, || format!("{:?} was replayed", entries.replayed))?;
        let Some(record) = found.map(|found| found.record) else {
            return Err(Violation("a completed key is gone".into()));
        };
        let kept = record.owner == *owner && record.attempt == *attempt;
        holds(kept && record.state == RecordState::Completed(response.clone()), || {
            format!("{response:?} became {record:?}")
        })
    }

    /// At the end: the owner that completed the key had one effect, and no other owner had any.
    pub(super) fn check_effects(&self, owners: &[String]) -> Checked {
        let completed =
            self.entries().completed.as_ref().map(|(_, owner, _)| hex(owner.as_bytes()));
        holds(owners.iter().eq(&completed), || {
            format!("{owners:?} had effects, {completed:?} completed")
        })
    }
}
