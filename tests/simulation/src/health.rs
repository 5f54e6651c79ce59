//! Which processes have been harmed, and when: a process that was not must not lose a lease.

use std::{collections::BTreeMap, time::Duration};

use idempotent_core::{OwnerToken, Record, clock::Timestamp};
use tokio::time::Instant;

/// How long after a fault a statement may still arrive.
const AFTERMATH: Duration = Duration::from_secs(25);

/// The troubles of all processes.
#[derive(Default)]
pub(crate) struct Health {
    processes: BTreeMap<usize, Trouble>,
    /// The process that has drawn each owner token.
    owners: BTreeMap<[u8; 16], usize>,
    /// When the lease of each owner was granted or renewed last.
    renewed: BTreeMap<[u8; 16], Instant>,
    clock_stepped: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Trouble {
    last: Option<Instant>,
    /// Paused, cut off or dead.
    lasting: u32,
    dead: bool,
}

impl Health {
    pub(crate) fn owned_by(&mut self, owner: &OwnerToken, process: usize) {
        self.owners.insert(*owner.as_bytes(), process);
    }

    pub(crate) fn renewed(&mut self, owner: &OwnerToken) {
        self.renewed.insert(*owner.as_bytes(), Instant::now());
    }

    /// A call of the process failed, or took long.
    pub(crate) fn harmed(&mut self, process: usize) {
        self.processes.entry(process).or_default().last = Some(Instant::now());
    }

    /// The process was paused or cut off, or that is over.
    pub(crate) fn set_disturbed(&mut self, process: usize, disturbed: bool) {
        let trouble = self.processes.entry(process).or_default();
        trouble.last = Some(Instant::now());
        if disturbed {
            trouble.lasting += 1;
        } else {
            trouble.lasting = trouble.lasting.saturating_sub(1);
        }
    }

    pub(crate) fn died(&mut self, process: usize) {
        self.processes.entry(process).or_default().dead = true;
    }

    pub(crate) fn is_dead(&self, process: usize) -> bool {
        self.processes.get(&process).is_some_and(|trouble| trouble.dead)
    }

    pub(crate) fn clock_stepped(&mut self) {
        self.clock_stepped = Some(Instant::now());
    }

    /// Whether nothing has happened to the owner of this record since shortly before its lease
    /// began, so that it must have renewed the lease.
    pub(crate) fn was_unharmed(&self, record: &Record) -> bool {
        if record.lease_until == Timestamp::EPOCH {
            return false;
        }
        let Some(process) = self.owners.get(record.owner.as_bytes()) else { return false };
        let trouble = self.processes.get(process).copied().unwrap_or_default();
        let Some(renewed) = self.renewed.get(record.owner.as_bytes()) else { return false };
        let quiet_since = |at: Option<Instant>| at.is_none_or(|at| at + AFTERMATH < *renewed);
        !trouble.dead
            && trouble.lasting == 0
            && quiet_since(trouble.last)
            && quiet_since(self.clock_stepped)
    }
}
