//! A cluster with a master that does not respond.
#![allow(clippy::panic, clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::time::{Duration, Instant};

use idempotent_core::{
    Lease, RecordId,
    protocol::{RenewOutcome, Renewal},
    store::Store,
};
use idempotent_redis::RedisStore;
use tokio::time::sleep;

use self::load::{Call, Control, Load, claim_and_complete};
use super::helpers::{GRANTED, describe, key, open_store, request};
use test_support::servers::redis::{Cluster, Server};

mod load;

/// How long a failover may take on a busy machine. The servers detect a dead master after 4
/// seconds.
const PROMOTION_LIMIT: Duration = Duration::from_secs(30);
/// How long the store may take to find a promoted replica.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(15);

/// The slot of a record's key: CRC-16/XMODEM modulo 16,384. This is wrong for keys with braces,
/// which the tests do not use.
fn slot(id: &RecordId) -> usize {
    let key = [b"idempotency:", id.as_bytes().as_slice()].concat();
    let crc = key.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    usize::from(crc % 16_384)
}

/// Keys for each master, more than a test uses.
fn keys(cluster: &Cluster) -> [Vec<RecordId>; 3] {
    let mut bounds = vec![0; 16_384];
    let owned: Vec<Vec<redis::Value>> = cluster.0[0].command("CLUSTER SLOTS");
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

/// The shard whose master stops or hangs.
const DEAD: usize = 1;

async fn assert_other_shards_continue_without(stop: impl FnOnce(&mut Server)) {
    let mut cluster = Cluster::replicated();
    let store = open_store(&cluster.url()).await;
    let mut keys = keys(&cluster);
    let mut spare: Vec<_> = keys.iter_mut().map(|keys| keys.split_off(keys.len() - 100)).collect();
    let control = Control::start(&cluster.0[0], spare[0].pop().unwrap()).await;
    let load = Load::start(&store, keys);
    for shard in 0..3 {
        load.wait_for("a success before the outage", PROMOTION_LIMIT, |call| {
            call.shard == shard && call.error.is_none()
        })
        .await;
    }
    stop(&mut cluster.0[DEAD]);
    let stopped = Instant::now();
    let other = open_store_in_outage(&cluster, &mut spare, stopped).await;

    await_promotion(&cluster, stopped).await;
    let promoted = Instant::now();
    println!("promoted after {:?}", stopped.elapsed());
    load.wait_for("a success on the dead shard", DISCOVERY_LIMIT, |call| {
        call.shard == DEAD && call.began > promoted && call.error.is_none()
    })
    .await;
    println!("the load's store found the promoted replica after {:?}", promoted.elapsed());
    // An idle process may detect the outage with its first call.
    while claim_and_complete(&other, spare[DEAD].pop().unwrap()).await.is_err() {
        assert!(
            promoted.elapsed() < DISCOVERY_LIMIT,
            "the idle store does not find the promoted replica"
        );
        sleep(Duration::from_millis(100)).await;
    }
    let found = Instant::now();
    sleep(Duration::from_secs(1)).await;

    load.report(stopped);
    assert_live_shards_were_served(&load, &control, stopped);
    assert_dead_shard_failed_fast(&load, &control, stopped);
    assert_eq!(
        load.count(|call| call.began > found && call.error.is_some()),
        0,
        "calls failed after the recovery"
    );
}

/// Opens a store as a process that starts during the outage does: it serves the live shards.
async fn open_store_in_outage(
    cluster: &Cluster,
    spare: &mut [Vec<RecordId>],
    stopped: Instant,
) -> RedisStore {
    sleep(Duration::from_millis(200)).await;
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    println!("a new store was opened in {:?}", stopped.elapsed());
    store.check().await.unwrap();
    println!("the new store was checked after {:?}", stopped.elapsed());
    for shard in [0, 2] {
        for _ in 0..20 {
            claim_and_complete(&store, spare[shard].pop().unwrap()).await.unwrap();
        }
    }
    store
}

async fn await_promotion(cluster: &Cluster, stopped: Instant) {
    let is_master = |node: &Server| node.info("role").as_deref() == Some("master");
    while !cluster.0[3..].iter().any(is_master) {
        assert!(stopped.elapsed() < PROMOTION_LIMIT, "no replica was promoted");
        sleep(Duration::from_millis(20)).await;
    }
}

fn assert_live_shards_were_served(load: &Load, control: &Control, stopped: Instant) {
    assert_eq!(
        load.count(|call| call.shard != DEAD && call.error.is_some()),
        0,
        "a live shard failed"
    );
    for second in 0..stopped.elapsed().as_secs() {
        let window =
            stopped + Duration::from_secs(second)..stopped + Duration::from_secs(second + 1);
        let done = load.count(|call| call.shard != DEAD && window.contains(&call.began));
        // The live shards have eight workers, each with two calls for one write of the control.
        let written = control.count_in(&window);
        assert!(
            done >= written / 2,
            "second {second}: only {done} on the live shards, and {written} writes of the control"
        );
    }
}

fn assert_dead_shard_failed_fast(load: &Load, control: &Control, stopped: Instant) {
    let failed = |call: &Call| call.shard == DEAD && call.error.is_some();
    assert!(load.count(failed) >= 10, "too few calls to the dead shard failed");
    // The first workers that meet the outage wait for a response, and perhaps for a new connection.
    let known = stopped + Duration::from_secs(3);
    let after = |call: &Call| failed(call) && call.began > known;
    let slow = load.count(|call| after(call) && call.took > Duration::from_millis(100));
    let fast = load.count(after) - slow;
    println!("after the outage was known: {fast} failed fast, {slow} did not");
    assert!(fast > 20 && slow * 4 <= fast, "calls to the dead shard do not fail fast");
    // Each measurement covers two calls.
    let limit = Duration::from_millis(1_500) + 2 * control.longest();
    assert_eq!(
        load.count(|call| call.began > known && call.took > limit),
        0,
        "some calls took longer than {limit:?}"
    );
}

/// Fails if a hanging master affects keys of other shards, if calls for its own keys do not fail
/// fast or do not recover with the promotion, or if no new store can be opened meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_master_does_not_stop_other_shards() {
    assert_other_shards_continue_without(|master| master.pause()).await;
}

/// Like [`a_hanging_master_does_not_stop_other_shards`], for a master whose process is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_does_not_stop_other_shards() {
    assert_other_shards_continue_without(Server::kill).await;
}

/// Waits until all of these leases are renewed.
async fn await_renewals(store: &RedisStore, renewals: &[Renewal], limit: Duration) {
    let began = Instant::now();
    let all = |outcomes: Vec<RenewOutcome>| {
        outcomes.iter().all(|outcome| *outcome == RenewOutcome::Renewed)
    };
    while !store.renew(renewals).await.is_ok_and(all) {
        assert!(began.elapsed() < limit, "not all leases are renewed after {limit:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Renews leases four times while a shard hangs. Returns an error if a round took too long.
///
/// # Panics
/// Panics if an outcome is wrong, however busy the machine is.
async fn renew_while_a_shard_hangs(
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
            // On a busy machine a live shard may be late. Then the outcome for its leases is
            // unknown, but they are not lost.
            assert!(
                right || *outcome == (false, RenewOutcome::Unknown),
                "whether the shard hangs, and the outcome: {outcome:?}"
            );
        }
        // For leases as short as these, the runtime waits at most one second.
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

/// Fails if one hanging shard prevents or delays the renewal of other leases. On a busy machine a
/// round may take longer than a second anyway, so one timely sequence of five is enough. A wrong
/// outcome fails at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_shard_does_not_prevent_the_renewals_of_others() {
    let cluster = Cluster::start();
    let store = open_store(&cluster.url()).await;
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
        await_renewals(&store, &all, Duration::from_secs(20)).await;
        cluster.0[DEAD].pause();
        let outcome = renew_while_a_shard_hangs(DEAD, &store, &leases).await;
        let renewed_dead = store.renew(&dead).await;
        cluster.0[DEAD].resume();
        assert!(renewed_dead.is_err_and(|error| error.is_transient()));
        await_renewals(&store, &dead, DISCOVERY_LIMIT).await;
        match outcome {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{faults:#?}");
}
