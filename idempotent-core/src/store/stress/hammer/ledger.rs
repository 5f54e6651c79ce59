//! What the workers know of a key, beside the store.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{Checked, Violation, holds};
use crate::{
    lease::OwnerToken, protocol::Snapshot, record::RecordState, record_id::RecordId, store::stress::effects::hex,
};

pub(super) struct Ledger {
    pub(super) id: RecordId,
    /// Whoever has it dies.
    pub(super) doomed: bool,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Who was granted which attempt.
    granted: BTreeMap<u32, OwnerToken>,
    completed: Option<(u32, OwnerToken, Bytes)>,
    replayed: Option<Bytes>,
}

impl Ledger {
    /// Ledgers of keys that nobody else has; to so many that are to be completed come a few that never are.
    pub(super) fn many(keys: usize) -> Vec<Self> {
        let id = || {
            let mut id = [0; 32];
            id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
            RecordId::from_bytes(id)
        };
        let doomed = keys / 20;
        (0..keys + doomed).map(|key| Self { id: id(), doomed: key >= keys, entries: Mutex::default() }).collect()
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

    /// Nobody gives a key back here, so an attempt is one owner's.
    pub(super) fn granted(&self, attempt: u32, owner: OwnerToken) -> Checked {
        let before = self.entries().granted.insert(attempt, owner);
        holds(before.is_none_or(|before| before == owner), || format!("attempt {attempt} was granted to two"))
    }

    pub(super) fn completed(&self, attempt: u32, owner: OwnerToken, answer: Bytes) -> Checked {
        let before = self.entries().completed.replace((attempt, owner, answer));
        holds(before.is_none(), || format!("attempts {before:?} and {attempt} completed"))
    }

    pub(super) fn replayed(&self, recording: Bytes) -> Checked {
        let before = self.entries().replayed.replace(recording.clone());
        holds(before.is_none_or(|before| before == recording), || "two answers were replayed".into())
    }

    /// At the end: the key is completed, by its last owner, and by nobody else.
    pub(super) fn check(&self, found: Option<Snapshot>) -> Checked {
        let entries = self.entries();
        let Some((attempt, owner, answer)) = &entries.completed else {
            let open = found.is_none_or(|found| found.record.state == RecordState::InFlight);
            return holds(self.doomed && open, || "a key was left, or completed by the dead".into());
        };
        let last = entries.granted.last_key_value();
        holds(last == Some((attempt, owner)), || format!("{last:?} was granted, {attempt} {owner:?} completed"))?;
        let replayed = entries.replayed.as_ref().is_none_or(|replayed| replayed == answer);
        holds(replayed, || format!("{:?} was replayed", entries.replayed))?;
        let Some(record) = found.map(|found| found.record) else {
            return Err(Violation("a completed key is gone".into()));
        };
        let kept = record.owner == *owner && record.attempt == *attempt;
        holds(kept && record.state == RecordState::Completed(answer.clone()), || {
            format!("{answer:?} became {record:?}")
        })
    }

    /// At the end: whoever completed the key had an effect, once, and nobody else had any.
    pub(super) fn check_effects(&self, owners: &[String]) -> Checked {
        let completed = self.entries().completed.as_ref().map(|(_, owner, _)| hex(owner.as_bytes()));
        holds(owners.iter().eq(&completed), || format!("{owners:?} had effects, {completed:?} completed"))
    }
}
