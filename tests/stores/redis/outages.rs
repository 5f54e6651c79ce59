//! A cluster with a master that does not respond.
#![allow(clippy::panic, clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Lease, RecordId,
    protocol::{ClaimOutcome, RenewOutcome, Renewal},
    store::{Store, redis::RedisStore},
};
use tokio::{task::JoinSet, time::sleep};

use super::work::{GRANTED, describe, key, lease, opened, request};
use test_support::servers::redis::{Cluster, Server};

/// How long a failover may take on a busy machine; the servers detect a dead master after 4
/// seconds.
const PROMOTION: Duration = Duration::from_secs(30);
/// How long the store may take to find a promoted replica.
const FINDING: Duration = Duration::from_secs(15);

/// The outcome of a claim and a completion.
struct Call {
    shard: usize,
    began: Instant,
    took: Duration,
    error: Option<String>,
}

/// The slot of a record's key: CRC-16/XMODEM modulo 16,384. The few keys with braces would be
/// computed wrongly, and are left out.
fn slot(id: &RecordId) -> usize {
    let key = [b"idempotency:", id.as_bytes().as_slice()].concat();
    let crc = key.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    usize::from(crc % 16_384)
}

/// Keys of each master, more than any of these tests uses.
fn keys(cluster: &Cluster) -> [Vec<RecordId>; 3] {
    let mut bounds = vec![0; 16_384];
    let owned: Vec<Vec<redis::Value>> = cluster.0[0].ask("CLUSTER SLOTS");
    for range in owned {
        let bound = |at: usize| redis::from_redis_value::<usize>(range[at].clone()).unwrap();
        let (_, port, ..): (redis::Value, u16, redis::Value, redis::Value) =
            redis::from_redis_value(range[2].clone()).unwrap();
        let owner = cluster.0.iter().position(|node| node.port == port).unwrap();
        bounds[bound(0)..=bound(1)].fill(owner);
    }
    let mut keys = [const { Vec::new() }; 3];
    while keys.iter().any(|keys| keys.len() < 12_000) {
        let id = key();
        if id.as_bytes().contains(&b'{') {
            continue;
        }
        keys[bounds[slot(&id)]].push(id);
    }
    keys
}

async fn claim_and_complete(store: &RedisStore, id: RecordId) -> Result<(), String> {
    let claim = request();
    match store.claim(&id, &claim).await {
        Ok(ClaimOutcome::Granted { .. }) => {}
        Ok(other) => return Err(format!("{other:?}")),
        Err(error) => return Err(describe(&error)),
    }
    let done = store.complete(&lease(id, &claim), &Bytes::from_static(b"done")).await;
    done.map(drop).map_err(|error| describe(&error))
}

/// Sends requests to every shard until it is dropped.
struct Load {
    calls: Arc<Mutex<Vec<Call>>>,
    _workers: JoinSet<()>,
}

impl Load {
    fn start(store: &RedisStore, keys: [Vec<RecordId>; 3]) -> Self {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let mut workers = JoinSet::new();
        for (shard, keys) in keys.into_iter().enumerate() {
            let keys = Arc::new(Mutex::new(keys));
            for _ in 0..4 {
                let (store, keys, calls) = (store.clone(), keys.clone(), calls.clone());
                workers.spawn(async move {
                    loop {
                        let Some(id) = keys.lock().unwrap().pop() else { return };
                        let began = Instant::now();
                        let error = claim_and_complete(&store, id).await.err();
                        calls.lock().unwrap().push(Call {
                            shard,
                            began,
                            took: began.elapsed(),
                            error,
                        });
                        sleep(Duration::from_millis(10)).await;
                    }
                });
            }
        }
        Self { calls, _workers: workers }
    }

    fn count(&self, is: impl Fn(&Call) -> bool) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| is(call)).count()
    }

    async fn until(&self, what: &str, within: Duration, holds: impl Fn(&Call) -> bool) {
        let began = Instant::now();
        while self.count(&holds) == 0 {
            if began.elapsed() > within {
                self.report(began);
                panic!("{what}: not within {within:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn report(&self, since: Instant) {
        for shard in 0..3 {
            let after = |call: &&Call| call.shard == shard && call.began >= since;
            let calls = self.calls.lock().unwrap();
            let failed: Vec<_> =
                calls.iter().filter(after).filter(|call| call.error.is_some()).collect();
            let longest = calls.iter().filter(after).map(|call| call.took).max();
            let passed = calls.iter().filter(after).count() - failed.len();
            println!(
                "shard {shard}: {passed} passed, {} failed, the longest took {longest:?}",
                failed.len()
            );
            if let Some(failed) = failed.last() {
                println!("  the last failure: {:?}", failed.error);
            }
        }
    }
}

/// Writes to one server directly, at the pace of one of the load's workers, until it is dropped: a
/// measure of the machine's capacity.
struct Control {
    writes: Arc<Mutex<Vec<(Instant, Duration)>>>,
    _worker: JoinSet<()>,
}

impl Control {
    async fn start(server: &Server, id: RecordId) -> Self {
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let mut connection =
            server.client().get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let key = [b"idempotency:", id.as_bytes().as_slice()].concat();
        let writes: Arc<Mutex<Vec<_>>> = Arc::default();
        let mut worker = JoinSet::new();
        let written = writes.clone();
        worker.spawn(async move {
            loop {
                let began = Instant::now();
                redis::cmd("SET")
                    .arg(&key)
                    .arg("control")
                    .exec_async(&mut connection)
                    .await
                    .unwrap();
                written.lock().unwrap().push((began, began.elapsed()));
                sleep(Duration::from_millis(10)).await;
            }
        });
        Self { writes, _worker: worker }
    }

    fn within(&self, window: &Range<Instant>) -> usize {
        self.writes.lock().unwrap().iter().filter(|(began, _)| window.contains(began)).count()
    }

    fn longest(&self) -> Duration {
        self.writes.lock().unwrap().iter().map(|(_, took)| *took).max().unwrap_or_default()
    }
}

async fn other_shards_continue_without(stop: impl FnOnce(&mut Server)) {
    const DEAD: usize = 1;
    let mut cluster = Cluster::replicated();
    let store = opened(&cluster.url()).await;
    let mut keys = keys(&cluster);
    let mut spare: Vec<_> = keys.iter_mut().map(|keys| keys.split_off(keys.len() - 100)).collect();
    let control = Control::start(&cluster.0[0], spare[0].pop().unwrap()).await;
    let load = Load::start(&store, keys);
    for shard in 0..3 {
        load.until("work before", PROMOTION, |call| call.shard == shard && call.error.is_none())
            .await;
    }
    stop(&mut cluster.0[DEAD]);
    let stopped = Instant::now();

    // A process that starts during the outage serves the live shards.
    sleep(Duration::from_millis(200)).await;
    let other = RedisStore::connect(&cluster.url()).await.unwrap();
    println!("a new store opened in {:?}", stopped.elapsed());
    other.check().await.unwrap();
    println!("it was checked after {:?}", stopped.elapsed());
    for shard in [0, 2] {
        for _ in 0..20 {
            claim_and_complete(&other, spare[shard].pop().unwrap()).await.unwrap();
        }
    }

    let masters = |nodes: &[Server]| {
        nodes.iter().filter(|node| node.info("role").as_deref() == Some("master")).count()
    };
    while masters(&cluster.0[3..]) == 0 {
        assert!(stopped.elapsed() < PROMOTION, "no replica was promoted");
        sleep(Duration::from_millis(20)).await;
    }
    let promoted = Instant::now();
    println!("promoted after {:?}", stopped.elapsed());
    load.until("the dead shard is back", FINDING, |call| {
        call.shard == DEAD && call.began > promoted && call.error.is_none()
    })
    .await;
    println!("found {:?} after that", promoted.elapsed());
    // An idle process may detect the outage with its first call.
    while claim_and_complete(&other, spare[DEAD].pop().unwrap()).await.is_err() {
        assert!(promoted.elapsed() < FINDING, "the idle store does not find the promoted replica");
        sleep(Duration::from_millis(100)).await;
    }
    let found = Instant::now();
    sleep(Duration::from_secs(1)).await;

    load.report(stopped);
    assert_eq!(
        load.count(|call| call.shard != DEAD && call.error.is_some()),
        0,
        "a live shard failed"
    );
    for second in 0..stopped.elapsed().as_secs() {
        let window =
            stopped + Duration::from_secs(second)..stopped + Duration::from_secs(second + 1);
        let done = load.count(|call| call.shard != DEAD && window.contains(&call.began));
        // Eight workers, each with two calls for one write of the control.
        let written = control.within(&window);
        assert!(
            done >= written / 2,
            "{done} on the live shards in second {second}, beside {written} of the control"
        );
    }
    assert!(
        load.count(|call| call.shard == DEAD && call.error.is_some()) >= 10,
        "the dead shard was not missed"
    );
    // The first worker to detect the outage has waited for its response, and perhaps for another
    // connection.
    let known = stopped + Duration::from_secs(3);
    let slow = |call: &Call| {
        call.shard == DEAD
            && call.began > known
            && call.error.is_some()
            && call.took > Duration::from_millis(100)
    };
    let fast = |call: &Call| {
        call.shard == DEAD && call.began > known && call.error.is_some() && !slow(call)
    };
    println!(
        "once it was known to be dead: {} failed fast, {} did not",
        load.count(fast),
        load.count(slow)
    );
    assert!(
        load.count(fast) > 20 && load.count(slow) * 4 <= load.count(fast),
        "the dead shard's keys do not fail fast"
    );
    // Each unit is two calls.
    let limit = Duration::from_millis(1_500) + 2 * control.longest();
    assert_eq!(
        load.count(|call| call.began > known && call.took > limit),
        0,
        "longer than {limit:?}"
    );
    assert_eq!(
        load.count(|call| call.began > found && call.error.is_some()),
        0,
        "failures after the recovery"
    );
}

/// Fails if a hanging master affects keys of another shard, if its own keys do not fail fast or do
/// not recover with the promotion, or if no new store opens meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_stops_no_other_shard() {
    other_shards_continue_without(|master| master.pause()).await;
}

/// The same for a master whose process is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_stops_no_other_shard() {
    other_shards_continue_without(Server::kill).await;
}

/// Waits until all of these leases are renewed.
async fn renewed(store: &RedisStore, renewals: &[Renewal], limit: Duration) {
    let began = Instant::now();
    let all = |outcomes: Vec<RenewOutcome>| {
        outcomes.iter().all(|outcome| *outcome == RenewOutcome::Renewed)
    };
    while !store.renew(renewals).await.is_ok_and(all) {
        assert!(began.elapsed() < limit, "not all leases are renewed after {limit:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Renews leases four times while a shard hangs; returns the calls that took too long.
///
/// # Panics
/// Panics if an outcome is wrong, however busy the machine is.
async fn renewals_beside(
    dead: usize,
    store: &RedisStore,
    leases: &[(usize, Renewal)],
) -> Result<(), String> {
    let renewals: Vec<_> = leases.iter().map(|(_, renewal)| *renewal).collect();
    for round in 0..4 {
        let began = Instant::now();
        let outcomes = store.renew(&renewals).await.map_err(|error| describe(&error))?;
        let took = began.elapsed();
        println!("round {round} took {took:?}");
        let outcomes: Vec<_> =
            leases.iter().map(|(shard, _)| *shard == dead).zip(outcomes).collect();
        for outcome in &outcomes {
            let right =
                matches!(outcome, (true, RenewOutcome::Unknown) | (false, RenewOutcome::Renewed));
            // A live shard may be late on a busy machine; its leases are then unknown, and never
            // lost.
            assert!(
                right || *outcome == (false, RenewOutcome::Unknown),
                "on the dead shard, and its outcome: {outcome:?}"
            );
        }
        // The runtime waits for a second for leases as short as these.
        let late =
            outcomes.iter().filter(|outcome| **outcome == (false, RenewOutcome::Unknown)).count();
        if took >= Duration::from_secs(1) || late > 0 {
            return Err(format!(
                "round {round} took {took:?}, and {late} leases of live shards were not renewed"
            ));
        }
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

/// Fails if one hanging shard prevents the renewal of other leases, or delays the report that they
/// were renewed. A busy machine may take longer than a second for a round by itself, so one timely
/// sequence of five is enough; a wrong outcome fails at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_hangs_costs_no_other_shard_its_renewals() {
    const DEAD: usize = 1;
    let cluster = Cluster::start();
    let store = opened(&cluster.url()).await;
    let mut leases: Vec<(usize, Renewal)> = Vec::new();
    for (shard, keys) in keys(&cluster).into_iter().enumerate() {
        for id in keys.into_iter().take(20) {
            let claim = request();
            assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
            leases.push((
                shard,
                Renewal::new(Lease { id, owner: claim.owner }, Duration::from_secs(3)),
            ));
        }
    }
    fastrand::shuffle(&mut leases);
    let all: Vec<_> = leases.iter().map(|(_, renewal)| *renewal).collect();
    let dead: Vec<_> =
        leases.iter().filter(|(shard, _)| *shard == DEAD).map(|(_, renewal)| *renewal).collect();
    let mut faults = Vec::new();
    while faults.len() < 5 {
        renewed(&store, &all, Duration::from_secs(20)).await;
        cluster.0[DEAD].pause();
        let outcome = renewals_beside(DEAD, &store, &leases).await;
        let alone = store.renew(&dead).await;
        cluster.0[DEAD].resume();
        assert!(alone.is_err_and(|error| error.is_transient()));
        renewed(&store, &dead, FINDING).await;
        match outcome {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{faults:#?}");
}
