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
    Lease, OwnerToken, Policy, RecordId, RecordState, Runtime, Store, StoreError,
    protocol::Fence,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
    store::postgres::PostgresStore,
};
use sqlx::{PgConnection, PgPool, Row};
use tokio::{
    task::{JoinSet, LocalSet},
    time::timeout,
};

use super::cuts::{LANES, lane};
use super::sql;
use test_support::{
    cuts::{Lane, digest, id, recording, runtime},
    proxy::{Cut, Direction, Plan},
};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The claim is committed before the transaction.
    Leased,
    /// The claim is part of the transaction.
    Within,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    form: Form,
    plan: Plan,
    /// Whether the server receives the whole commit while its acknowledgment is lost.
    whole: bool,
}

/// How often a commit that was cut had happened, and how often it had not.
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
    let first = Working::new(&url).await;
    let cases =
        Arc::new([first.cases(Form::Leased).await, first.cases(Form::Within).await].concat());
    println!("{} cuts", cases.len());
    let (next, tally) = (Arc::new(AtomicUsize::new(0)), Arc::new(Tally::default()));
    let mut working = JoinSet::new();
    let local = LocalSet::new();
    for _ in 0..LANES {
        let (cases, next, tally, lane) =
            (cases.clone(), next.clone(), tally.clone(), Working::new(&url).await);
        let work = async move {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                timeout(WAIT_LIMIT, lane.take(*case, &tally))
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
    assert!(committed >= 100 && not >= 500, "{committed}, {not}");
}

struct Working {
    lane: Lane<PostgresStore>,
    cut: Runtime,
    direct: Runtime,
    effects: PgPool,
}

impl Working {
    async fn new(url: &str) -> Self {
        let lane = lane(url).await;
        let (cut, direct) = (runtime(lane.cut.clone()), runtime(lane.direct.clone()));
        Self { lane, cut, direct, effects: PgPool::connect(url).await.unwrap() }
    }

    async fn cases(&self, form: Form) -> Vec<Case> {
        let [to_server, to_client] = self.measure(form).await;
        println!("{form:?}: {to_server} bytes to the server, {to_client} to the client");
        assert_eq!(self.measure(form).await, [to_server, to_client]);
        let sent = (0..=to_server).map(|after| (Direction::ToServer, after));
        let answered = (0..to_client).map(|after| (Direction::ToClient, after));
        let mut cases = Vec::new();
        for (direction, after) in sent.chain(answered) {
            for (cut, outage) in
                [(Cut::Fin, false), (Cut::Fin, true), (Cut::Reset, false), (Cut::Reset, true)]
            {
                let plan = Plan { direction, after, cut, outage };
                cases.push(Case {
                    form,
                    plan,
                    whole: (direction, after) == (Direction::ToServer, to_server),
                });
            }
        }
        cases
    }

    async fn measure(&self, form: Form) -> [u64; 2] {
        let (_, attempt) = self.worked(form).await;
        self.lane.proxy.count(None);
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
        self.lane.counted().await
    }

    /// An attempt that has written its effect, on a connection with prepared statements. After the
    /// outage of the previous case, the store may count as down until its next probe.
    async fn worked(&self, form: Form) -> (RecordId, Attempt) {
        loop {
            match self.work(form).await {
                Ok(worked) => return worked,
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    async fn work(&self, form: Form) -> Result<(RecordId, Attempt), StoreError> {
        let unknown = Lease { id: id(), owner: OwnerToken::random().unwrap() };
        let mut warm = self.cut.transaction().await?;
        assert_eq!(warm.complete(&unknown, &recording().encode()).await?, Fence::Fenced);
        warm.roll_back().await;
        let id = id();
        match begin(&self.cut, form, id).await? {
            Admission::Proceed(attempt) => Ok((id, work(form, attempt).await?)),
            outcome @ Admission::Rejected(_) => panic!("{outcome:?}"),
        }
    }

    async fn take(&self, case: Case, tally: &Tally) {
        let Self { lane, cut, .. } = self;
        let (id, attempt) = self.worked(case.form).await;
        lane.proxy.count(Some(case.plan));
        let ending = attempt.complete(&recording()).await;
        assert_eq!(lane.proxy.cuts(), 1, "{case:?}");
        let committed = self.committed(case, &id).await;
        match ending {
            // The outcome was looked up or known: the acknowledgment of the commit's last byte is
            // lost.
            AttemptOutcome::Stored => assert!(committed && !case.plan.outage, "{case:?}"),
            AttemptOutcome::NotCommitted { transient: true } => {
                assert!(!committed || case.plan.outage, "{case:?}")
            }
            other => panic!("{case:?}: {other:?}"),
        }
        if committed { &tally.committed } else { &tally.not_committed }
            .fetch_add(1, Ordering::Relaxed);
        lane.proxy.mend();
        cut.drained().await;
        let ran = self.retried(case, id).await;
        assert_eq!(ran, !committed, "{case:?}");
        assert!(self.committed(case, &id).await, "{case:?}");
    }

    /// Whether the transaction was committed: both record and effect, or neither.
    async fn committed(&self, case: Case, id: &RecordId) -> bool {
        let look = || async {
            // One statement, because the commit may happen between two.
            let both = "SELECT (SELECT count(*) FROM effects WHERE id = $1) AS effects, \
                        (SELECT count(*) FROM idempotency_records WHERE \
                         id = $1 AND state = 2) AS completed";
            let row =
                sqlx::query(both).bind(&id.as_bytes()[..]).fetch_one(&self.effects).await.unwrap();
            let (effects, completed): (i64, i64) = (row.get("effects"), row.get("completed"));
            assert_eq!(effects, completed, "{case:?}");
            completed == 1
        };
        for _ in 0..if case.whole { 50 } else { 0 } {
            if look().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        look().await
    }

    /// Sends the request until it gets the response; returns whether the handler had to run.
    async fn retried(&self, case: Case, id: RecordId) -> bool {
        let mut ran = false;
        loop {
            match begin(&self.direct, case.form, id).await.unwrap() {
                Admission::Rejected(Verdict::Completed(response)) => {
                    assert_eq!(response, recording());
                    let found = self.lane.direct.look_up(&id).await.unwrap().unwrap();
                    assert!(matches!(found.record.state, RecordState::Completed(_)), "{case:?}");
                    return ran;
                }
                // The server has not noticed the closed connection yet.
                Admission::Rejected(Verdict::InFlight { .. }) => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                outcome @ Admission::Rejected(_) => panic!("{case:?}: {outcome:?}"),
                Admission::Proceed(attempt) => {
                    assert!(!ran, "{case:?}");
                    ran = true;
                    let attempt = work(case.form, attempt).await.unwrap();
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

async fn begin(runtime: &Runtime, form: Form, id: RecordId) -> Result<Admission, StoreError> {
    match form {
        Form::Leased => runtime.begin(id, digest(), &Policy::DEFAULT).await,
        Form::Within => runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await,
    }
}

async fn work(form: Form, mut attempt: Attempt) -> Result<Attempt, StoreError> {
    if form == Form::Leased {
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
