//! The hammer: workers that share keys. Most complete in time, some die, and some return after
//! their lease has expired.

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
    protocol::{Claim, ClaimOutcome, Rejection},
    store::Store,
};

mod attempt;
mod ledger;
mod runs;
mod tally;
mod transactions;

/// The length of a renewed lease.
const RENEWED_LEASE: Duration = Duration::from_secs(2);

/// Parameters of the workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hammer {
    pub(super) workers: usize,
    pub(super) keys: usize,
    /// How many of the keys that are not completed yet the workers use at a time.
    pub(super) active_keys: usize,
    pub(super) lease: Duration,
    /// The percentage of claims in the transaction of the effect, if there are effects.
    pub(super) transaction_percent: u8,
    /// How long a run may take.
    pub(super) time_limit: Duration,
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

/// Returns a violation unless a condition holds.
fn ensure(condition: bool, violation: impl FnOnce() -> String) -> Checked {
    if condition { Ok(()) } else { Err(Violation(violation())) }
}

impl Hammer {
    pub(super) const FULL: Self = Self {
        workers: 8,
        keys: 500,
        active_keys: 12,
        lease: Duration::from_millis(30),
        transaction_percent: 0,
        time_limit: Duration::from_secs(180),
    };

    /// Runs until each key is completed or a guarantee is violated, and then checks every key, and
    /// its effects if there are any.
    pub(super) async fn run(self, fixture: &Fixture) -> Checked<Tally> {
        let shared = SharedState::new(self, fixture.effects.clone());
        let stores = fixture.stores.iter().cycle().take(self.workers);
        let workers = stores.map(|store| {
            let worker = Worker { store: store.clone(), shared: shared.clone(), rng: Rng::new() };
            worker.work()
        });
        let ended = workers.collect::<JoinSet<_>>().join_all().await;
        ended.into_iter().collect::<Checked>()?;
        for ledger in &shared.ledgers {
            for store in &fixture.stores {
                ledger.check(store.look_up(&ledger.id).await?)?;
            }
            if let Some(effects) = &shared.effects {
                ledger.check_effects(&effects.of(&ledger.id).await)?;
            }
        }
        Ok(shared.tally.clone())
    }
}

/// State that all workers share.
struct SharedState {
    hammer: Hammer,
    ledgers: Vec<Ledger>,
    effects: Option<Arc<Effects>>,
    tally: Tally,
    violated: AtomicBool,
    started: Instant,
}

impl SharedState {
    fn new(hammer: Hammer, effects: Option<Arc<Effects>>) -> Arc<Self> {
        let (ledgers, tally, violated) =
            (Ledger::many(hammer.keys), Tally::default(), AtomicBool::new(false));
        Arc::new(Self { hammer, ledgers, effects, tally, violated, started: Instant::now() })
    }

    /// Draws one of the first keys that are not completed, or sometimes any key.
    fn draw(&self, rng: &mut Rng) -> Option<&Ledger> {
        let left =
            self.ledgers.iter().filter(|ledger| !ledger.is_completed() && !ledger.never_completes);
        let left: Vec<_> = left.take(self.hammer.active_keys).collect();
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
    shared: Arc<SharedState>,
    rng: Rng,
}

impl Worker {
    async fn work(mut self) -> Checked {
        let shared = self.shared.clone();
        while let (Some(ledger), false) =
            (shared.draw(&mut self.rng), shared.violated.load(Ordering::Relaxed))
        {
            let mut done = self.work_on(ledger).await;
            if done.is_ok() {
                done = ensure(shared.started.elapsed() < shared.hammer.time_limit, || {
                    "a key was not completed within the time limit".into()
                });
            }
            if done.is_err() {
                shared.violated.store(true, Ordering::Relaxed);
                return done;
            }
        }
        Ok(())
    }

    /// Claims a key, and runs as its owner if it is granted.
    async fn work_on(&mut self, ledger: &Ledger) -> Checked {
        let (claim, sent, known) =
            (request(self.shared.hammer.lease), Instant::now(), ledger.last_attempt() > 0);
        if known && self.rng.u8(..16) == 0 {
            return self.claim_with_another_fingerprint(ledger).await;
        }
        if let Some(effects) = self.shared.effects.clone()
            && self.rng.u8(..100) < self.shared.hammer.transaction_percent
        {
            return self.claim_in_transaction(ledger, &effects).await;
        }
        match self.claim(&ledger.id, &claim).await? {
            None => Ok(()),
            Some(ClaimOutcome::Granted { attempt }) => {
                ledger.granted(attempt, claim.owner)?;
                let lease = Lease { id: ledger.id, owner: claim.owner };
                let safe_until = sent + claim.lease;
                let mut attempt = Attempt {
                    store: &*self.store,
                    shared: &self.shared,
                    ledger,
                    claim,
                    lease,
                    attempt,
                    safe_until,
                };
                attempt.run(&mut self.rng).await
            }
            Some(ClaimOutcome::Rejected(rejection)) => {
                self.check_rejection(ledger, rejection).await
            }
        }
    }

    /// Checks why a claim was not granted.
    async fn check_rejection(&mut self, ledger: &Ledger, rejection: Rejection) -> Checked {
        let SharedState { tally, hammer, .. } = &*self.shared;
        match rejection {
            Rejection::Completed(recording) => {
                tally.count(Count::Replays);
                ledger.replayed(recording)
            }
            Rejection::InFlight { lease_left, .. } => {
                tally.count(Count::InFlight);
                let longest = RENEWED_LEASE.max(hammer.lease);
                ensure(lease_left <= longest, || {
                    format!("the remaining lease is too long: {lease_left:?}")
                })?;
                sleep(Duration::from_micros(self.rng.u64(200..4_000))).await;
                Ok(())
            }
            other @ (Rejection::Held { .. } | Rejection::Mismatch { .. }) => {
                Err(Violation(format!("a claim returned {other:?}")))
            }
        }
    }

    async fn claim_with_another_fingerprint(&mut self, ledger: &Ledger) -> Checked {
        let fingerprint = Fingerprint::from_bytes([2; Fingerprint::BYTES]);
        let claim = request(self.shared.hammer.lease).with_fingerprint(fingerprint);
        let outcome = self.claim(&ledger.id, &claim).await?;
        self.shared.tally.count(Count::Mismatches);
        let mismatch =
            matches!(outcome, None | Some(ClaimOutcome::Rejected(Rejection::Mismatch { .. })));
        ensure(mismatch, || format!("a claim with another fingerprint returned {outcome:?}"))
    }

    /// Claims a key; returns `None` if the store failed transiently because of contention.
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Checked<Option<ClaimOutcome>> {
        match self.store.claim(id, claim).await {
            Err(error) if error.is_transient() => {
                self.shared.tally.count(Count::Unknown);
                Ok(None)
            }
            outcome => Ok(Some(outcome?)),
        }
    }
}
