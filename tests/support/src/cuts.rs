//! Cuts the connection between a store and its server at each byte of each step, and checks the
//! outcome of the key.
#![allow(clippy::wildcard_enum_match_arm, reason = "the helpers are parts of tests")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    BodyForm, Digester, Fingerprint, Lease, OwnerToken, Policy, RecordId, RecordState,
    RecordedBody, Recording, RequestDigest, Runtime, Store,
    protocol::{Claim, ClaimOutcome, Fence},
    runtime::RuntimeOptions,
};
use tokio::{
    task::{JoinSet, LocalSet},
    time::timeout,
};

use self::running::Running;
use super::proxy::{Cut, Direction, Plan, Proxy};

mod running;

/// Far longer than anything takes here.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

/// A store behind a proxy, and the same store with a direct connection.
pub struct Lane<S> {
    pub cut: S,
    pub direct: S,
    pub proxy: Proxy,
    /// Whether the connection passes no bytes at all afterwards. A pool may test a connection that
    /// is returned to it.
    pub calm: Box<dyn Fn() -> bool + Send + Sync>,
    /// How many bytes that is, in both directions.
    pub after_each: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Claim,
    Complete,
    Release,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    step: Step,
    plan: Plan,
    /// Whether this is the last byte to the server, which then acts although its client is gone.
    whole: bool,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A store that cannot be reached after the cut, and then repeats the call.
    Repeated,
    /// A runtime whose store loses this one connection.
    Run,
    /// A runtime whose store cannot be reached after the cut.
    Unreachable,
}

/// Whether the step had happened in the server when its connection was cut.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<(Step, bool), u32>>);

impl Tally {
    fn add(&self, step: Step, happened: bool) {
        *self.0.lock().unwrap().entry((step, happened)).or_default() += 1;
    }

    /// Asserts that at least this many cuts of each step came before it happened, and this many
    /// after it.
    pub fn assert_at_least(&self, least: u32) {
        let tally = self.0.lock().unwrap();
        for step in [Step::Claim, Step::Complete, Step::Release] {
            for happened in [false, true] {
                let cuts = tally.get(&(step, happened)).copied().unwrap_or_default();
                println!(
                    "{step:?}, {}: {cuts}",
                    if happened { "acknowledgment lost" } else { "not happened" }
                );
                assert!(cuts >= least, "{step:?}, happened: {happened}: {cuts} cuts");
            }
        }
    }
}

pub fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

pub fn digest() -> RequestDigest {
    Digester::new("POST", "/payments", "", b"", BodyForm::Raw).finish()
}

pub fn recording() -> Recording {
    Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"paid")))
}

pub fn runtime(store: impl Store) -> Runtime {
    Runtime::new(store, options())
}

fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    options.purge_every = None;
    options
}

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Policy::DEFAULT.lease)
        .with_ttl(Policy::DEFAULT.ttl)
}

/// Runs all cuts. Each lane takes the next one when it has finished one.
pub async fn everywhere<S: Store + Clone>(lanes: Vec<Lane<S>>) -> Tally {
    let cases = Arc::new(cases(&lanes[0]).await);
    println!("{} cuts", cases.len());
    let (next, tally) = (Arc::new(AtomicUsize::new(0)), Arc::new(Tally::default()));
    let mut working = JoinSet::new();
    let local = LocalSet::new();
    for lane in lanes {
        let (cases, next, tally) = (cases.clone(), next.clone(), tally.clone());
        let lane = Running::new(lane);
        let work = async move {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let happened = timeout(WAIT_LIMIT, lane.take(*case))
                    .await
                    .unwrap_or_else(|_| panic!("{case:?} hangs"));
                if let Some(happened) = happened {
                    tally.add(case.step, happened);
                }
            }
        };
        working.spawn_local_on(work, &local);
    }
    local.run_until(working.join_all()).await;
    Arc::into_inner(tally).unwrap()
}

/// Each byte of each step, in both directions, cut in both ways.
async fn cases<S: Store + Clone>(lane: &Lane<S>) -> Vec<Case> {
    let mut cases = Vec::new();
    for step in [Step::Claim, Step::Complete, Step::Release] {
        let [to_server, to_client] = lane.measure(step).await;
        println!("{step:?}: {to_server} bytes to the server, {to_client} to the client");
        assert_eq!(lane.measure(step).await, [to_server, to_client]);
        let sent = (0..=to_server).map(|after| (Direction::ToServer, after));
        // With the last byte the client has its response, and nothing is lost.
        let answered = (0..to_client).map(|after| (Direction::ToClient, after));
        for (direction, after) in sent.chain(answered) {
            for cut in [Cut::Fin, Cut::Reset] {
                for way in [Way::Repeated, Way::Run, Way::Unreachable] {
                    let plan = Plan { direction, after, cut, outage: way != Way::Run };
                    cases.push(Case {
                        step,
                        plan,
                        whole: (direction, after) == (Direction::ToServer, to_server),
                        way,
                    });
                }
            }
        }
    }
    // Spreads the slow cases, which would otherwise all be at one end.
    fastrand::shuffle(&mut cases);
    cases
}

impl<S: Store + Clone> Lane<S> {
    /// Opens a connection with all statements prepared, if there is none, and writes nothing.
    async fn warm(&self) {
        let lease = Lease { id: id(), owner: claim().owner };
        self.again(async || self.cut.look_up(&lease.id).await).await;
        assert_eq!(self.cut.complete(&lease, &recording().encode()).await.unwrap(), Fence::Fenced);
        assert_eq!(self.cut.release(&lease).await.unwrap(), Fence::Fenced);
        assert_eq!(self.cut.claim(&lease.id, &claim()).await.unwrap(), GRANTED);
    }

    /// Counts, and cuts, what passes from this point on.
    pub async fn count(&self, plan: Option<Plan>) {
        self.calm().await;
        self.proxy.count(plan);
    }

    /// The bytes of the step that has just been done.
    pub async fn counted(&self) -> [u64; 2] {
        self.calm().await;
        let (counted, after) = (self.proxy.counted(), self.after_each);
        [counted[0] - after[0], counted[1] - after[1]]
    }

    async fn calm(&self) {
        while !(self.calm)() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    async fn measure(&self, step: Step) -> [u64; 2] {
        self.warm().await;
        let (lease, claim) = self.prepared(step).await;
        self.count(None).await;
        match step {
            Step::Claim => assert_eq!(self.cut.claim(&lease.id, &claim).await.unwrap(), GRANTED),
            Step::Complete => {
                assert_eq!(
                    self.cut.complete(&lease, &recording().encode()).await.unwrap(),
                    Fence::Passed
                );
            }
            Step::Release => assert_eq!(self.cut.release(&lease).await.unwrap(), Fence::Passed),
        }
        self.counted().await
    }

    /// A key in its state before a step.
    async fn prepared(&self, step: Step) -> (Lease, Claim) {
        let (id, claim) = (id(), claim());
        if step != Step::Claim {
            assert_eq!(self.direct.claim(&id, &claim).await.unwrap(), GRANTED);
        }
        (Lease { id, owner: claim.owner }, claim)
    }

    /// Whether a step has happened in the server.
    async fn happened(&self, case: Case, id: &RecordId) -> bool {
        let look = || async {
            let found = self.direct.look_up(id).await.unwrap();
            match case.step {
                Step::Claim => found.is_some(),
                Step::Complete => found.unwrap().record.state != RecordState::InFlight,
                Step::Release => found.is_none(),
            }
        };
        // The server has received all of it and may be executing it, unless the reset was faster.
        for _ in 0..if case.whole { 50 } else { 0 } {
            if look().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        look().await
    }

    /// Repeats a call until the store responds.
    async fn again<T, E: std::fmt::Debug>(&self, call: impl AsyncFn() -> Result<T, E>) -> T {
        loop {
            if let Ok(response) = call().await {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The verdict for another request.
    async fn other(&self, id: &RecordId) -> ClaimOutcome {
        self.direct.claim(id, &claim()).await.unwrap()
    }
}
