//! A store beside the pure function.

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
    Subject,
    bench::{Bench, Key, fingerprint, owner},
};
use crate::{
    clock::{Timestamp, millis},
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution},
    record::Record,
    transition::{Change, Event, Outcome, transition},
};

/// One step of a history. It is about one of two keys, and about one of four owners, by number; other numbers are taken modulo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Someone asks for a key.
    Claim {
        /// Which key.
        key: u8,
        /// By which owner. One who claims after others, or after an end, is a new attempt with an old token: stores must bear that.
        owner: u8,
        /// With which of two fingerprints.
        fingerprint: u8,
        /// For how many ticks and a half, modulo 4.
        lease: u8,
        /// With an answer that is kept for how many ticks and a half, modulo 8.
        ttl: u8,
        /// What becomes of it when it is abandoned.
        abandoned: Abandoned,
    },
    /// An owner renews both keys in one call.
    Renew {
        /// Which owner.
        owner: u8,
        /// For how many ticks and a half, modulo 4.
        lease: u8,
    },
    /// An owner brings an answer.
    Complete {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Which answer.
        answer: u8,
    },
    /// An owner gives a key back.
    Release {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
    },
    /// An owner gives up.
    Abandon {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// What is to become of the key.
        policy: Abandoned,
    },
    /// An operator resolves a key, having seen an owner.
    Resolve {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// With which answer; a release if there is none.
        answer: Option<u8>,
    },
    /// The store makes room.
    Purge,
    /// One tick passes.
    Advance,
    /// The store's clock is set back, if it can be.
    SetBack {
        /// By how many ticks, modulo 8.
        ticks: u8,
    },
}

/// A random history of so many steps, the same for the same seed.
#[must_use]
pub fn history(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..steps).map(|_| step(&mut random)).collect()
}

fn step(random: &mut fastrand::Rng) -> Step {
    let [key, owner, answer] = [(); 3].map(|()| random.u8(..));
    let policy = if random.u8(..4) == 0 { Abandoned::Hold } else { Abandoned::Retry };
    match random.u8(..18) {
        0..=4 => {
            // One in four asks for something else.
            let fingerprint = u8::from(random.u8(..4) == 0);
            Step::Claim { key, owner, fingerprint, lease: random.u8(..), ttl: random.u8(..), abandoned: policy }
        }
        5 => Step::Renew { owner, lease: random.u8(..) },
        6 | 7 => Step::Complete { key, owner, answer },
        8 => Step::Release { key, owner },
        9 => Step::Abandon { key, owner, policy },
        10 => Step::Resolve { key, owner, answer: random.bool().then_some(answer) },
        11 => Step::Purge,
        12 => Step::SetBack { ticks: random.u8(1..3) },
        _ => Step::Advance,
    }
}

/// Takes a history's steps on a store and on the pure function, and compares outcome and records after each of them.
///
/// Times are compared within a quarter of a tick, since real clocks do not stand still, and leases and ttls end half a tick away from
/// every step. A history is therefore cut short once it has run for an eighth of a tick, without the time that [`Subject::advance`] lets
/// pass.
///
/// It returns the outcomes of the steps that were taken, for a test to see that they are not all alike.
///
/// # Panics
/// When they differ, or the store fails.
pub async fn follow<S: Subject>(subject: std::sync::Arc<S>, steps: &[Step]) -> Vec<Outcome> {
    subject.store().migrate().await.unwrap();
    let bench = Bench::new(subject);
    let keys = [bench.key(), bench.key()];
    let owners = [owner(), owner(), owner(), owner()];
    let start = Timestamp::from_millis(1_000_000_000_000);
    let mut pair = Pair { bench, keys, owners, model: [None, None], now: start, outcomes: Vec::new() };
    let started = Instant::now();
    for (at, step) in steps.iter().enumerate() {
        if started.elapsed() >= pair.bench.tick() / 8 {
            break;
        }
        if let Err(difference) = catch(pair.follow(*step, at)).await {
            // In a step that has taken that long, times differ that do not differ elsewhere.
            if started.elapsed() >= pair.bench.tick() / 4 {
                break;
            }
            resume_unwind(difference);
        }
    }
    pair.outcomes
}

/// Catches a panic.
async fn catch(step: impl Future<Output = ()>) -> Result<(), Box<dyn Any + Send>> {
    let mut step = pin!(step);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(difference) => Poll::Ready(Err(difference)),
    })
    .await
}

/// The store and its model.
struct Pair {
    bench: Bench,
    keys: [Key; 2],
    owners: [OwnerToken; 4],
    model: [Option<Record>; 2],
    now: Timestamp,
    outcomes: Vec<Outcome>,
}

#[expect(clippy::indexing_slicing, reason = "every index is taken modulo the length")]
impl Pair {
    async fn follow(&mut self, step: Step, at: usize) {
        self.step(step, at).await;
        for key in 0..2 {
            self.compare(key, step, at).await;
        }
    }

    async fn step(&mut self, step: Step, at: usize) {
        match step {
            Step::Claim { key, owner, fingerprint: of, lease, ttl, abandoned } => {
                let (lease, ttl) = (self.ticks(lease % 4), self.ticks(ttl % 8));
                let owner = self.owner(owner);
                self.claim(
                    key,
                    &Claim { fingerprint: fingerprint(of % 2), owner, lease, ttl, abandoned, principal: None },
                    at,
                )
                .await;
            }
            Step::Renew { owner, lease } => self.renew(owner, self.ticks(lease % 4), at).await,
            Step::Complete { key, owner, answer } => {
                let recording = recording(answer);
                let fence = self.key(key).complete(&self.key(key).lease(self.owner(owner)), &recording).await;
                self.expect(key, &Event::Complete(self.owner(owner), &recording), &Outcome::Fence(fence), at);
            }
            Step::Release { key, owner } => {
                let fence = self.key(key).release(&self.key(key).lease(self.owner(owner))).await;
                self.expect(key, &Event::Release(self.owner(owner)), &Outcome::Fence(fence), at);
            }
            Step::Abandon { key, owner, policy } => {
                let fence = self.key(key).abandon(&self.key(key).lease(self.owner(owner)), policy).await;
                self.expect(key, &Event::Abandon(self.owner(owner), policy), &Outcome::Fence(fence), at);
            }
            Step::Resolve { key, owner, answer } => {
                let resolution = answer.map_or(Resolution::Release, |answer| Resolution::Complete(recording(answer)));
                let resolved = self.key(key).resolve(&self.owner(owner), resolution.clone()).await;
                self.expect(key, &Event::Resolve(self.owner(owner), &resolution), &Outcome::Resolve(resolved), at);
            }
            Step::Purge => self.purge(at).await,
            Step::Advance => {
                self.bench.advance_a_tick().await;
                self.now = self.now.after(self.bench.tick());
            }
            Step::SetBack { ticks } => {
                if self.bench.set_back(u32::from(ticks % 8)).await {
                    let back = millis(self.bench.tick()) * u64::from(ticks % 8);
                    self.now = Timestamp::from_millis(self.now.as_millis() - back);
                }
            }
        }
    }

    async fn claim(&mut self, key: u8, claim: &Claim, at: usize) {
        let outcome = self.key(key).claim(claim).await;
        let expected = self.apply(key, &Event::Claim(claim));
        if let (
            ClaimOutcome::InFlight { lease_left: left },
            Outcome::Claim(ClaimOutcome::InFlight { lease_left: expected }),
        ) = (&outcome, &expected)
        {
            let apart = left.abs_diff(*expected);
            assert!(apart < self.bench.tick() / 4, "step {at}: {claim:?} has {left:?} left, not {expected:?}");
        } else {
            assert_eq!(Outcome::Claim(outcome), expected, "step {at}: {claim:?}");
        }
    }

    async fn renew(&mut self, owner: u8, extend: Duration, at: usize) {
        let owner = self.owner(owner);
        let renewals = self.keys.each_ref().map(|key| Renewal { lease: key.lease(owner), extend });
        let fences = self.bench.store().renew(&renewals).await.unwrap();
        assert_eq!(fences.len(), 2, "step {at}");
        for (key, fence) in (0..).zip(fences) {
            let fence = if fence == RenewOutcome::Renewed { Fence::Passed } else { Fence::Fenced };
            self.expect(key, &Event::Renew(owner, extend), &Outcome::Fence(fence), at);
        }
    }

    async fn purge(&mut self, at: usize) {
        let removed = self.bench.purge_all().await;
        let expected = [0, 1].map(|key| self.apply(key, &Event::Purge));
        let expected = expected.into_iter().filter(|outcome| *outcome == Outcome::Purge(true)).count();
        // Others may use the store too.
        assert!(removed >= u64::try_from(expected).unwrap(), "step {at}: purged {removed}, not {expected}");
    }

    fn expect(&mut self, key: u8, event: &Event<'_>, outcome: &Outcome, at: usize) {
        assert_eq!(*outcome, self.apply(key, event), "step {at}: {event:?}");
    }

    fn apply(&mut self, key: u8, event: &Event<'_>) -> Outcome {
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

    async fn compare(&self, key: u8, step: Step, at: usize) {
        let found = self.bench.store().look_up(&self.key(key).id).await.unwrap();
        let expected = self.model[usize::from(key % 2)].as_ref().filter(|record| !record.expired(self.now));
        let (Some(found), Some(expected)) = (&found, expected) else {
            assert_eq!(found.map(|found| found.record).as_ref(), expected, "after step {at}: {step:?}");
            return;
        };
        // The store's record, with its times moved to the model's clock where they are near enough.
        let mut record = found.record.clone();
        for (time, expected) in [
            (&mut record.lease_until, expected.lease_until),
            (&mut record.first_seen, expected.first_seen),
            (&mut record.expires_at, expected.expires_at),
        ] {
            let apart = ago(*time, found.at).abs_diff(ago(expected, self.now));
            if apart < u128::from(millis(self.bench.tick() / 4)) {
                *time = expected;
            }
        }
        assert_eq!(record, *expected, "after step {at}: {step:?}");
    }

    fn ticks(&self, whole: u8) -> Duration {
        self.bench.tick() * u32::from(whole) + self.bench.tick() / 2
    }

    fn key(&self, number: u8) -> &Key {
        &self.keys[usize::from(number % 2)]
    }

    fn owner(&self, number: u8) -> OwnerToken {
        self.owners[usize::from(number % 4)]
    }
}

/// How long ago a time was; less than nothing if it is to come.
fn ago(time: Timestamp, now: Timestamp) -> i128 {
    i128::from(now.as_millis()) - i128::from(time.as_millis())
}

fn recording(number: u8) -> Bytes {
    vec![number; usize::from(number)].into()
}
