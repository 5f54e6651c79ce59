//! A slot that moves between the nodes of a cluster while its keys are claimed and completed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    RecordId, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::Store,
};
use idempotent_redis::RedisStore;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::helpers::{describe, key, lease, open_with, request};
use test_support::{
    WAIT_LIMIT,
    servers::redis::{Cluster, Server},
};

/// Keys with this prefix are in one slot.
const PREFIX: &str = "{payments}";
const MOVES: usize = 6;
/// How many keys are in use at a time.
const WORKERS: usize = 6;
/// How many requests with one key are sent concurrently.
const DUPLICATES: usize = 3;
/// How often a call is repeated that fails for the moment, or whose key is in flight.
const TRIES: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Tally {
    granted: AtomicUsize,
    replays: AtomicUsize,
    failed: AtomicUsize,
}

/// Repeats a call as long as its errors are transient.
async fn repeat<T, F>(tally: &Tally, call: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 0..TRIES {
        match call().await {
            Ok(done) => return done,
            Err(error) => {
                assert!(error.is_transient(), "{}", describe(&error));
                tally.failed.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
        }
    }
    panic!("a call fails again and again");
}

/// Sends a request until it has a response. The handler's response names the owner that ran it.
async fn send(store: RedisStore, tally: Arc<Tally>, id: RecordId) -> Bytes {
    let claim = request();
    let own = Bytes::copy_from_slice(claim.owner.as_bytes());
    for _ in 0..TRIES {
        match repeat(&tally, || store.claim(&id, &claim)).await {
            ClaimOutcome::Granted { attempt } => {
                assert_eq!(attempt, 1, "the key was taken over");
                let lease = lease(id, &claim);
                let renewal = [Renewal::new(lease, claim.lease)];
                let renewed = repeat(&tally, || store.renew(&renewal)).await;
                assert_eq!(renewed, [RenewOutcome::Renewed]);
                let completed = repeat(&tally, || store.complete(&lease, &own)).await;
                assert_eq!(completed, Fence::Passed, "the owner was fenced");
                tally.granted.fetch_add(1, Ordering::Relaxed);
                return own;
            }
            ClaimOutcome::Rejected(Rejection::InFlight { .. }) => sleep(PAUSE).await,
            ClaimOutcome::Rejected(Rejection::Completed(response)) => {
                tally.replays.fetch_add(1, Ordering::Relaxed);
                return response;
            }
            outcome @ ClaimOutcome::Rejected(
                Rejection::Held { .. } | Rejection::Mismatch { .. },
            ) => {
                panic!("{outcome:?}")
            }
        }
    }
    panic!("the key stays in flight");
}

/// Sends new keys, each several times concurrently. Returns the keys and their responses.
async fn work(
    store: RedisStore,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
) -> Vec<(RecordId, Bytes)> {
    let mut done = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let id = key();
        let requests = (0..DUPLICATES).map(|_| send(store.clone(), tally.clone(), id));
        let responses = requests.collect::<JoinSet<_>>().join_all().await;
        assert!(responses.iter().all(|response| *response == responses[0]), "the key ran twice");
        done.push((id, responses[0].clone()));
    }
    done
}

fn count(node: &Server, slot: u16) -> u64 {
    node.command(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))
}

/// Marks a slot as moving from one node to another. Returns the ids of both.
pub(super) fn begin_move(slot: u16, [from, to]: [&Server; 2]) -> [String; 2] {
    let ids = [from, to].map(|node| node.command::<String>("CLUSTER MYID"));
    let _: () = to.command(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
    let _: () = from.command(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]));
    ids
}

/// Moves up to 10 keys of the slot, and returns how many it has moved.
pub(super) fn move_keys(slot: u16, [from, to]: [&Server; 2]) -> u64 {
    let keys: Vec<Vec<u8>> = from.command(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
    let moved = keys.len() as u64;
    if moved > 0 {
        migrate([from, to], keys);
    }
    moved
}

pub(super) fn migrate([from, to]: [&Server; 2], keys: Vec<Vec<u8>>) {
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
    migrate.query::<()>(&mut from.client().get_connection().unwrap()).unwrap();
}

/// Moves the slot to another node, a few keys at a time, as `redis-cli --cluster reshard` does.
pub(super) fn move_slot(cluster: &Cluster, slot: u16, nodes: [&Server; 2]) -> u64 {
    let [_, id] = begin_move(slot, nodes);
    let mut moved = 0;
    loop {
        match move_keys(slot, nodes) {
            0 => break,
            more => moved += more,
        }
    }
    for node in [nodes[1], nodes[0]].into_iter().chain(&cluster.0) {
        let _: () = node.command(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
    }
    moved
}

/// Fails if a key of the slot is granted twice, if an operation does not end, or if a response is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_is_granted_twice_while_its_slot_moves_under_load() {
    let cluster = Cluster::start();
    let store = open_with(RedisStore::options().key_prefix(PREFIX), &cluster.url()).await;
    store.check().await.unwrap();
    let slot: u16 = cluster.0[0].command(&format!("CLUSTER KEYSLOT {PREFIX}"));
    let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let workers: JoinSet<_> =
        (0..WORKERS).map(|_| work(store.clone(), tally.clone(), stop.clone())).collect();
    let mut moved = Vec::new();
    for turn in 0..MOVES {
        let (granted, until) = (tally.granted.load(Ordering::SeqCst), Instant::now() + WAIT_LIMIT);
        while tally.granted.load(Ordering::SeqCst) < granted + 30 {
            assert!(Instant::now() < until, "the workers have stopped");
            sleep(PAUSE).await;
        }
        let owner = cluster.0.iter().position(|node| count(node, slot) > 0).unwrap();
        let nodes = [&cluster.0[owner], &cluster.0[(owner + 1) % 3]];
        moved.push(tokio::task::block_in_place(|| move_slot(&cluster, slot, nodes)));
        println!("move {turn}: {moved:?} keys, {} granted", tally.granted.load(Ordering::SeqCst));
    }
    stop.store(true, Ordering::SeqCst);
    let done: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    for (id, response) in &done {
        let claim = request();
        let replay = repeat(&tally, || store.claim(id, &claim)).await;
        assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(response.clone())));
    }
    let [granted, replays, failed] =
        [&tally.granted, &tally.replays, &tally.failed].map(|count| count.load(Ordering::SeqCst));
    println!("{granted} granted, {replays} replays, {failed} calls failed for the moment");
    assert_eq!((granted, replays), (done.len(), done.len() * (DUPLICATES - 1)));
    assert!(moved.iter().all(|keys| *keys >= 30), "{moved:?}");
    let redirected: u64 = cluster
        .0
        .iter()
        .map(|node| ["ASK", "MOVED"].map(|kind| errors(node, kind)).iter().sum::<u64>())
        .sum();
    assert!(redirected >= 10, "only {redirected} calls were redirected");
}

/// How many errors of this kind a node has sent.
fn errors(node: &Server, kind: &str) -> u64 {
    let count = node.info(&format!("errorstat_{kind}"));
    count.and_then(|count| count.strip_prefix("count=")?.parse().ok()).unwrap_or(0)
}
