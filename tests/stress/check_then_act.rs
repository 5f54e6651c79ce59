//! An unsafe store: it reads a record, decides, and then writes, and ignores concurrent writes.

use std::{collections::HashMap, sync::PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, ShortText, StoreError,
    clock::{Clock, Timestamp},
    internals::{Mutex, MutexGuard},
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::Store,
    transition::{self, Change},
};

pub(super) struct CheckThenActStore<C> {
    records: Mutex<HashMap<RecordId, Record>>,
    clock: C,
}

impl<C: Clock> CheckThenActStore<C> {
    pub(super) fn new(clock: C) -> Self {
        Self { records: Mutex::default(), clock }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<RecordId, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step<T>(
        &self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>, Timestamp) -> (Change, T),
    ) -> T {
        let seen = self.records().get(id).cloned();
        let (change, outcome) = step(seen.as_ref(), self.clock.now());
        match change {
            Change::Keep => {}
            Change::Put(record) => drop(self.records().insert(*id, record)),
            Change::Remove => drop(self.records().remove(id)),
        }
        outcome
    }
}

#[async_trait]
impl<C: Clock> Store for CheckThenActStore<C> {
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        Ok(self.step(id, |record, now| transition::claim(record, claim, now)))
    }

    async fn note(
        &self,
        lease: &Lease,
        note: &idempotent_core::protocol::Note,
    ) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::note(record, lease.owner, note)))
    }
    async fn resumable(
        &self,
        _: &ShortText,
        _: Option<&RecordId>,
        _: u32,
    ) -> Result<ResumablePage, StoreError> {
        unreachable!("temporary")
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let renew = |renewal: &Renewal| {
            let Lease { id, owner } = renewal.lease;
            self.step(&id, |record, now| transition::renew(record, owner, renewal.extend, now))
                .into()
        };
        Ok(leases.iter().map(renew).collect())
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, now| {
            transition::complete(record, lease.owner, recording, now)
        }))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| transition::release(record, lease.owner)))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        Ok(self
            .step(&lease.id, |record, now| transition::abandon(record, lease.owner, policy, now)))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let at = self.clock.now();
        let record = self.records().get(id).filter(|record| !record.is_expired(at)).cloned();
        Ok(record.map(|record| Snapshot::new(record, at)))
    }

    async fn resolve(
        &self,
        _: &RecordId,
        _: &OwnerToken,
        _: &Resolution,
        _: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        unreachable!("no test resolves a key of this store")
    }

    async fn purge(&self, _: u32) -> Result<u64, StoreError> {
        unreachable!("no test purges this store")
    }
}
