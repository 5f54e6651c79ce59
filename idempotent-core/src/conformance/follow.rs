//! Comparison of a store with the state machine, along a history.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    TestedStore,
    fixture::{Fixture, KeyUnderTest, fingerprint, owner},
    history::Action,
};
use crate::{
    clock::{Timestamp, millis},
    history::{History, Kind},
    lease::OwnerToken,
    protocol::{
        Claim, ClaimOutcome, Contents, Fence, Note, Rejection, Removal, RenewOutcome, Renewal,
        Replacement, Resolution,
    },
    record::Record,
    scope::Principal,
    short_text::ShortText,
    transition::{Change, Event, EventOutcome, transition},
};

/// Applies a history to a store and to the state machine, and compares their outcomes and records
/// after each action.
///
/// Times may differ by up to a quarter of a tick, because real clocks do not stand still, while
/// leases and ttls end half a tick away from every action. Therefore the history is cut short once
/// it has run for an eighth of a tick of real time. Use a subject whose
/// [`advance`](TestedStore::advance) does not sleep: otherwise the first [`Action::Advance`] is the
/// last action.
///
/// Returns the outcomes of the actions that were taken, so that a test can verify their variety.
///
/// # Panics
/// Panics if the store and the state machine differ, or if the store fails.
pub async fn follow<S: TestedStore>(
    subject: std::sync::Arc<S>,
    actions: &[Action],
) -> Vec<EventOutcome> {
    subject.store().migrate().await.unwrap();
    let fixture = Fixture::new(subject);
    let keys = [fixture.key(), fixture.key()];
    let owners = [owner(), owner(), owner(), owner()];
    let start = Timestamp::from_millis(1_000_000_000_000);
    let mut pair =
        Pair { fixture, keys, owners, model: [None, None], now: start, outcomes: Vec::new() };
    let started = Instant::now();
    for (at, action) in actions.iter().enumerate() {
        if started.elapsed() >= pair.fixture.tick() / 8 {
            break;
        }
        if let Err(difference) = catch(pair.follow(*action, at)).await {
            // An action that took this long may differ only in its times.
            if started.elapsed() >= pair.fixture.tick() / 4 {
                break;
            }
            resume_unwind(difference);
        }
    }
    pair.outcomes
}

/// Catches a panic.
async fn catch(action: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
    let mut action = pin!(action);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| action.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(difference) => Poll::Ready(Err(difference)),
    })
    .await
}

/// The store and the model of its records.
struct Pair {
    fixture: Fixture,
    keys: [KeyUnderTest; 2],
    owners: [OwnerToken; 4],
    model: [Option<Record>; 2],
    now: Timestamp,
    outcomes: Vec<EventOutcome>,
}

#[expect(clippy::indexing_slicing, reason = "every index is taken modulo the length")]
impl Pair {
    async fn follow(&mut self, action: Action, at: usize) {
        self.take(action, at).await;
        for key in 0..2 {
            self.compare(key, action, at).await;
        }
    }

    async fn take(&mut self, action: Action, at: usize) {
        match action {
            Action::Claim { key, owner, fingerprint: of, lease, ttl, abandoned } => {
                let owner = self.owner(owner);
                let claim = Claim::new(fingerprint(of % 2), owner)
                    .with_lease(self.ticks(lease % 4))
                    .with_ttl(self.ticks(ttl % 8))
                    .with_abandoned(abandoned)
                    .with_operation(ShortText::truncated(&format!("operation {of}")));
                let principal = (of % 3 > 0).then(|| Principal::from_bytes([of; 16]));
                self.claim(key, &Claim { principal, ..claim }, at).await;
            }
            Action::Renew { owner, lease } => self.renew(owner, self.ticks(lease % 4), at).await,
            Action::Note { key, owner, note } => {
                let (lease, note) = (self.key(key).lease(self.owner(owner)), numbered_note(note));
                let fence = self.key(key).note(&lease, &note).await;
                self.expect(
                    key,
                    &Event::Note(self.owner(owner), &note),
                    &EventOutcome::Fence(fence),
                    at,
                );
            }
            Action::Complete { key, owner, recording } => {
                let bytes = numbered_recording(recording);
                let fence =
                    self.key(key).complete(&self.key(key).lease(self.owner(owner)), &bytes).await;
                self.expect(
                    key,
                    &Event::Complete(self.owner(owner), &bytes),
                    &EventOutcome::Fence(fence),
                    at,
                );
            }
            Action::Release { key, owner } => {
                let fence = self.key(key).release(&self.key(key).lease(self.owner(owner))).await;
                self.expect(
                    key,
                    &Event::Release(self.owner(owner)),
                    &EventOutcome::Fence(fence),
                    at,
                );
            }
            Action::Abandon { key, owner, policy } => {
                let fence =
                    self.key(key).abandon(&self.key(key).lease(self.owner(owner)), policy).await;
                self.expect(
                    key,
                    &Event::Abandon(self.owner(owner), policy),
                    &EventOutcome::Fence(fence),
                    at,
                );
            }
            Action::Resolve { key, owner, recording } => {
                let resolution = recording.map_or(Resolution::Release, |recording| {
                    Resolution::Complete(numbered_recording(recording))
                });
                let resolved = self.key(key).resolve(&self.owner(owner), resolution.clone()).await;
                self.expect(
                    key,
                    &Event::Resolve(self.owner(owner), &resolution),
                    &EventOutcome::Resolve(resolved),
                    at,
                );
            }
            Action::Remove { key, owner, live } => self.remove(key, owner, live, at).await,
            Action::Replace { key, owner, becomes, seen } => {
                let replacement = self.replacement(key, owner, becomes, seen);
                self.replace(key, &replacement, at).await;
            }
            Action::Append { key, kind } => self.append(key, kind, at).await,
            Action::Purge => self.purge(at).await,
            Action::Advance => {
                self.fixture.advance_a_tick().await;
                self.now = self.now.after(self.fixture.tick());
            }
            Action::SetBack { ticks } => {
                if self.fixture.set_back(u32::from(ticks % 8)).await {
                    let back = millis(self.fixture.tick()) * u64::from(ticks % 8);
                    self.now = Timestamp::from_millis(self.now.as_millis() - back);
                }
            }
        }
    }

    async fn remove(&mut self, key: u8, owner: u8, live: bool, at: usize) {
        let removal = Removal { seen: self.owner(owner), live };
        if let Some(removed) = self.key(key).remove(&removal).await {
            let outcome = EventOutcome::Changed(removed);
            self.expect(key, &Event::Remove(removal), &outcome, at);
        }
    }

    async fn replace(&mut self, key: u8, replacement: &Replacement, at: usize) {
        if let Some(replaced) = self.key(key).replace(replacement).await {
            let outcome = EventOutcome::Changed(replaced);
            self.expect(key, &Event::Replace(replacement), &outcome, at);
        }
    }

    async fn append(&mut self, key: u8, kind: u8, at: usize) {
        let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
        if self.key(key).append_history(kind).await.is_some() {
            self.expect(key, &Event::Append(kind), &EventOutcome::Appended, at);
        }
    }

    /// A replacement of all bytes that the record of the model has.
    fn replacement(&self, key: u8, owner: u8, becomes: u8, seen: bool) -> Replacement {
        let record = self.model[usize::from(key % 2)].as_ref();
        let was = record.map(Contents::of).unwrap_or_default();
        let of = |was: &Bytes| {
            if was.is_empty() { Bytes::new() } else { numbered_recording(becomes.max(3)) }
        };
        let (recording, steps, input) = (of(&was.recording), of(&was.steps), of(&was.input));
        let becomes = Contents { recording, steps, input };
        let was = if seen { was } else { Contents { input: numbered_recording(2), ..was } };
        Replacement::new(self.owner(owner), was, becomes)
    }

    async fn claim(&mut self, key: u8, claim: &Claim, at: usize) {
        let outcome = self.key(key).claim(claim).await;
        let expected = self.apply(key, &Event::Claim(claim));
        if let (
            ClaimOutcome::Rejected(Rejection::InFlight { lease_left: left, reference }),
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight {
                lease_left: expected,
                reference: noted,
            })),
        ) = (&outcome, &expected)
        {
            assert_eq!(reference, noted, "action {at}: {claim:?}");
            let apart = left.abs_diff(*expected);
            assert!(
                apart < self.fixture.tick() / 4,
                "action {at}: {claim:?} has {left:?} left, not {expected:?}"
            );
        } else {
            assert_eq!(EventOutcome::Claim(outcome), expected, "action {at}: {claim:?}");
        }
    }

    async fn renew(&mut self, owner: u8, extend: Duration, at: usize) {
        let owner = self.owner(owner);
        let renewals = self.keys.each_ref().map(|key| Renewal { lease: key.lease(owner), extend });
        let fences = self.fixture.store().renew(&renewals).await.unwrap();
        assert_eq!(fences.len(), 2, "action {at}");
        for (key, fence) in (0..).zip(fences) {
            let fence = if fence == RenewOutcome::Renewed { Fence::Passed } else { Fence::Fenced };
            self.expect(key, &Event::Renew(owner, extend), &EventOutcome::Fence(fence), at);
        }
    }

    async fn purge(&mut self, at: usize) {
        let removed = self.fixture.purge_all().await;
        let expected = [0, 1].map(|key| self.apply(key, &Event::Purge));
        let expected =
            expected.into_iter().filter(|outcome| *outcome == EventOutcome::Purge(true)).count();
        // Other users of the store may have expired records too.
        assert!(
            removed >= u64::try_from(expected).unwrap(),
            "action {at}: purged {removed}, not {expected}"
        );
    }

    fn expect(&mut self, key: u8, event: &Event<'_>, outcome: &EventOutcome, at: usize) {
        assert_eq!(*outcome, self.apply(key, event), "action {at}: {event:?}");
    }

    fn apply(&mut self, key: u8, event: &Event<'_>) -> EventOutcome {
        let record = &mut self.model[usize::from(key % 2)];
        let (change, outcome) = transition(record.as_ref(), event, self.now);
        match change {
            Change::Keep => {}
            Change::Put(new) => *record = Some(new),
            Change::Remove => *record = None,
        }
        self.outcomes.push(outcome.clone());
        outcome
    }

    async fn compare(&self, key: u8, action: Action, at: usize) {
        let found = self.fixture.store().look_up(&self.key(key).id).await.unwrap();
        let expected =
            self.model[usize::from(key % 2)].as_ref().filter(|record| !record.is_expired(self.now));
        let (Some(found), Some(expected)) = (&found, expected) else {
            assert_eq!(
                found.map(|found| found.record).as_ref(),
                expected,
                "after action {at}: {action:?}"
            );
            return;
        };
        // The store's record, with the model's times where they are close enough.
        let mut record = found.record.clone();
        for (time, expected) in [
            (&mut record.lease_until, expected.lease_until),
            (&mut record.first_seen, expected.first_seen),
            (&mut record.expires_at, expected.expires_at),
        ] {
            let apart = ago(*time, found.at).abs_diff(ago(expected, self.now));
            if apart < u128::from(millis(self.fixture.tick() / 4)) {
                *time = expected;
            }
        }
        if let (Some(time), Some(expected)) = (&mut record.completed_at, expected.completed_at) {
            let apart = ago(*time, found.at).abs_diff(ago(expected, self.now));
            if apart < u128::from(millis(self.fixture.tick() / 4)) {
                *time = expected;
            }
        }
        record.history = self.aligned(record.history, found.at, expected.history);
        assert_eq!(record, *expected, "after action {at}: {action:?}");
    }

    /// The history, with the model's times where they are close enough.
    fn aligned(&self, history: History, at: Timestamp, expected: History) -> History {
        let mut expected = expected.entries();
        history.entries().fold(History::EMPTY, |aligned, entry| {
            let model = expected.next().filter(|model| {
                let apart = ago(entry.at, at).abs_diff(ago(model.at, self.now));
                apart < u128::from(millis(self.fixture.tick() / 4))
            });
            aligned.with(entry.kind, model.map_or(entry.at, |model| model.at))
        })
    }

    fn ticks(&self, whole: u8) -> Duration {
        self.fixture.tick() * u32::from(whole) + self.fixture.tick() / 2
    }

    fn key(&self, number: u8) -> &KeyUnderTest {
        &self.keys[usize::from(number % 2)]
    }

    fn owner(&self, number: u8) -> OwnerToken {
        self.owners[usize::from(number % 4)]
    }
}

/// How long ago a time was in milliseconds; negative for a future time.
fn ago(time: Timestamp, now: Timestamp) -> i128 {
    i128::from(now.as_millis()) - i128::from(time.as_millis())
}

/// A recording whose status is its number, if the number is above 2.
fn numbered_recording(number: u8) -> Bytes {
    let mut recording = vec![number; usize::from(number)];
    if let [version, high, ..] = recording.as_mut_slice() {
        (*version, *high) = (1, 0);
    }
    recording.into()
}

/// A note; each of the low bits of its number adds one part.
fn numbered_note(number: u8) -> Note {
    let has = |bit: u8| number & (1 << bit) != 0;
    let text = |bit| has(bit).then(|| ShortText::truncated(&format!("note {number}")));
    let bytes =
        |bit| if has(bit) { vec![number; usize::from(number)].into() } else { Bytes::new() };
    Note {
        reference: text(0),
        progress: text(1),
        step: bytes(2),
        input: bytes(3),
        hold: has(4) && has(5) && has(6),
    }
}
