//! Stores with one fault each: the conformance suite must fail in the case for the fault.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, Notes, OwnerToken, Record, RecordId, RecordState, ShortText, Store,
    StoreError,
    clock::{Clock, ManualClock, Timestamp},
    conformance::{CASES, TestedStore},
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, Rejection, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    transition::{self, Change},
};

mod detection;
mod faults;

use faults::{DETECTED_BY, Fault};

struct Mutant {
    records: Mutex<HashMap<RecordId, Record>>,
    clock: ManualClock,
    fault: Fault,
}

impl Mutant {
    fn new(fault: Fault) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000_000));
        Self { records: Mutex::default(), clock, fault }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn step<T>(
        &self,
        id: &RecordId,
        step: impl FnOnce(Option<&Record>, Timestamp) -> (Change, T),
    ) -> T {
        let mut records = self.records.lock().unwrap();
        let (change, outcome) = step(records.get(id), self.clock.now());
        match change {
            Change::Keep => {}
            Change::Put(record) => drop(records.insert(*id, record)),
            Change::Remove => drop(records.remove(id)),
        }
        outcome
    }

    fn owner(&self, record: Option<&Record>, owner: OwnerToken, unfenced: Fault) -> OwnerToken {
        record.filter(|_| self.has(unfenced)).map_or(owner, |record| record.owner)
    }

    fn claim_step(
        &self,
        record: Option<&Record>,
        claim: &Claim,
        now: Timestamp,
    ) -> (Change, ClaimOutcome) {
        let mut claim = claim.clone();
        let mut seen = record.cloned();
        if let Some(record) = &mut seen {
            let expired = record.state == RecordState::InFlight && record.lease_expired(now);
            if self.has(Fault::TakeoverIgnoresPayload) && expired {
                claim.fingerprint = record.fingerprint;
            }
            if self.has(Fault::ResentClaimIsRefused) && record.owner == claim.owner {
                claim.owner = OwnerToken::random().unwrap();
            }
            if self.has(Fault::HoldRunsAgain) {
                (record.abandoned, claim.abandoned) = (Abandoned::Retry, Abandoned::Retry);
            }
            if self.has(Fault::HoldExpires) && record.expires_at <= now && record.is_held(now) {
                return transition::claim(None, &claim, now);
            }
        }
        let (mut change, mut outcome) = transition::claim(seen.as_ref(), &claim, now);
        if let (
            ClaimOutcome::Rejected(
                Rejection::InFlight { reference, .. } | Rejection::Held { reference, .. },
            ),
            true,
        ) = (&mut outcome, self.has(Fault::ConflictHidesTheReference))
        {
            *reference = None;
        }
        if let (Change::Put(new), Some(old)) = (&mut change, &seen) {
            if self.has(Fault::TakeoverDropsTheNotes) {
                new.notes = Notes::default();
            }
            if self.has(Fault::NewOperationKeepsTheOldNotes) {
                new.notes = old.notes.clone();
            }
            if self.has(Fault::TakeoverResetsTheTtl) {
                new.expires_at = now.after(claim.ttl);
            }
            let shortened = old.owner == new.owner
                && old.owner != claim.owner
                && new.state == RecordState::InFlight;
            if self.has(Fault::ClockSetBackEndsLeases) && shortened {
                new.lease_until = now;
            }
            if self.has(Fault::ResentClaimKeepsItsOldLease) && old.owner == claim.owner
                || self.has(Fault::LeaseOutlastsItsLength) && shortened
            {
                change = Change::Keep;
            }
        }
        (change, outcome)
    }

    fn complete_step(
        &self,
        record: Option<&Record>,
        owner: OwnerToken,
        recording: &Bytes,
        now: Timestamp,
    ) -> (Change, Fence) {
        let owner = self.owner(record, owner, Fault::CompleteWithoutFence);
        let completed =
            record.is_some_and(|record| matches!(record.state, RecordState::Completed(_)));
        if self.has(Fault::CompletionRequiresALiveLease)
            && !completed
            && record.is_some_and(|record| record.lease_expired(now))
        {
            return (Change::Keep, Fence::Fenced);
        }
        if self.has(Fault::CompletionAgainChangesTheStatus)
            && completed
            && let Some(record) = record
        {
            let mut again = record.clone();
            again.status = Some(500);
            return (Change::Put(again), Fence::Passed);
        }
        if self.has(Fault::CompletionOverwrites)
            && completed
            && record.is_some_and(|record| record.owner == owner)
        {
            let mut overwritten = record.unwrap().clone();
            overwritten.state = RecordState::Completed(recording.clone());
            return (Change::Put(overwritten), Fence::Passed);
        }
        let kept = if recording.is_empty() && self.has(Fault::EmptyRecordingIsLost) {
            Bytes::from_static(b"null")
        } else {
            recording.clone()
        };
        let (mut change, fence) = transition::complete(record, owner, &kept, now);
        if let (Change::Put(new), Some(old), true) =
            (&mut change, record, self.has(Fault::LateCompletionExpiresAtOnce))
        {
            new.expires_at = old.expires_at;
        }
        if let (Change::Put(new), Some(old)) = (&mut change, record) {
            if self.has(Fault::CompletionKeepsTheNotes) {
                new.notes = old.notes.clone();
            }
            if self.has(Fault::CompletionDropsTheReference) {
                new.notes = Notes::default();
            }
        }
        (change, fence)
    }

    fn note_step(
        &self,
        record: Option<&Record>,
        owner: OwnerToken,
        note: &Note,
        now: Timestamp,
    ) -> (Change, Fence) {
        if self.has(Fault::NoteRequiresALiveLease)
            && record.is_some_and(|record| record.lease_expired(now))
        {
            return (Change::Keep, Fence::Fenced);
        }
        let owner = self.owner(record, owner, Fault::NoteWithoutFence);
        let (mut change, fence) = transition::note(record, owner, note);
        if let (Change::Put(new), Some(old)) = (&mut change, record) {
            if self.has(Fault::NoteReplacesEarlierSteps) && !note.step.is_empty() {
                new.notes.steps = note.step.clone();
            }
            if self.has(Fault::NoteDropsWhatItDoesNotName) {
                new.notes.reference = note.reference.clone();
            }
            if self.has(Fault::NoteForgetsThePointOfNoReturn) {
                new.abandoned = old.abandoned;
            }
        }
        (change, fence)
    }

    fn renew_one(&self, renewal: &Renewal) -> Fence {
        let Lease { id, owner } = renewal.lease;
        self.step(&id, |record, now| {
            if record.is_none() && self.has(Fault::RenewalInserts) {
                let fingerprint = idempotent_core::Fingerprint::from_bytes([1; 36]);
                let (lease, ttl, abandoned) = (renewal.extend, renewal.extend, Abandoned::Retry);
                let claim = Claim::new(fingerprint, owner)
                    .with_lease(lease)
                    .with_ttl(ttl)
                    .with_abandoned(abandoned);
                return (transition::claim(None, &claim, now).0, Fence::Passed);
            }
            let owner = self.owner(record, owner, Fault::RenewWithoutFence);
            let (mut change, fence) = transition::renew(record, owner, renewal.extend, now);
            if let (Change::Put(new), Some(old), true) =
                (&mut change, record, self.has(Fault::RenewalKeepsTheLength))
            {
                new.lease = old.lease;
            }
            (change, fence)
        })
    }
}

#[async_trait::async_trait]
impl Store for Mutant {
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        if self.has(Fault::CheckThenAct) {
            let seen = self.records.lock().unwrap().get(id).cloned();
            let decided = self.claim_step(seen.as_ref(), claim, self.clock.now());
            tokio::task::yield_now().await;
            return Ok(self.step(id, |_, _| decided));
        }
        Ok(self.step(id, |record, now| self.claim_step(record, claim, now)))
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, now| self.note_step(record, lease.owner, note, now)))
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let (records, now) = (self.records.lock().unwrap(), self.clock.now());
        let resumable = |record: &Record| {
            let mut record = record.clone();
            if self.has(Fault::LiveOperationIsResumable) {
                record.lease_until = now;
            }
            if self.has(Fault::HeldOperationIsResumable) {
                record.abandoned = Abandoned::Retry;
            }
            record.is_resumable(now) && !self.has(Fault::AbandonedOperationIsNotResumable)
        };
        let is_after =
            |id: &RecordId| self.has(Fault::PagesBeginAnew) || after.is_none_or(|after| id > after);
        let mut ids: Vec<_> = records
            .iter()
            .filter(|(id, record)| is_after(id) && resumable(record))
            .filter(|(_, record)| {
                self.has(Fault::OtherOperationsAreResumable) || record.operation == *operation
            })
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids.truncate(usize::try_from(limit).unwrap());
        let mut page = ResumablePage::of(ids, limit);
        if self.has(Fault::FirstPageIsTheLast) {
            page.next = None;
        }
        Ok(page)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let mut fences: Vec<_> =
            leases.iter().map(|renewal| self.renew_one(renewal).into()).collect();
        if self.has(Fault::RenewalOutcomesLoseTheirOrder) {
            fences.sort_by_key(|fence| *fence == RenewOutcome::Fenced);
        }
        Ok(fences)
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        Ok(self
            .step(&lease.id, |record, now| self.complete_step(record, lease.owner, recording, now)))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, _| {
            transition::release(record, self.owner(record, lease.owner, Fault::ReleaseWithoutFence))
        }))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        Ok(self.step(&lease.id, |record, now| {
            let owner = self.owner(record, lease.owner, Fault::AbandonWithoutFence);
            let (mut change, fence) = transition::abandon(record, owner, policy, now);
            if let (Change::Put(new), true) =
                (&mut change, self.has(Fault::AbandonedLeaseHasAnEndTime))
            {
                new.lease_until = new.first_seen;
            }
            (change, fence)
        }))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let (records, at) = (self.records.lock().unwrap(), self.clock.now());
        let visible =
            |record: &&Record| !record.is_expired(at) || self.has(Fault::LookUpShowsExpired);
        Ok(records.get(id).filter(visible).map(|record| Snapshot::new(record.clone(), at)))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        _audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        Ok(self.step(id, |record, now| {
            let seen = self.owner(record, *seen, Fault::ResolutionIgnoresTheOwner);
            let (mut change, outcome) = transition::resolve(record, seen, resolution, now);
            if let (Change::Put(new), true) =
                (&mut change, self.has(Fault::OwnerSurvivesResolution))
            {
                new.owner = seen;
            }
            (change, outcome)
        }))
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let running =
            |record: &Record| record.expires_at <= now && record.state == RecordState::InFlight;
        let removable = |record: &Record| {
            let overdue = self.has(Fault::PurgeRemovesRunningAttempts) && running(record);
            (record.is_expired(now) || overdue) && !self.has(Fault::PurgeDoesNothing)
        };
        let limit = if self.has(Fault::PurgeIgnoresItsLimit) {
            usize::MAX
        } else {
            usize::try_from(limit).unwrap()
        };
        let mut records = self.records.lock().unwrap();
        let longer = |record: &Record| {
            record.expires_at <= now
                && record.abandoned == Abandoned::Retry
                && !self.has(Fault::PurgeKeepsOverlongLeases)
        };
        for record in records.values_mut().filter(|record| longer(record)) {
            if let Some(shortened) = record.with_shortened_lease(now) {
                *record = shortened;
            }
        }
        Ok(records
            .extract_if(|_, record| removable(record))
            .take(limit)
            .count()
            .try_into()
            .unwrap())
    }
}
