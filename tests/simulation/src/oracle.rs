//! The invariants I1 to I8, verified at each step of the database, at the start of each handler,
//! and for each response that a client gets. None of it uses the state machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, EncodedRecording, OwnerToken, Record, RecordId, RecordState,
    clock::Timestamp,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::{Event, EventOutcome},
};
use idempotent_http::recording::Recording;

use crate::{
    health::Health,
    operation::{Handler, Key, Receipt, Run},
};

mod clients;

/// What has happened in a history.
#[derive(Default)]
pub(crate) struct Oracle {
    violations: Vec<String>,
    records: BTreeMap<RecordId, Tracked>,
    runs: BTreeMap<u64, Run>,
    /// The payloads that clients have sent with a key.
    sent: BTreeMap<Key, BTreeSet<u8>>,
    /// The runs whose completion was sent, and perhaps not acknowledged.
    completing: BTreeSet<u64>,
    completed: BTreeSet<u64>,
    /// The runs whose completion was fenced.
    fenced: BTreeSet<u64>,
    /// The runs whose response was sent before it was stored.
    deferred: BTreeSet<u64>,
    effects: BTreeSet<u64>,
    pub(crate) health: Health,
    pub(crate) counts: Counts,
}

/// How often the situations occurred that a simulation is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    pub(crate) takeovers: u64,
    pub(crate) fenced: u64,
    pub(crate) replays: u64,
    pub(crate) held: u64,
    pub(crate) effects: u64,
    pub(crate) deferred: u64,
    pub(crate) compared: u64,
    pub(crate) responses: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.takeovers += other.takeovers;
        self.fenced += other.fenced;
        self.replays += other.replays;
        self.held += other.held;
        self.effects += other.effects;
        self.deferred += other.deferred;
        self.compared += other.compared;
        self.responses += other.responses;
    }
}

#[derive(Default)]
struct Tracked {
    /// Claims that were granted, by different owners.
    grants: u64,
    owners: BTreeSet<[u8; 16]>,
    runs: u64,
    /// The attempts whose handlers have started since the record was inserted.
    attempts: BTreeSet<u32>,
    /// Effects since the record was inserted.
    effects: u64,
}

impl Oracle {
    pub(crate) fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    fn verify(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    /// The database has taken a step with a record.
    pub(crate) fn stepped(
        &mut self,
        id: &RecordId,
        event: &Event<'_>,
        outcome: &EventOutcome,
        before: Option<&Record>,
        after: Option<&Record>,
        now: Timestamp,
    ) {
        if let Some(before) =
            before.filter(|record| is_completed(record) && record.expires_at > now)
        {
            self.verify(after == Some(before), || {
                format!("I2: {event:?} changed a completed record: {before:?} to {after:?}")
            });
        }
        match (event, outcome) {
            (Event::Claim(claim), EventOutcome::Claim(ClaimOutcome::Granted { .. })) => {
                self.granted(id, before, claim, now);
                let whole = after.is_some_and(|record| {
                    record.lease_until >= now.after(claim.lease) && record.owner == claim.owner
                });
                self.verify(whole, || format!("I1: a grant without a whole lease: {after:?}"));
            }
            (
                Event::Claim(claim),
                EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_))),
            ) => {
                let same = before.is_some_and(|record| record.fingerprint == claim.fingerprint);
                self.verify(same, || format!("I5: a replay to another request: {before:?}"));
            }
            (
                Event::Claim(_),
                EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })),
            ) => self.counts.held += 1,
            (Event::Complete(owner, recording), EventOutcome::Fence(fence)) => {
                self.fenced(event, *fence, *owner, before, false);
                if *fence == Fence::Fenced {
                    self.fenced.extend(read(recording).map(|receipt| receipt.run));
                } else {
                    let changed = before.is_some_and(|record| !is_completed(record));
                    self.stored(recording, changed);
                }
            }
            (
                Event::Renew(owner, _) | Event::Release(owner) | Event::Abandon(owner, _),
                EventOutcome::Fence(fence),
            ) => {
                self.fenced(event, *fence, *owner, before, true);
                if matches!(event, Event::Release(_)) && *fence == Fence::Passed {
                    self.released(id, before);
                }
                if matches!(event, Event::Renew(..)) && *fence == Fence::Passed {
                    self.health.renewed(owner);
                }
            }
            (Event::Resolve(seen, _), EventOutcome::Resolve(ResolveOutcome::Resolved)) => {
                let held = before.is_some_and(|record| {
                    record.owner == *seen && (is_held(record) || is_abandoned(record, now))
                });
                self.verify(held, || format!("I3: an operator resolved {before:?}"));
            }
            (Event::Purge, EventOutcome::Purge(true)) => {
                let removable = before.is_some_and(|record| {
                    record.expires_at <= now
                        && !is_held(record)
                        && !is_abandoned(record, now)
                        && (is_completed(record) || record.lease_until <= now)
                });
                self.verify(removable, || format!("I1: a purge removed {before:?} at {now:?}"));
            }
            _ => {}
        }
        self.track(id, before, after);
    }

    /// A completion that compared the value of a claim, which was granted `passed` ago, keeps the
    /// recording for `left`.
    pub(crate) fn kept(&mut self, ttl: Duration, passed: Option<Duration>, left: Duration) {
        self.counts.compared += 1;
        let promised = passed.map(|passed| ttl.saturating_sub(passed));
        self.verify(promised.is_some_and(|promised| promised <= left && left <= ttl), || {
            format!("I2: a recording is kept for {left:?} of {ttl:?}, {passed:?} after its claim")
        });
    }

    /// A claim was granted as a part of a transaction, which is not committed yet.
    pub(crate) fn claimed_in(
        &mut self,
        id: &RecordId,
        before: Option<&Record>,
        claim: &Claim,
        now: Timestamp,
    ) {
        self.granted(id, before, claim, now);
    }

    fn granted(&mut self, id: &RecordId, before: Option<&Record>, claim: &Claim, now: Timestamp) {
        let tracked = self.records.entry(*id).or_default();
        if tracked.owners.insert(*claim.owner.as_bytes()) {
            tracked.grants += 1;
        }
        self.health.renewed(&claim.owner);
        let Some(record) = before.filter(|record| record.owner != claim.owner) else { return };
        let over = record.expires_at <= now;
        self.verify(!is_held(record) && !is_abandoned(record, now), || {
            format!("I6: a held key was granted: {record:?}")
        });
        if is_completed(record) {
            self.verify(over, || format!("I2: a completed key was granted: {record:?}"));
            return;
        }
        self.verify(is_held(record) || record.lease_until <= now, || {
            format!("I1: a key whose owner is alive was granted: {record:?} at {now:?}")
        });
        if !over {
            self.counts.takeovers += 1;
            let unharmed = self.health.was_unharmed(record);
            self.verify(!unharmed, || {
                format!("a healthy process lost the lease of {record:?} at {now:?}")
            });
            self.verify(record.fingerprint == claim.fingerprint, || {
                format!("I5: another request took over {record:?}")
            });
            self.verify(claim.abandoned == Abandoned::Retry, || {
                format!("I6: a claim under `hold` took over {record:?}")
            });
        }
    }

    /// An owner has tried to change its record. `in_flight`: only while it is in flight.
    fn fenced(
        &mut self,
        event: &Event<'_>,
        fence: Fence,
        owner: OwnerToken,
        before: Option<&Record>,
        in_flight: bool,
    ) {
        let owns = before.is_some_and(|record| {
            record.owner == owner && (!in_flight || record.state == RecordState::InFlight)
        });
        match fence {
            Fence::Passed => {
                self.verify(owns, || format!("I3: {event:?} passed the fence of {before:?}"));
            }
            Fence::Fenced => {
                self.counts.fenced += 1;
                self.verify(!owns, || format!("{event:?} of the owner was fenced by {before:?}"));
            }
        }
    }

    /// Its owner has released a key. Under `hold` that is allowed only if no handler has run.
    fn released(&mut self, id: &RecordId, before: Option<&Record>) {
        let held = before.filter(|record| record.abandoned == Abandoned::Hold);
        let ran = |record: &Record| {
            let tracked = self.records.get(id);
            tracked.is_some_and(|tracked| tracked.attempts.contains(&record.attempt))
        };
        let released = held.filter(|record| ran(record));
        self.verify(released.is_none(), || {
            format!("I6: a key under `hold` was released after its handler ran: {released:?}")
        });
    }

    /// Notes whether a record was removed or replaced by that of a new operation.
    pub(crate) fn track(&mut self, id: &RecordId, before: Option<&Record>, after: Option<&Record>) {
        let continues = matches!(
            (before, after),
            (Some(before), Some(after)) if before.first_seen == after.first_seen
        );
        if !continues {
            let tracked = self.records.entry(*id).or_default();
            tracked.effects = 0;
            tracked.attempts.clear();
        }
    }

    /// A completion took effect outside of a transaction.
    fn stored(&mut self, recording: &Bytes, changed: bool) {
        let Some(receipt) = read(recording) else { return };
        if receipt.run == 0 || !changed {
            return;
        }
        self.completed.insert(receipt.run);
        let handler = self.runs.get(&receipt.run).map(|run| run.key.handler);
        self.verify(handler == Some(Handler::Lease) || !receipt.done, || {
            format!("I4: {receipt:?} was recorded without its effect")
        });
    }

    /// A transaction was committed.
    pub(crate) fn committed(
        &mut self,
        id: &RecordId,
        before: Option<&Record>,
        after: Option<&Record>,
        effects: &[Run],
        now: Timestamp,
    ) {
        let receipt = after.and_then(|record| match &record.state {
            RecordState::Completed(recording) => read(recording),
            RecordState::InFlight | RecordState::Held => None,
        });
        if let Some(before) = before {
            let same = after.is_some_and(|after| after.owner == before.owner);
            let replaceable = before.expires_at <= now || before.lease_until <= now;
            self.verify(same || replaceable, || format!("I3: a commit replaced {before:?}"));
            let kept = !is_completed(before) || before.expires_at <= now || after == Some(before);
            self.verify(kept, || format!("I2: a commit changed {before:?}"));
        }
        let tracked = self.records.entry(*id).or_default();
        tracked.effects += u64::try_from(effects.len()).unwrap_or(u64::MAX);
        let (all, id) = (tracked.effects, *id);
        self.verify(all <= 1, || format!("I8: {all} effects of {id:?}: {effects:?}"));
        for run in effects {
            self.effects.insert(run.id);
            self.counts.effects += 1;
            self.verify(receipt.is_some_and(|it| it.run == run.id && it.done), || {
                format!("I4: the effect of {run:?} was committed with {after:?}, {receipt:?}")
            });
        }
        if let Some(receipt) = receipt.filter(|receipt| receipt.run != 0) {
            self.completed.insert(receipt.run);
            let has_effect = effects.iter().any(|run| run.id == receipt.run);
            self.verify(has_effect || !receipt.done, || {
                format!("I4: {receipt:?} was committed without its effect")
            });
        }
    }
}

fn is_completed(record: &Record) -> bool {
    matches!(record.state, RecordState::Completed(_))
}

fn is_held(record: &Record) -> bool {
    record.state == RecordState::Held
}

/// Whether the lease of an attempt has expired whose key must not run again.
fn is_abandoned(record: &Record, now: Timestamp) -> bool {
    record.state == RecordState::InFlight
        && record.lease_until <= now
        && record.abandoned == Abandoned::Hold
}

/// The receipt in the headers of a recording.
fn read(recording: &Bytes) -> Option<Receipt> {
    let recording = Recording::decode(&EncodedRecording::verify(recording.clone()).ok()?).ok()?;
    let location = recording.headers.iter().find(|(name, _)| &**name == b"location")?;
    Receipt::parse(std::str::from_utf8(&location.1).ok()?)
}
