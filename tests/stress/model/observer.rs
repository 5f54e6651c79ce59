//! An observer, who knows only the messages and their outcomes, and notices broken invariants.

use super::world::{ATTEMPTS, Config, LEASE, Message, author};
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Record, RecordState,
    clock::Timestamp,
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::EventOutcome,
};

/// The invariants of `ARCHITECTURE.md` that concern one key of one principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
}

impl Invariant {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::I1 => "I1: at most one live owner",
            Self::I2 => "I2: a completed record does not change until its ttl expires",
            Self::I3 => "I3: a fenced owner can neither complete, release nor renew",
            Self::I4 => "I4: completed if and only if exactly one effect is committed",
            Self::I5 => "I5: a different request never runs and never gets the response",
            Self::I6 => "I6: with `hold` the handler starts at most once",
        }
    }
}

/// What happened from the first grant of the key until it was released or its ttl was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Epoch {
    fingerprint: u8,
    /// Whether no other attempt may run: the policy is `hold`, or the key was held.
    sole: bool,
    /// How many transactions were committed: counted up to 2.
    effects: u8,
}

/// What an observer knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Observer {
    /// The remaining leases, by a clock that is never set back.
    left: [u8; ATTEMPTS],
    /// The attempt that was granted the key last, unless it released the key, an operator resolved
    /// the key, or the ttl was over.
    holder: Option<usize>,
    epoch: Option<Epoch>,
    /// The number with which each attempt was granted the key, if the rules depend on it.
    numbers: [u8; ATTEMPTS],
    /// The broken invariants; a bit each.
    broken: u8,
}

/// A message that the store has executed.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) who: usize,
    pub(super) message: Message,
    pub(super) before: Option<&'a Record>,
    pub(super) after: Option<&'a Record>,
    pub(super) outcome: &'a EventOutcome,
    pub(super) now: Timestamp,
}

impl Observer {
    pub(super) fn is_broken(&self, invariant: Invariant) -> bool {
        self.broken & (1 << invariant as u8) != 0
    }

    fn expect(&mut self, invariant: Invariant, holds: bool) {
        self.broken |= u8::from(!holds) << invariant as u8;
    }

    /// A moment passes for everyone, or every lease gets shorter because the clock is set forward.
    pub(super) fn tick(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// The number with which an attempt was granted the key.
    pub(super) fn number(&self, who: usize) -> u32 {
        self.numbers[who].into()
    }

    pub(super) fn remember_number(&mut self, who: usize, number: u32) {
        self.numbers[who] = u8::try_from(number.min(u8::MAX.into())).unwrap();
    }

    pub(super) fn observe(&mut self, step: &Step<'_>, config: &Config) {
        let Step { who, before, after, now, .. } = *step;
        match step.outcome {
            EventOutcome::Claim(ClaimOutcome::Granted { .. }) => self.granted(step, config),
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(recording))) => {
                self.replayed(who, recording, config);
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })) => {
                self.epoch.iter_mut().for_each(|epoch| epoch.sole = true);
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(
                Rejection::InFlight { .. } | Rejection::Mismatch { .. },
            )) => {}
            EventOutcome::Fence(Fence::Passed) => self.passed(step, config),
            EventOutcome::Fence(Fence::Fenced) => self.expect(Invariant::I3, before == after),
            EventOutcome::Resolve(ResolveOutcome::Resolved) => self.resolved(step),
            EventOutcome::Purge(true) => self.purged(before),
            EventOutcome::Resolve(ResolveOutcome::Conflict)
            | EventOutcome::Changed(_)
            | EventOutcome::Appended
            | EventOutcome::Purge(false) => {}
        }
        self.expect(Invariant::I1, self.left.iter().filter(|left| **left > 0).count() <= 1);
        let recorded = before.filter(|record| is_completed(record) && record.expires_at > now);
        self.expect(Invariant::I2, recorded.is_none() || before == after);
        if config.transactions {
            // An operator completes a key whose effects were rolled back.
            let completed = match after.map(|record| &record.state) {
                Some(RecordState::Completed(recording)) => author(recording).is_some(),
                _ => false,
            };
            let effects = self.epoch.map_or(0, |epoch| epoch.effects);
            self.expect(Invariant::I4, effects == u8::from(completed));
        }
    }

    fn granted(&mut self, Step { who, before, now, .. }: &Step<'_>, config: &Config) {
        let (who, request) = (*who, config.attempts[*who]);
        let hold = request.abandoned == Abandoned::Hold;
        if before.is_none_or(|record| self.is_over(record, *now)) {
            self.epoch = Some(Epoch { fingerprint: request.fingerprint, sole: hold, effects: 0 });
        } else if self.holder != Some(who)
            && let Some(epoch) = self.epoch
        {
            self.expect(Invariant::I5, epoch.fingerprint == request.fingerprint);
            self.expect(Invariant::I6, !epoch.sole && !hold);
        }
        self.holder = Some(who);
        self.left[who] = u8::try_from(LEASE.as_millis()).unwrap();
    }

    /// Whether a record may be replaced as if it were absent.
    fn is_over(&self, record: &Record, now: Timestamp) -> bool {
        let unfinished_hold = self.epoch.is_some_and(|epoch| epoch.sole) && !is_completed(record);
        record.expires_at <= now && !unfinished_hold
    }

    fn replayed(&mut self, who: usize, recording: &Bytes, config: &Config) {
        let fingerprint = match author(recording) {
            Some(author) => Some(config.attempts[author].fingerprint),
            None => self.epoch.map(|epoch| epoch.fingerprint),
        };
        self.expect(Invariant::I5, fingerprint == Some(config.attempts[who].fingerprint));
    }

    fn passed(&mut self, step: &Step<'_>, config: &Config) {
        let Step { who, message, after, now, .. } = *step;
        self.expect(Invariant::I3, self.holder == Some(who));
        self.left[who] = match message {
            Message::Renew => u8::try_from(LEASE.as_millis()).unwrap(),
            _ => 0,
        };
        match message {
            Message::Complete => {
                // A recording that expires at once would let the operation run again.
                let lasts = |record: &Record| is_completed(record) && record.expires_at > now;
                self.expect(Invariant::I2, after.is_some_and(lasts) || step.before == after);
                if config.transactions
                    && let Some(epoch) = &mut self.epoch
                {
                    epoch.effects = (epoch.effects + 1).min(2);
                }
            }
            Message::Abandon => {
                let hold = config.attempts[who].abandoned == Abandoned::Hold;
                self.epoch.iter_mut().for_each(|epoch| epoch.sole |= hold);
            }
            Message::Release => {
                self.expect(Invariant::I4, self.epoch.is_none_or(|epoch| epoch.effects == 0));
                (self.holder, self.epoch) = (None, None);
            }
            _ => {}
        }
    }

    fn resolved(&mut self, step: &Step<'_>) {
        self.expect(Invariant::I3, self.holder == Some(step.who));
        self.expect(Invariant::I1, self.left[step.who] == 0);
        self.holder = None;
        if step.after.is_none() {
            self.epoch = None;
        }
    }

    fn purged(&mut self, before: Option<&Record>) {
        let sole = self.epoch.is_some_and(|epoch| epoch.sole);
        self.expect(Invariant::I1, self.left == [0; ATTEMPTS]);
        self.expect(Invariant::I6, !sole || before.is_none_or(is_completed));
        (self.holder, self.epoch) = (None, None);
    }
}

pub(super) fn is_completed(record: &Record) -> bool {
    matches!(record.state, RecordState::Completed(_))
}
