//! Workers that share keys: most complete in time, some die, some return after their lease has
//! expired.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use tokio::{task::JoinSet, time::sleep};

use self::{
    attempt::Attempt,
    ledger::Ledger,
    tally::{Count, Tally},
};
use crate::{effects::Effects, fixtures::Fixture};
use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome},
    store::Store,
};

mod attempt;
mod ledger;
mod runs;
mod tally;
mod within;

/// How long an owner renews.
const RENEWED: Duration = Duration::from_secs(2);

/// Parameters of the workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hammer {
    pub(super) workers: usize,
    pub(super) keys: usize,
    /// How many of the keys that are not completed the workers use at a time.
    pub(super) front: usize,
    pub(super) lease: Duration,
    /// How many percent of the claims are made in the transaction of the effect, where there are
    /// effects.
    pub(super) within: u8,
    /// The time limit of a run.
    pub(super) patience: Duration,
}

/// A violated guarantee.
#[derive(Debug)]
pub(super) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Violation {
    fn from(error: StoreError) -> Self {
        Self(format!("the store failed: {error:?}"))
    }
}

type Checked<T = ()> = Result<T, Violation>;

/// Reports a violation unless a condition holds.
fn holds(what: bool, or: impl FnOnce() -> String) -> Checked {
    if what { Ok(()) } else { Err(Violation(or())) }
}

impl Hammer {
    pub(super) const WHOLE: Self = Self {
        workers: 8,
        keys: 500,
        front: 12,
        lease: Duration::from_millis(30),
        within: 0,
        patience: Duration::from_secs(180),
    };

    /// Runs until each key is completed or a guarantee is violated, and then checks every key, and
    /// its effects if there are any.
    pub(super) async fn strike(self, fixture: &Fixture) -> Checked<Tally> {
        let field = Field::new(self, fixture.effects.clone());
        let stores = fixture.stores.iter().cycle().take(self.workers);
        let workers = stores.map(|store| {
            let worker = Worker { store: store.clone(), field: field.clone(), rng: Rng::new() };
            worker.work()
        });
        let ended = workers.collect::<JoinSet<_>>().join_all().await;
        ended.into_iter().collect::<Checked>()?;
        for ledger in &field.ledgers {
            for store in &fixture.stores {
                ledger.check(store.look_up(&ledger.id).await?)?;
            }
            if let Some(effects) = &field.effects {
                ledger.check_effects(&effects.of(&ledger.id).await)?;
            }
        }
        Ok(field.tally.clone())
    }
}

/// State that all workers share.
struct Field {
    hammer: Hammer,
    ledgers: Vec<Ledger>,
    effects: Option<Arc<Effects>>,
    tally: Tally,
    broken: AtomicBool,
    started: Instant,
}

impl Field {
    fn new(hammer: Hammer, effects: Option<Arc<Effects>>) -> Arc<Self> {
        let (ledgers, tally, broken) =
            (Ledger::many(hammer.keys), Tally::default(), AtomicBool::new(false));
        Arc::new(Self { hammer, ledgers, effects, tally, broken, started: Instant::now() })
    }

    /// One of the first keys that are not completed; sometimes one that is.
    fn draw(&self, rng: &mut Rng) -> Option<&Ledger> {
        let left = self.ledgers.iter().filter(|ledger| !ledger.done() && !ledger.doomed);
        let left: Vec<_> = left.take(self.hammer.front).collect();
        let any = rng.choice(&self.ledgers).filter(|_| !left.is_empty() && rng.u8(..16) == 0);
        any.or_else(|| rng.choice(left))
    }
}

pub(super) fn request(lease: Duration) -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(lease)
        .with_ttl(Duration::from_secs(7200))
}

struct Worker {
    store: Arc<dyn Store>,
    field: Arc<Field>,
    rng: Rng,
}

impl Worker {
    async fn work(mut self) -> Checked {
        let field = self.field.clone();
        while let (Some(ledger), false) =
            (field.draw(&mut self.rng), field.broken.load(Ordering::Relaxed))
        {
            let mut done = self.work_on(ledger).await;
            if done.is_ok() {
                done = holds(field.started.elapsed() < field.hammer.patience, || {
                    "some key is never completed".into()
                });
            }
            if done.is_err() {
                field.broken.store(true, Ordering::Relaxed);
                return done;
            }
        }
        Ok(())
    }

    /// Claims a key, and runs as its owner if it is granted.
    async fn work_on(&mut self, ledger: &Ledger) -> Checked {
        let (claim, asked, known) =
            (request(self.field.hammer.lease), Instant::now(), ledger.last_attempt() > 0);
        if known && self.rng.u8(..16) == 0 {
            return self.claim_with_another_fingerprint(ledger).await;
        }
        if let Some(effects) = self.field.effects.clone()
            && self.rng.u8(..100) < self.field.hammer.within
        {
            return self.claim_within(ledger, &effects).await;
        }
        match self.claim(&ledger.id, &claim).await? {
            None => Ok(()),
            Some(ClaimOutcome::Granted { attempt }) => {
                ledger.granted(attempt, claim.owner)?;
                let lease = Lease { id: ledger.id, owner: claim.owner };
                let safe_until = asked + claim.lease;
                let mut attempt = Attempt {
                    store: &*self.store,
                    field: &self.field,
                    ledger,
                    claim,
                    lease,
                    attempt,
                    safe_until,
                };
                attempt.run(&mut self.rng).await
            }
            Some(outcome) => self.check_rejection(ledger, outcome).await,
        }
    }

    /// Checks the outcome of a claim that was not granted.
    async fn check_rejection(&mut self, ledger: &Ledger, outcome: ClaimOutcome) -> Checked {
        let Field { tally, hammer, .. } = &*self.field;
        match outcome {
            ClaimOutcome::Completed(recording) => {
                tally.count(Count::Replays);
                ledger.replayed(recording)
            }
            ClaimOutcome::InFlight { lease_left } => {
                tally.count(Count::InFlight);
                let given = RENEWED.max(hammer.lease);
                holds(lease_left <= given, || {
                    format!("a lease of {lease_left:?} was never given")
                })?;
                sleep(Duration::from_micros(self.rng.u64(200..4_000))).await;
                Ok(())
            }
            other @ (ClaimOutcome::Granted { .. }
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Mismatch { .. }) => {
                Err(Violation(format!("a claim returned {other:?}")))
            }
        }
    }

    async fn claim_with_another_fingerprint(&mut self, ledger: &Ledger) -> Checked {
        let fingerprint = Fingerprint::from_bytes([2; Fingerprint::BYTES]);
        let claim = request(self.field.hammer.lease).with_fingerprint(fingerprint);
        let outcome = self.claim(&ledger.id, &claim).await?;
        self.field.tally.count(Count::Mismatches);
        let mismatch = matches!(outcome, None | Some(ClaimOutcome::Mismatch { .. }));
        holds(mismatch, || format!("a claim with another fingerprint returned {outcome:?}"))
    }

    /// A claim; `None` if the store gave up because of contention.
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Checked<Option<ClaimOutcome>> {
        match self.store.claim(id, claim).await {
            Err(error) if error.is_transient() => {
                self.field.tally.count(Count::Unknown);
                Ok(None)
            }
            outcome => Ok(Some(outcome?)),
        }
    }
}
