//! Random histories of the pure function: many attempts, any of which may stall, be replaced, and
//! come back.

use proptest::test_runner::{Config, TestRunner};

use self::acts::{Act, acts};
use super::*;
use crate::{
    fingerprint::Fingerprint,
    protocol::{Resolution, ResolveOutcome},
    short_text::ShortText,
};

mod acts;

/// The state of an attempt.
struct Attempt {
    claim: Claim,
    /// The end of its lease by a clock that is never set back, if it was granted and has not ended.
    lease_until: Option<Timestamp>,
}

/// How many times each interesting event occurred.
#[derive(Debug, Default)]
struct Seen {
    takeovers: u32,
    epochs_after_expiry: u32,
    fenced: u32,
    late_completions: u32,
    mismatches: u32,
    replays: u32,
    held: u32,
    refused_by_hold_after_the_ttl: u32,
    resolved: u32,
    purged: u32,
    resent: u32,
    shortened: u32,
    held_by_note: u32,
    steps: u32,
}

/// The record, and what an observer knows who sees only the outcomes.
struct World<'a> {
    record: Option<Record>,
    /// The store's clock.
    now: Timestamp,
    /// The clock of the attempts, which is never set back.
    elapsed: Timestamp,
    attempts: Vec<Attempt>,
    /// The attempt that was granted last, unless it released the key or an operator resolved it.
    holder: Option<usize>,
    /// The attempt that was granted the key with `hold`, until the key is released or the recording
    /// expires.
    sole: Option<usize>,
    seen: &'a mut Seen,
}

impl World<'_> {
    fn act(&mut self, act: Act) {
        let before = self.record.clone();
        match act {
            Act::Claim { fingerprint, lease, ttl, abandoned } => {
                self.claim(fingerprint, lease, ttl, abandoned)
            }
            Act::Resend { who } => {
                if let Some(who) = self.who(who) {
                    self.send(who);
                    self.seen.resent += 1;
                }
            }
            Act::Renew { who, lease } => {
                let lease = Duration::from_secs(lease.into());
                if let Some(who) = self.fenced(who, |owner, _| Event::Renew(owner, lease)) {
                    self.attempts[who].lease_until = Some(self.elapsed.after(lease));
                }
            }
            Act::Hold { who } => {
                if let Some(who) = self.note(who, &Note::hold()) {
                    self.sole = Some(who);
                    self.seen.held_by_note += 1;
                }
            }
            Act::Step { who } => {
                if self.note(who, &Note::step(Bytes::from_static(b"step"))).is_some() {
                    self.seen.steps += 1;
                }
            }
            Act::Complete { who } => {
                let late =
                    self.record.as_ref().is_some_and(|record| record.lease_expired(self.now));
                if let Some(who) =
                    self.fenced(who, |owner, recording| Event::Complete(owner, recording))
                {
                    self.attempts[who].lease_until = None;
                    self.seen.late_completions += u32::from(late);
                }
            }
            Act::Release { who } => {
                if let Some(who) = self.fenced(who, |owner, _| Event::Release(owner)) {
                    self.attempts[who].lease_until = None;
                    (self.holder, self.sole) = (None, None);
                }
            }
            Act::Abandon { who, policy } => {
                if let Some(who) = self.fenced(who, |owner, _| Event::Abandon(owner, policy)) {
                    self.attempts[who].lease_until = None;
                }
            }
            Act::Resolve { who, done } => self.resolve(who, done),
            Act::Purge => {
                if self.step(&Event::Purge) == EventOutcome::Purge(true) {
                    self.holder = None;
                    self.sole = self.sole.filter(|_| !before.as_ref().is_some_and(is_completed));
                    self.seen.purged += 1;
                }
            }
            Act::Wait { seconds } => self.wait(Duration::from_secs(seconds.into())),
            Act::SetBack { seconds } => {
                self.now =
                    Timestamp::from_millis(self.now.as_millis() - u64::from(seconds) * 1_000);
            }
        }
        self.assert_invariants(before.as_ref(), act);
    }

    fn step(&mut self, event: &Event<'_>) -> EventOutcome {
        let (change, outcome) = transition(self.record.as_ref(), event, self.now);
        if let (Event::Claim(claim), Change::Put(new)) = (event, &change) {
            self.seen.shortened +=
                u32::from(new.state == RecordState::InFlight && new.owner != claim.owner);
        }
        match change {
            Change::Keep => {}
            Change::Put(record) => self.record = Some(record),
            Change::Remove => self.record = None,
        }
        outcome
    }

    fn wait(&mut self, time: Duration) {
        (self.now, self.elapsed) = (self.now.after(time), self.elapsed.after(time));
    }

    /// Asserts that a key whose owner died is free or held one lease later, however the clock was
    /// set.
    fn assert_recovers(&mut self) {
        let Some(record) = self.record.clone() else { return };
        let claim = |byte| Claim {
            fingerprint: record.fingerprint,
            owner: OwnerToken::from_bytes([byte; 16]),
            lease: Duration::from_secs(1),
            ttl: Duration::from_secs(1),
            abandoned: Abandoned::Retry,
            principal: None,
            operation: ShortText::EMPTY,
        };
        let outcome = self.step(&Event::Claim(&claim(0xfe)));
        if let EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) = outcome {
            self.wait(record.lease);
            let outcome = self.step(&Event::Claim(&claim(0xff)));
            let stuck = matches!(
                outcome,
                EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. }))
            );
            assert!(!stuck, "{record:?} is still in flight at {:?}", self.now);
        }
    }

    fn who(&self, ago: usize) -> Option<usize> {
        self.attempts.len().checked_sub(ago + 1)
    }

    /// A recording that contains the fingerprint of its claim.
    fn recording_of(claim: &Claim) -> Bytes {
        claim.fingerprint.to_bytes().to_vec().into()
    }

    fn claim(&mut self, fingerprint: u8, lease: u8, ttl: u8, abandoned: Abandoned) {
        let [lease, ttl] = [lease, ttl].map(|seconds| Duration::from_secs(seconds.into()));
        let owner = OwnerToken::from_bytes((self.attempts.len() as u128 + 1).to_be_bytes());
        let fingerprint = Fingerprint::from_bytes([fingerprint; 36]);
        let (principal, operation) = (None, ShortText::EMPTY);
        let claim = Claim { fingerprint, owner, lease, ttl, abandoned, principal, operation };
        self.attempts.push(Attempt { claim, lease_until: None });
        self.send(self.attempts.len() - 1);
    }

    fn send(&mut self, who: usize) {
        let (before, claim) = (self.record.clone(), self.attempts[who].claim.clone());
        match self.step(&Event::Claim(&claim)) {
            EventOutcome::Claim(ClaimOutcome::Granted { attempt }) => {
                self.granted(who, attempt, before.as_ref())
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(recording))) => {
                assert_eq!(
                    recording,
                    Self::recording_of(&claim),
                    "I5: a recording of another payload"
                );
                self.seen.replays += 1;
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })) => {
                self.seen.held += 1;
                let expired = before.is_some_and(|record| record.expires_at <= self.now);
                self.seen.refused_by_hold_after_the_ttl += u32::from(expired);
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. })) => {
                self.seen.mismatches += 1
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) => {}
            outcome @ (EventOutcome::Fence(_)
            | EventOutcome::Resolve(_)
            | EventOutcome::Changed(_)
            | EventOutcome::Appended
            | EventOutcome::Purge(_)) => {
                panic!("{outcome:?}")
            }
        }
    }

    fn granted(&mut self, who: usize, attempt: u32, before: Option<&Record>) {
        let claim = self.attempts[who].claim.clone();
        let same_epoch = before.filter(|record| !record.is_expired(self.now));
        if let Some(record) = same_epoch {
            let own = record.owner == claim.owner;
            assert!(own || record.fingerprint == claim.fingerprint, "I5: another payload runs");
            self.seen.takeovers += u32::from(!own);
        } else {
            assert_eq!(attempt, 1);
            self.seen.epochs_after_expiry += u32::from(before.is_some());
            self.sole = self.sole.filter(|_| !before.is_some_and(is_completed));
        }
        assert!(self.sole.is_none_or(|sole| sole == who), "I6: a second start under hold");
        if claim.abandoned == Abandoned::Hold {
            self.sole = Some(who);
        }
        self.holder = Some(who);
        self.attempts[who].lease_until = Some(self.elapsed.after(claim.lease));
    }

    /// Sends an event that only the owner may send; returns the attempt if it passed.
    fn fenced(
        &mut self,
        ago: usize,
        event: impl Fn(OwnerToken, &Bytes) -> Event<'_>,
    ) -> Option<usize> {
        let who = self.who(ago)?;
        let claim = self.attempts[who].claim.clone();
        self.pass(who, &event(claim.owner, &Self::recording_of(&claim)))
    }

    fn pass(&mut self, who: usize, event: &Event<'_>) -> Option<usize> {
        if self.step(event) == EventOutcome::Fence(Fence::Passed) {
            assert_eq!(self.holder, Some(who), "I3: a fenced owner passed");
            return Some(who);
        }
        self.seen.fenced += 1;
        None
    }

    fn note(&mut self, ago: usize, note: &Note) -> Option<usize> {
        let who = self.who(ago)?;
        let owner = self.attempts[who].claim.owner;
        self.pass(who, &Event::Note(owner, note))
    }

    fn resolve(&mut self, ago: usize, done: bool) {
        let (Some(who), Some(record)) = (self.who(ago), &self.record) else { return };
        let recording = record.fingerprint.to_bytes().to_vec().into();
        let resolution = if done { Resolution::Complete(recording) } else { Resolution::Release };
        let outcome = self.step(&Event::Resolve(self.attempts[who].claim.owner, &resolution));
        if outcome == EventOutcome::Resolve(ResolveOutcome::Resolved) {
            self.seen.resolved += 1;
            self.attempts[who].lease_until = None;
            self.holder = None;
            self.sole = self.sole.filter(|_| done);
        }
    }

    fn assert_invariants(&self, before: Option<&Record>, act: Act) {
        let in_flight =
            |attempt: &&Attempt| attempt.lease_until.is_some_and(|until| until > self.elapsed);
        let live = self.attempts.iter().filter(in_flight).count();
        assert!(live <= 1, "I1: {live} live owners after {act:?}");
        if let Some(before) =
            before.filter(|record| is_completed(record) && record.expires_at > self.now)
        {
            assert_eq!(self.record.as_ref(), Some(before), "I2: {act:?} changed a recording");
        }
    }
}

fn is_completed(record: &Record) -> bool {
    matches!(record.state, RecordState::Completed(_))
}

#[test]
fn the_invariants_hold_in_random_histories() {
    let seen = std::cell::RefCell::new(Seen::default());
    let mut runner =
        TestRunner::new(Config { cases: 1_000, failure_persistence: None, ..Config::default() });
    let run = |acts: Vec<Act>| {
        let mut seen = seen.borrow_mut();
        let now = Timestamp::from_millis(1_000_000_000);
        let attempts = Vec::new();
        let mut world = World {
            record: None,
            now,
            elapsed: now,
            attempts,
            holder: None,
            sole: None,
            seen: &mut seen,
        };
        acts.into_iter().for_each(|act| world.act(act));
        world.assert_recovers();
        Ok(())
    };
    runner.run(&acts(), run).unwrap();
    let seen = seen.into_inner();
    let counts = [
        seen.takeovers,
        seen.epochs_after_expiry,
        seen.fenced,
        seen.late_completions,
        seen.mismatches,
        seen.replays,
        seen.held,
        seen.refused_by_hold_after_the_ttl,
        seen.resolved,
        seen.purged,
        seen.resent,
        seen.shortened,
        seen.held_by_note,
        seen.steps,
    ];
    assert!(counts.iter().all(|count| *count >= 20), "{seen:?}");
}
