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
    Digester, EncodedRecording, Fingerprint, Lease, OwnerToken, Policy, RecordId, RecordState,
    RequestDigest, Runtime, Store,
    protocol::{Claim, ClaimOutcome, Fence},
    runtime::RuntimeOptions,
};
use idempotent_http::recording::{RecordedBody, Recording};
use tokio::{
    task::{JoinSet, LocalSet},
    time::timeout,
};

use self::case_runner::CaseRunner;
use super::proxy::{Cut, Direction, Plan, Proxy};

mod case_runner;
pub mod commits;

/// How long one case may take. Each takes far less, unless the machine is busy.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

/// A store behind a proxy, and the same store with a direct connection.
pub struct ProxiedStore<S> {
    pub proxied: S,
    pub direct: S,
    pub proxy: Proxy,
    /// Whether the connection is idle again after a step. A pool may first test a connection that
    /// is returned to it.
    pub is_idle: Box<dyn Fn() -> bool + Send + Sync>,
    /// How many bytes that test sends to the server, and to the client.
    pub test_bytes: [u64; 2],
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
    /// Whether the cut follows the last byte to the server, which then executes the step although
    /// its client is gone.
    received_in_full: bool,
    scenario: Scenario,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// A call fails, the store is unreachable for a while, and the same call is repeated.
    RepeatedCall,
    /// A runtime loses one connection.
    LostConnection,
    /// A runtime loses its connection, and the store is unreachable for a while.
    Outage,
}

impl Scenario {
    const ALL: [Self; 3] = [Self::RepeatedCall, Self::LostConnection, Self::Outage];
}

/// For each step, how many cuts came before it took effect in the server, and how many after.
pub struct Tally {
    steps: &'static [Step],
    cuts: Mutex<BTreeMap<(Step, bool), u32>>,
}

impl Tally {
    fn add(&self, step: Step, took_effect: bool) {
        *self.cuts.lock().unwrap().entry((step, took_effect)).or_default() += 1;
    }

    /// Asserts that, for each step, at least this many cuts came before it took effect, and at
    /// least this many after.
    pub fn assert_at_least(&self, least: u32) {
        let tally = self.cuts.lock().unwrap();
        for &step in self.steps {
            for took_effect in [false, true] {
                let cuts = tally.get(&(step, took_effect)).copied().unwrap_or_default();
                println!(
                    "{step:?}, {}: {cuts}",
                    if took_effect { "acknowledgment lost" } else { "no effect" }
                );
                assert!(cuts >= least, "{step:?}, took effect: {took_effect}: {cuts} cuts");
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
    Digester::new(["POST", "/payments"]).finish()
}

pub fn recording() -> EncodedRecording {
    Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"paid"))).encode()
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

/// Runs all cuts, one at a time on each of these stores.
pub async fn cut_at_each_byte<S: Store + Clone>(stores: Vec<ProxiedStore<S>>) -> Tally {
    cut_steps(stores, &[Step::Claim, Step::Complete, Step::Release]).await
}

/// The same for some of the steps.
pub async fn cut_steps<S: Store + Clone>(
    stores: Vec<ProxiedStore<S>>,
    steps: &'static [Step],
) -> Tally {
    let cases = Arc::new(cases(&stores[0], steps).await);
    println!("{} cuts", cases.len());
    let (next, tally) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(Tally { steps, cuts: Mutex::default() }));
    let mut working = JoinSet::new();
    let local = LocalSet::new();
    for store in stores {
        let (cases, next, tally) = (cases.clone(), next.clone(), tally.clone());
        let work = async move {
            let runner = CaseRunner::new(store).await;
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let took_effect = timeout(WAIT_LIMIT, runner.run(*case))
                    .await
                    .unwrap_or_else(|_| panic!("{case:?} hangs"));
                if let Some(took_effect) = took_effect {
                    tally.add(case.step, took_effect);
                }
            }
        };
        working.spawn_local_on(work, &local);
    }
    local.run_until(working.join_all()).await;
    Arc::into_inner(tally).unwrap()
}

/// A cut at each byte of each of these steps, in both directions: with a FIN or a reset, and in one
/// of the scenarios. The bytes beside it get the others, and so does the next run.
async fn cases<S: Store + Clone>(store: &ProxiedStore<S>, steps: &[Step]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &step in steps {
        let [to_server, to_client] = store.measure_twice(step).await;
        println!("{step:?}: {to_server} bytes to the server, {to_client} to the client");
        let sent = (0..=to_server).map(|after| (Direction::ToServer, after));
        // The last byte completes the response, so that a cut after it loses nothing.
        let received = (0..to_client).map(|after| (Direction::ToClient, after));
        let turn = fastrand::usize(..2 * Scenario::ALL.len());
        for (place, (direction, after)) in sent.chain(received).enumerate() {
            // Every combination in six bytes.
            let cut = [Cut::Fin, Cut::Reset][(turn + place) % 2];
            let scenario = Scenario::ALL[(turn + place) % Scenario::ALL.len()];
            let outage = scenario != Scenario::LostConnection;
            cases.push(Case {
                step,
                plan: Plan { direction, after, cut, outage },
                received_in_full: (direction, after) == (Direction::ToServer, to_server),
                scenario,
            });
        }
    }
    // Distributes the slow cases among the stores.
    fastrand::shuffle(&mut cases);
    cases
}

impl<S: Store + Clone> ProxiedStore<S> {
    /// Opens a connection, if there is none, on which all statements are prepared.
    async fn warm_up(&self) {
        let lease = Lease { id: id(), owner: claim().owner };
        let (recording, claim): (Bytes, _) = (recording().into(), claim());
        self.retry(async || self.proxied.look_up(&lease.id).await).await;
        let completed = self.retry(async || self.proxied.complete(&lease, &recording).await).await;
        let released = self.retry(async || self.proxied.release(&lease).await).await;
        assert_eq!([completed, released], [Fence::Fenced; 2]);
        let claimed = self.retry(async || self.proxied.claim(&lease.id, &claim).await).await;
        assert_eq!(claimed, GRANTED);
    }

    /// Counts the bytes from now on, and cuts the connection as planned.
    pub async fn count(&self, plan: Option<Plan>) {
        self.wait_until_idle().await;
        self.proxy.count(plan);
    }

    /// How many bytes the last step sent to the server, and to the client.
    pub async fn counted(&self) -> [u64; 2] {
        self.wait_until_idle().await;
        let (counted, test) = (self.proxy.counted(), self.test_bytes);
        [counted[0] - test[0], counted[1] - test[1]]
    }

    async fn wait_until_idle(&self) {
        while !(self.is_idle)() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// The bytes of a step, measured until they agree twice: on a busy machine a step may be
    /// executed on another connection, whose bytes are not counted.
    async fn measure_twice(&self, step: Step) -> [u64; 2] {
        let mut last = self.measure(step).await;
        for _ in 0..100 {
            let bytes = self.measure(step).await;
            if bytes == last && bytes[0] > 0 {
                return bytes;
            }
            last = bytes;
        }
        panic!("{step:?}: the number of bytes differs each time");
    }

    async fn measure(&self, step: Step) -> [u64; 2] {
        self.warm_up().await;
        let (lease, claim) = self.prepare(step).await;
        self.count(None).await;
        match step {
            Step::Claim => {
                assert_eq!(self.proxied.claim(&lease.id, &claim).await.unwrap(), GRANTED)
            }
            Step::Complete => {
                assert_eq!(
                    self.proxied.complete(&lease, &recording().into()).await.unwrap(),
                    Fence::Passed
                );
            }
            Step::Release => assert_eq!(self.proxied.release(&lease).await.unwrap(), Fence::Passed),
        }
        self.counted().await
    }

    /// A new key in the state that the step starts from.
    async fn prepare(&self, step: Step) -> (Lease, Claim) {
        let (id, claim) = (id(), claim());
        if step != Step::Claim {
            let claimed = self.retry(async || self.direct.claim(&id, &claim).await).await;
            assert_eq!(claimed, GRANTED);
        }
        (Lease { id, owner: claim.owner }, claim)
    }

    /// Whether the step took effect in the server.
    async fn took_effect(&self, case: Case, id: &RecordId) -> bool {
        let read = || async {
            let found = self.retry(async || self.direct.look_up(id).await).await;
            match case.step {
                Step::Claim => found.is_some(),
                Step::Complete => found.unwrap().record.state != RecordState::InFlight,
                Step::Release => found.is_none(),
            }
        };
        // The server may still be executing a step that it received in full. A reset may have
        // discarded the step.
        for _ in 0..if case.received_in_full { 50 } else { 0 } {
            if read().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        read().await
    }

    /// Repeats a call until the store responds.
    async fn retry<T, E: std::fmt::Debug>(&self, call: impl AsyncFn() -> Result<T, E>) -> T {
        loop {
            if let Ok(response) = call().await {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The outcome of a claim with another owner token.
    async fn competing_claim(&self, id: &RecordId) -> ClaimOutcome {
        let claim = claim();
        self.retry(async || self.direct.claim(id, &claim).await).await
    }
}
