//! Concurrent calls are linearizable: their outcomes match those of some sequential order that
//! respects real time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use tokio::{
    sync::{Barrier, Semaphore},
    task::JoinSet,
};

use self::spec::{CallResult, Key, Op};
use super::{fixtures::Fixture, hammer::request};
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, RecordId,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::Store,
};

mod interleaved;
mod spec;

const THREADS: usize = 3;
const OPERATIONS: usize = 5;
const KEYS: usize = 340;
/// Long, so that no lease expires during the test and timing has no influence.
const LEASE: Duration = Duration::from_secs(3000);

/// A thread calls, or its call returns.
#[derive(Clone, Debug)]
enum Event {
    Called(usize, Op),
    Returned(usize, CallResult),
}

type History = Vec<Event>;

fn is_linearizable(history: &History) -> bool {
    let mut tester = LinearizabilityTester::new(Key::default());
    for event in history {
        match event {
            Event::Called(thread, op) => drop(tester.on_invoke(*thread, op.clone()).unwrap()),
            Event::Returned(thread, result) => {
                tester.on_return(*thread, result.clone()).unwrap();
            }
        }
    }
    tester.is_consistent()
}

/// One of the threads that share a key.
struct Thread {
    number: usize,
    store: Arc<dyn Store>,
    id: RecordId,
    history: Arc<Mutex<History>>,
    owner: OwnerToken,
}

impl Thread {
    async fn run(self, start: Arc<Barrier>) {
        start.wait().await;
        self.work(&mut Rng::new()).await;
    }

    async fn work(mut self, rng: &mut Rng) {
        for nth in 0..OPERATIONS {
            let op = self.choose(nth, rng);
            self.history.lock().unwrap().push(Event::Called(self.number, op.clone()));
            let result = self.call(&op).await;
            self.history.lock().unwrap().push(Event::Returned(self.number, result));
        }
    }

    fn choose(&mut self, nth: usize, rng: &mut Rng) -> Op {
        let what = if nth == 0 { 0 } else { rng.u8(..20) };
        match what {
            0..6 => {
                // Each claim has a new token, except that some reuse the last one.
                if nth > 0 && rng.u8(..4) > 0 {
                    self.owner = OwnerToken::random().unwrap();
                }
                let fingerprint =
                    Fingerprint::from_bytes([1 + u8::from(rng.u8(..8) == 0); Fingerprint::BYTES]);
                Op::Claim(request(LEASE).with_fingerprint(fingerprint).with_owner(self.owner))
            }
            6..9 => Op::Complete(self.owner, Bytes::from(vec![rng.u8(..), rng.u8(..)])),
            9..12 => Op::Release(self.owner),
            12..14 => Op::Renew(self.owner),
            14..18 => Op::Abandon(self.owner),
            _ => Op::LookUp,
        }
    }

    async fn call(&self, op: &Op) -> CallResult {
        let lease = |owner| Lease { id: self.id, owner };
        match op {
            Op::Claim(claim) => CallResult::claim(self.claim(claim).await),
            Op::Complete(owner, response) => {
                CallResult::Fence(self.store.complete(&lease(*owner), response).await.unwrap())
            }
            Op::Release(owner) => {
                CallResult::Fence(self.store.release(&lease(*owner)).await.unwrap())
            }
            Op::Renew(owner) => {
                let renewal = Renewal::new(lease(*owner), LEASE);
                CallResult::renew(self.renew(renewal).await)
            }
            Op::Abandon(owner) => CallResult::Fence(
                self.store.abandon(&lease(*owner), Abandoned::Retry).await.unwrap(),
            ),
            Op::LookUp => CallResult::seen(
                self.store.look_up(&self.id).await.unwrap().map(|found| found.record).as_ref(),
            ),
        }
    }
}

impl Thread {
    /// A renewal without an outcome has changed nothing, and is retried.
    async fn renew(&self, renewal: Renewal) -> RenewOutcome {
        for _ in 0..1_000 {
            match self.store.renew(&[renewal]).await.unwrap()[0] {
                RenewOutcome::Unknown => tokio::time::sleep(Duration::from_millis(1)).await,
                known @ (RenewOutcome::Renewed | RenewOutcome::Fenced) => return known,
            }
        }
        panic!("the record stays locked");
    }

    /// Claims a key. Retries a claim that failed because of contention, and one that could not read
    /// a locked record and reports no lease; neither has changed anything.
    async fn claim(&self, claim: &Claim) -> ClaimOutcome {
        for _ in 0..50 {
            match self.store.claim(&self.id, claim).await {
                Ok(ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. }))
                    if lease_left.is_zero() => {}
                Ok(outcome) => return outcome,
                Err(error) => {
                    assert!(format!("{error:?}").contains("kept changing"), "{error:?}")
                }
            }
        }
        panic!("the claim always loses against others");
    }
}

/// Records the history of a few threads that use one key.
async fn record(stores: Vec<Arc<dyn Store>>) -> History {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    let (id, history, start) =
        (RecordId::from_bytes(id), Arc::default(), Arc::new(Barrier::new(THREADS)));
    let threads = stores.iter().cycle().take(THREADS).enumerate().map(|(number, store)| {
        let (store, history) = (store.clone(), Arc::clone(&history));
        Thread { number, store, id, history, owner: OwnerToken::random().unwrap() }
            .run(start.clone())
    });
    threads.collect::<JoinSet<_>>().join_all().await;
    std::mem::take(&mut *history.lock().unwrap())
}

async fn record_many(fixture: &Fixture) -> Vec<History> {
    let permits = Arc::new(Semaphore::new(4));
    let histories = (0..KEYS).map(|_| {
        let (stores, permits) = (fixture.stores.clone(), permits.clone());
        async move {
            let _permit = permits.acquire_owned().await;
            record(stores).await
        }
    });
    histories.collect::<JoinSet<_>>().join_all().await
}

/// Replaces the first outcome for which `change` returns another one.
fn change_one(
    history: &History,
    change: impl Fn(&CallResult) -> Option<CallResult>,
) -> Option<History> {
    let mut history = history.clone();
    for event in &mut history {
        if let Event::Returned(_, result) = event
            && let Some(other) = change(result)
        {
            *result = other;
            return Some(history);
        }
    }
    None
}

/// Exchanges the outcomes of two claims.
fn exchange_two(history: &History) -> Option<History> {
    let claims: Vec<_> = history
        .iter()
        .enumerate()
        .filter_map(|(at, event)| match event {
            Event::Returned(_, result @ CallResult::Claim(_)) => Some((at, result.clone())),
            Event::Called(..) | Event::Returned(..) => None,
        })
        .collect();
    let (first, one) = claims.first()?;
    let (last, other) = claims.iter().rev().find(|(_, other)| other != one)?;
    let mut history = history.clone();
    for (at, result) in [(first, other), (last, one)] {
        if let Event::Returned(_, is) = &mut history[*at] {
            *is = result.clone();
        }
    }
    Some(history)
}

fn assert_rejected(what: &str, tampered: impl Iterator<Item = History>, at_least: usize) {
    let (mut all, mut rejected) = (0, 0);
    for history in tampered {
        all += 1;
        rejected += usize::from(!is_linearizable(&history));
    }
    println!("{what}: {rejected} of {all} rejected");
    assert!(rejected >= at_least, "{what}: only {rejected} of {all} rejected");
    // Some changed histories are still linearizable, because overlapping calls may have either
    // order.
    assert!(rejected * 2 > all, "{what}: only {rejected} of {all} rejected");
}

fn overlaps(history: &History) -> bool {
    history.windows(2).any(|pair| matches!(pair, [Event::Called(..), Event::Called(..)]))
}

/// Asserts that most histories are no longer linearizable when an outcome is changed.
fn assert_changes_are_rejected(histories: &[History]) {
    let pass = |result: &CallResult| {
        (*result == CallResult::Fence(Fence::Fenced)).then_some(CallResult::Fence(Fence::Passed))
    };
    assert_rejected(
        "a fenced call passes",
        histories.iter().filter_map(|history| change_one(history, pass)),
        100,
    );
    let in_flight = CallResult::claim(ClaimOutcome::IN_FLIGHT);
    let grant = |result: &CallResult| {
        (*result == in_flight).then_some(CallResult::claim(ClaimOutcome::Granted { attempt: 1 }))
    };
    assert_rejected(
        "a second claim is granted",
        histories.iter().filter_map(|history| change_one(history, grant)),
        100,
    );
    assert_rejected("two outcomes are exchanged", histories.iter().filter_map(exchange_two), 100);
}

async fn check(fixture: Fixture) {
    let histories = record_many(&fixture).await;
    let operations = histories.iter().map(Vec::len).sum::<usize>() / 2;
    assert!(operations >= 5_000, "{operations}");
    let overlapped = histories.iter().filter(|history| overlaps(history)).count();
    println!("{operations} operations; {overlapped} of {} histories overlap", histories.len());
    assert!(overlapped >= 200, "{overlapped}");
    for history in &histories {
        assert!(is_linearizable(history), "{history:#?}");
    }
    assert_changes_are_rejected(&histories);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sqlite_store_is_linearizable() {
    check(Fixture::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_is_linearizable() {
    check(Fixture::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_redis_store_is_linearizable() {
    check(Fixture::redis().await).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_mysql_store_is_linearizable() {
    check(Fixture::mysql().await).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_dynamodb_store_is_linearizable() {
    check(Fixture::dynamodb().await).await;
}
