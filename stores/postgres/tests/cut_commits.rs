//! A connection that is cut at each byte of a completion and of its commit.
#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "helpers of tests are tests"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use idempotent_core::{
    Lease, OwnerToken, Policy, RecordId, Runtime, StoreError,
    protocol::Fence,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use idempotent_postgres::PostgresStore;
use sqlx::{PgConnection, PgPool, Row};
use tokio::{
    task::{JoinSet, LocalSet},
    time::timeout,
};

use crate::cut_connections::{CONCURRENT_CUTS, proxied_store};
use crate::helpers::sql;
use test_support::{
    cuts::{ProxiedStore, digest, id, recording, runtime},
    proxy::{Cut, Direction, Plan},
};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

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

/// How many of the cut commits took effect, and how many did not.
#[derive(Default)]
struct Tally {
    committed: AtomicU32,
    not_committed: AtomicU32,
}

/// Fails if a record is completed without its effect or an effect without its record, if a retry
/// has a second effect, or if it gets any response but the committed one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_at_any_byte_leaves_one_effect_and_its_response() {
    let server = test_support::servers::postgres::Postgres::without_fsync();
    let url = server.url("postgres");
    sql(&url, "CREATE TABLE effects (id bytea NOT NULL)").await;
    let runner = CaseRunner::new(&url).await;
    let cases = Arc::new(
        [runner.cases(ClaimMode::Lease).await, runner.cases(ClaimMode::Transaction).await].concat(),
    );
    println!("{} cuts", cases.len());
    let (next, tally) = (Arc::new(AtomicUsize::new(0)), Arc::new(Tally::default()));
    let mut working = JoinSet::new();
    let local = LocalSet::new();
    for _ in 0..CONCURRENT_CUTS {
        let (cases, next, tally, runner) =
            (cases.clone(), next.clone(), tally.clone(), CaseRunner::new(&url).await);
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
    let (committed, not) =
        (tally.committed.load(Ordering::Relaxed), tally.not_committed.load(Ordering::Relaxed));
    println!("commits whose acknowledgment was lost: {committed}; not committed: {not}");
    assert!(committed >= 25 && not >= 125, "{committed}, {not}");
}

struct CaseRunner {
    store: ProxiedStore<PostgresStore>,
    proxied: Runtime,
    direct: Runtime,
    effects: PgPool,
}

impl CaseRunner {
    async fn new(url: &str) -> Self {
        let store = proxied_store(url).await;
        let (proxied, direct) = (runtime(store.proxied.clone()), runtime(store.direct.clone()));
        Self { store, proxied, direct, effects: PgPool::connect(url).await.unwrap() }
    }

    async fn cases(&self, mode: ClaimMode) -> Vec<Case> {
        let [to_server, to_client] = self.measure(mode).await;
        println!("{mode:?}: {to_server} bytes to the server, {to_client} to the client");
        assert_eq!(self.measure(mode).await, [to_server, to_client]);
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
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
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
            Admission::Proceed(attempt) => Ok((id, work(mode, attempt).await?)),
            outcome @ Admission::Rejected(_) => panic!("{outcome:?}"),
        }
    }

    async fn run(&self, case: Case, tally: &Tally) {
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
            // One statement, because the commit may happen between two statements.
            let both = "SELECT (SELECT count(*) FROM effects WHERE id = $1) AS effects, \
                        (SELECT count(*) FROM idempotency_records WHERE \
                         id = $1 AND state = 2) AS completed";
            let row =
                sqlx::query(both).bind(&id.as_bytes()[..]).fetch_one(&self.effects).await.unwrap();
            let (effects, completed): (i64, i64) = (row.get("effects"), row.get("completed"));
            assert_eq!(effects, completed, "{case:?}");
            completed == 1
        };
        for _ in 0..if case.received_in_full { 50 } else { 0 } {
            if read().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        read().await
    }

    /// Retries the request until it gets the response; returns whether the handler ran again.
    async fn retry(&self, case: Case, id: RecordId) -> bool {
        let mut ran = false;
        loop {
            match begin(&self.direct, case.mode, id).await {
                // A busy server may count as down for a moment.
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                Err(error) => panic!("{case:?}: {error:?}"),
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(response)))) => {
                    assert_eq!(response, recording());
                    return ran;
                }
                // The server has not noticed the closed connection yet.
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))) => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                Ok(outcome @ Admission::Rejected(_)) => panic!("{case:?}: {outcome:?}"),
                Ok(Admission::Proceed(attempt)) => {
                    assert!(!ran, "{case:?}");
                    ran = true;
                    let attempt = work(case.mode, attempt).await.unwrap();
                    assert_eq!(
                        attempt.complete(&recording()).await,
                        AttemptOutcome::Stored,
                        "{case:?}"
                    );
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

async fn work(mode: ClaimMode, mut attempt: Attempt) -> Result<Attempt, StoreError> {
    if mode == ClaimMode::Lease {
        attempt.begin_transaction().await?;
    }
    let mut transaction = attempt.take_transaction().unwrap();
    let connection = transaction.connection_mut().downcast_mut::<PgConnection>().unwrap();
    let effect =
        sqlx::query("INSERT INTO effects VALUES ($1)").bind(attempt.id().as_bytes().to_vec());
    effect.execute(connection).await.unwrap();
    attempt.return_transaction(transaction);
    Ok(attempt)
}
