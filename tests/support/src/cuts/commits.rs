//! Cuts the connection at each byte of a completion in a transaction and of its commit.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use idempotent_core::{
    Lease, OwnerToken, Policy, RecordId, Runtime, Store, StoreError,
    protocol::{Fence, Rejection},
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};

use super::{ProxiedStore, WAIT_LIMIT, digest, id, recording, runtime};
use crate::proxy::{Cut, Direction, Plan};

/// How often the bytes are measured at most.
const MEASUREMENTS: u32 = 100;
/// How long a condition is waited for before it is read again.
const PAUSE: Duration = Duration::from_millis(5);

/// The effects of handlers, in the database of the store.
#[async_trait]
pub trait Effects: Send + Sync {
    /// Writes one of the attempt at this key, on the connection of its transaction.
    async fn write(&self, connection: &mut (dyn Any + Send + Sync), id: &RecordId);

    /// How many effects of this key there are, and how many completed records: at one moment,
    /// because the commit may happen between two statements.
    async fn count(&self, id: &RecordId) -> [i64; 2];
}

/// How many of the cut commits took effect, and how many did not.
#[derive(Default)]
pub struct Commits {
    committed: AtomicU32,
    not_committed: AtomicU32,
}

impl Commits {
    /// Asserts that at least this many cut commits took effect, and that at least this many did
    /// not.
    pub fn assert_at_least(&self, committed: u32, not_committed: u32) {
        let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let found = [read(&self.committed), read(&self.not_committed)];
        println!("commits whose acknowledgment was lost, and not committed: {found:?}");
        assert!(found[0] >= committed && found[1] >= not_committed, "{found:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimMode {
    /// The claim is committed before the transaction.
    Lease,
    /// The claim is part of the transaction.
    Transaction,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mode: ClaimMode,
    plan: Plan,
    /// Whether the server receives the whole commit and only its acknowledgment is lost.
    received_in_full: bool,
}

/// Runs all cuts, one at a time on each of these stores. Fails if a record is completed without its
/// effect or an effect without its record, if a retry has a second effect, or if it gets any
/// response but the committed one.
pub async fn cut_commits<S, E>(stores: Vec<(ProxiedStore<S>, E)>) -> Commits
where
    S: Store + Clone,
    E: Effects + 'static,
{
    let runners: Vec<_> =
        stores.into_iter().map(|(store, effects)| CaseRunner::new(store, effects)).collect();
    let mut cases = runners[0].cases(ClaimMode::Lease).await;
    cases.extend(runners[0].cases(ClaimMode::Transaction).await);
    println!("{} cuts", cases.len());
    let (cases, next, tally) =
        (Arc::new(cases), Arc::new(AtomicUsize::new(0)), Arc::new(Commits::default()));
    let mut working = JoinSet::new();
    let local = LocalSet::new();
    for runner in runners {
        let (cases, next, tally) = (cases.clone(), next.clone(), tally.clone());
        let work = async move {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                timeout(WAIT_LIMIT, runner.run(*case, &tally))
                    .await
                    .unwrap_or_else(|_| panic!("{case:?} hangs"));
            }
        };
        working.spawn_local_on(work, &local);
    }
    local.run_until(working.join_all()).await;
    Arc::into_inner(tally).unwrap()
}

struct CaseRunner<S, E> {
    store: ProxiedStore<S>,
    proxied: Runtime,
    direct: Runtime,
    effects: E,
}

impl<S: Store + Clone, E: Effects> CaseRunner<S, E> {
    fn new(store: ProxiedStore<S>, effects: E) -> Self {
        let (proxied, direct) = (runtime(store.proxied.clone()), runtime(store.direct.clone()));
        Self { store, proxied, direct, effects }
    }

    async fn cases(&self, mode: ClaimMode) -> Vec<Case> {
        let [to_server, to_client] = self.measure_least(mode).await;
        println!("{mode:?}: {to_server} bytes to the server, {to_client} to the client");
        let sent = (0..=to_server).map(|after| (Direction::ToServer, after));
        let received = (0..to_client).map(|after| (Direction::ToClient, after));
        let mut cases = Vec::new();
        // Every combination in four bytes; each byte gets another one in the next run.
        let turn = fastrand::usize(..4);
        for (place, (direction, after)) in sent.chain(received).enumerate() {
            let cut = [Cut::Fin, Cut::Reset][(turn + place) % 2];
            let outage = (turn + place) / 2 % 2 == 0;
            cases.push(Case {
                mode,
                plan: Plan { direction, after, cut, outage },
                received_in_full: (direction, after) == (Direction::ToServer, to_server),
            });
        }
        cases
    }

    /// The bytes of a completion and its commit: what is measured least, and more than once. A pool
    /// may already test the connection that is returned to it.
    async fn measure_least(&self, mode: ClaimMode) -> [u64; 2] {
        let mut least = self.measure(mode).await;
        let mut times = 1;
        for _ in 0..MEASUREMENTS {
            let bytes = self.measure(mode).await;
            if bytes < least {
                (least, times) = (bytes, 1);
            } else if bytes == least {
                times += 1;
            }
            if times == 3 {
                return least;
            }
        }
        panic!("{mode:?}: the number of bytes differs each time");
    }

    async fn measure(&self, mode: ClaimMode) -> [u64; 2] {
        let (_, attempt) = self.begin_and_work(mode).await;
        self.store.proxy.count(None);
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
        self.store.counted().await
    }

    /// Begins an attempt and writes its effect, on a connection on which the statements are
    /// prepared. After the outage of the previous case, the store may be considered down until its
    /// next probe; then this retries.
    async fn begin_and_work(&self, mode: ClaimMode) -> (RecordId, Attempt) {
        loop {
            match self.try_begin_and_work(mode).await {
                Ok(begun) => return begun,
                Err(error) if error.is_transient() => sleep(PAUSE).await,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    async fn try_begin_and_work(&self, mode: ClaimMode) -> Result<(RecordId, Attempt), StoreError> {
        let unknown = Lease { id: id(), owner: OwnerToken::random().unwrap() };
        let mut warm = self.proxied.transaction().await?;
        assert_eq!(warm.complete(&unknown, &recording().into()).await?, Fence::Fenced);
        warm.roll_back().await;
        if mode == ClaimMode::Transaction
            && let Admission::Proceed(warm) = begin(&self.proxied, mode, id()).await?
        {
            warm.complete(&recording()).await;
        }
        let id = id();
        match begin(&self.proxied, mode, id).await? {
            Admission::Proceed(attempt) => Ok((id, self.work(mode, attempt).await?)),
            outcome @ Admission::Rejected(_) => panic!("{outcome:?}"),
        }
    }

    async fn work(&self, mode: ClaimMode, mut attempt: Attempt) -> Result<Attempt, StoreError> {
        if mode == ClaimMode::Lease {
            attempt.begin_transaction().await?;
        }
        let mut transaction = attempt.take_transaction().unwrap();
        let id = *attempt.id();
        self.effects.write(transaction.connection_mut(), &id).await;
        attempt.return_transaction(transaction);
        Ok(attempt)
    }

    async fn run(&self, case: Case, tally: &Commits) {
        let Self { store, proxied, .. } = self;
        let (id, attempt) = self.begin_and_work(case.mode).await;
        store.proxy.count(Some(case.plan));
        let ending = attempt.complete(&recording()).await;
        assert_eq!(store.proxy.cuts(), 1, "{case:?}");
        let committed = self.committed(case, &id).await;
        match ending {
            // Without an outage the runtime looks the outcome up, or the cut came after it was
            // known.
            AttemptOutcome::Stored => assert!(committed && !case.plan.outage, "{case:?}"),
            AttemptOutcome::NotCommitted { transient: true } => {
                assert!(!committed || case.plan.outage, "{case:?}")
            }
            other => panic!("{case:?}: {other:?}"),
        }
        if committed { &tally.committed } else { &tally.not_committed }
            .fetch_add(1, Ordering::Relaxed);
        store.proxy.end_outage();
        proxied.drain().await;
        let ran = self.retry(case, id).await;
        assert_eq!(ran, !committed, "{case:?}");
        assert!(self.committed(case, &id).await, "{case:?}");
    }

    /// Whether the transaction was committed. Asserts that record and effect are either both there
    /// or both absent.
    async fn committed(&self, case: Case, id: &RecordId) -> bool {
        let read = || async {
            let [effects, completed] = self.effects.count(id).await;
            assert_eq!(effects, completed, "{case:?}");
            completed == 1
        };
        for _ in 0..if case.received_in_full { 50 } else { 0 } {
            if read().await {
                return true;
            }
            sleep(PAUSE).await;
        }
        read().await
    }

    /// Retries the request until it gets the response; returns whether the handler ran again.
    async fn retry(&self, case: Case, id: RecordId) -> bool {
        let mut ran = false;
        loop {
            match begin(&self.direct, case.mode, id).await {
                // A busy server may count as down for a moment.
                Err(error) if error.is_transient() => sleep(PAUSE).await,
                Err(error) => panic!("{case:?}: {error:?}"),
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(response)))) => {
                    assert_eq!(response, recording());
                    return ran;
                }
                // The server has not noticed the closed connection yet.
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => {
                    sleep(PAUSE).await
                }
                Ok(outcome @ Admission::Rejected(_)) => panic!("{case:?}: {outcome:?}"),
                Ok(Admission::Proceed(attempt)) => {
                    assert!(!ran, "{case:?}");
                    ran = true;
                    let attempt = self.work(case.mode, attempt).await.unwrap();
                    let ended = attempt.complete(&recording()).await;
                    assert_eq!(ended, AttemptOutcome::Stored, "{case:?}");
                }
            }
        }
    }
}

async fn begin(runtime: &Runtime, mode: ClaimMode, id: RecordId) -> Result<Admission, StoreError> {
    match mode {
        ClaimMode::Lease => runtime.begin(id, digest(), &Policy::DEFAULT).await,
        ClaimMode::Transaction => {
            runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await
        }
    }
}
