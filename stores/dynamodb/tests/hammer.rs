//! Workers that share keys, die, return late, and let time pass.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store as _,
    protocol::{ClaimOutcome, Fence, Rejection, Renewal},
};
use idempotent_dynamodb::{DynamoDbStore, internals};
use test_support::servers::dynamodb::{Emulator, open, patient, unique_table};
use tokio::task::JoinSet;

use super::helpers::{LEASE, key, lease, request};

const WORKERS: usize = 8;
const KEYS: usize = 120;

/// What the workers have seen of one key.
#[derive(Debug, Default)]
struct Ledger {
    /// The owner of each attempt.
    attempts: BTreeMap<u32, Lease>,
    completed: Option<(u32, Bytes)>,
}

#[derive(Debug, Default)]
struct Tally {
    takeovers: usize,
    fenced: usize,
    replays: usize,
    in_flight: usize,
    renewals: usize,
}

struct Hammer {
    keys: Vec<(RecordId, Mutex<Ledger>)>,
    tally: Mutex<Tally>,
}

impl Hammer {
    fn ledger(&self, at: usize) -> std::sync::MutexGuard<'_, Ledger> {
        self.keys[at].1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether all keys are completed.
    fn is_done(&self) -> bool {
        (0..KEYS).all(|at| self.ledger(at).completed.is_some())
    }

    async fn work(self: Arc<Self>, store: DynamoDbStore, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut late: Vec<(usize, u32, Lease)> = Vec::new();
        while !self.is_done() {
            let at = rng.usize(..KEYS);
            let (id, claim) = (self.keys[at].0, request());
            match store.claim(&id, &claim).await.unwrap() {
                ClaimOutcome::Granted { attempt } => {
                    let owned = lease(id, &claim);
                    let before = {
                        let mut ledger = self.ledger(at);
                        assert!(ledger.completed.is_none(), "granted after a completion");
                        ledger.attempts.insert(attempt, owned)
                    };
                    assert_eq!(before, None, "attempt {attempt} was granted twice");
                    self.count(|tally| tally.takeovers += usize::from(attempt > 1));
                    self.end(&store, &mut rng, (at, attempt, owned), &mut late).await;
                }
                ClaimOutcome::Rejected(Rejection::Completed(recording)) => {
                    let completed = self.ledger(at).completed.clone();
                    // The completion may not have returned yet.
                    if let Some((_, known)) = completed {
                        assert_eq!(recording, known);
                    }
                    self.count(|tally| tally.replays += 1);
                }
                ClaimOutcome::Rejected(Rejection::InFlight { .. }) => {
                    self.count(|tally| tally.in_flight += 1);
                    if rng.u8(..) < 120 {
                        internals::advance(&store, LEASE / 3);
                    }
                }
                other @ ClaimOutcome::Rejected(_) => panic!("{other:?}"),
            }
            if rng.u8(..) < 40
                && let Some((at, attempt, owned)) = late.pop()
            {
                self.complete(&store, (at, attempt, owned)).await;
            }
        }
    }

    async fn end(
        &self,
        store: &DynamoDbStore,
        rng: &mut Rng,
        (at, attempt, owned): (usize, u32, Lease),
        late: &mut Vec<(usize, u32, Lease)>,
    ) {
        match rng.u8(..8) {
            // Dies.
            0 => {}
            // Returns later.
            1 | 2 => late.push((at, attempt, owned)),
            3 => drop(store.abandon(&owned, Abandoned::Retry).await.unwrap()),
            4 => {
                let renewed = store.renew(&[Renewal::new(owned, LEASE)]).await.unwrap();
                assert_eq!(renewed.len(), 1);
                self.count(|tally| tally.renewals += 1);
                self.complete(store, (at, attempt, owned)).await;
            }
            _ => self.complete(store, (at, attempt, owned)).await,
        }
    }

    async fn complete(&self, store: &DynamoDbStore, (at, attempt, owned): (usize, u32, Lease)) {
        let recording = Bytes::from(format!("attempt {attempt} of {}", owned.id));
        match store.complete(&owned, &recording).await.unwrap() {
            Fence::Passed => {
                let mut ledger = self.ledger(at);
                let last = ledger.attempts.keys().next_back().copied();
                assert!(last == Some(attempt), "{attempt} was completed after {last:?}");
                let completed = ledger.completed.replace((attempt, recording));
                assert_eq!(completed, None, "completed twice");
            }
            Fence::Fenced => self.count(|tally| tally.fenced += 1),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_the_hammer_each_key_is_completed_once() {
    let keys = (0..KEYS).map(|_| (key(), Mutex::default())).collect();
    let hammer = Arc::new(Hammer { keys, tally: Mutex::default() });
    let table = unique_table();
    let store = internals::with_own_time(&open(Emulator::shared().port, &table, patient()));
    store.migrate().await.unwrap();
    store.look_up(&key()).await.unwrap();
    let mut workers = JoinSet::new();
    for seed in 0..WORKERS {
        workers.spawn(hammer.clone().work(store.clone(), u64::try_from(seed).unwrap()));
    }
    tokio::time::timeout(Duration::from_secs(180), workers.join_all()).await.unwrap();
    for (at, (id, _)) in hammer.keys.iter().enumerate() {
        let (attempt, recording) = hammer.ledger(at).completed.clone().unwrap();
        let record = store.look_up(id).await.unwrap().unwrap().record;
        assert_eq!(record.attempt, attempt);
        assert_eq!(record.state, idempotent_core::RecordState::Completed(recording));
    }
    let tally = hammer.tally.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{tally:?}");
    let Tally { takeovers, fenced, replays, in_flight, renewals } = &*tally;
    for (what, least) in
        [(takeovers, 20), (fenced, 5), (replays, 20), (in_flight, 20), (renewals, 5)]
    {
        assert!(*what >= least, "{tally:?}");
    }
}
