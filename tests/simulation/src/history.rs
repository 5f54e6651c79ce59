//! One history: a seed determines everything that happens.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use idempotent_core::clock::{Timestamp, millis as in_millis};
use tokio::task::{LocalSet, spawn_local};

use crate::{
    client,
    cluster::Cluster,
    database::{Database, Statement},
    operation::Key,
    oracle::Counts,
    release::{LONGEST_LEASE, LONGEST_TTL},
    world::{World, chance, millis},
};

/// The result of a history.
pub(crate) struct Report {
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
    /// A hash of all events and their times. It is the same whenever the seed is run.
    pub(crate) hash: u64,
}

/// Runs the history of this seed. With `traced`, prints what happens.
pub(crate) fn run(seed: u64, traced: bool) -> Report {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a tokio runtime");
    LocalSet::new().block_on(&runtime, history(traced))
}

async fn history(traced: bool) -> Report {
    let (world, mut futures) = World::new(traced);
    let outside = spawn_local(async move {
        while let Some(future) = futures.recv().await {
            spawn_local(future);
        }
    });
    let database = Database::new(world.clone(), chance(30));
    let cluster = Cluster::start(world.clone(), database.clone());
    let time = millis(5_000, 90_000);
    let disturbances = (!chance(25)).then(|| spawn_local(cluster.clone().disturb(time)));

    let keys: Rc<RefCell<BTreeMap<Key, u8>>> = Rc::default();
    let clients: Vec<_> = (0..fastrand::u32(2..10))
        .map(|_| {
            let (key, payload) = (cluster.any_key(), u8::from(chance(15)));
            keys.borrow_mut().entry(key).or_insert(payload);
            spawn_local(client::run(cluster.clone(), key, payload))
        })
        .collect();
    for client in clients {
        let _ = client.await;
    }
    if let Some(disturbances) = disturbances {
        let _ = disturbances.await;
    }
    cluster.calm().await;
    let keys = keys.take();
    converge(&cluster, &keys).await;
    let report = world.oracle(|oracle| Report {
        violations: oracle.violations().to_vec(),
        counts: oracle.counts,
        hash: world.hash(),
    });
    for process in cluster.processes() {
        process.crash();
    }
    outside.abort();
    report
}

/// Without faults, each key gets a definitive response, and nothing is left behind.
async fn converge(cluster: &Cluster, keys: &BTreeMap<Key, u8>) {
    let Cluster { world, database, .. } = cluster;
    // After the clock was set back, a lease may last for its length again.
    tokio::time::sleep(LONGEST_LEASE * 2).await;
    for (key, payload) in keys {
        if !client::insist(cluster, *key, *payload).await {
            world.oracle(|oracle| oracle.violated(format!("{key:?} got no definitive response")));
        }
    }
    cluster.verify_idle().await;
    world.oracle(|oracle| oracle.verify_deferred());
    let latest = database.records().iter().map(|(_, record)| record.expires_at).max();
    let latest = latest.unwrap_or(Timestamp::EPOCH).max(database.now());
    let ahead = latest.duration_since(database.now()) + LONGEST_TTL;
    database.step_clock(i64::try_from(in_millis(ahead)).unwrap_or(i64::MAX));
    database.execute(Statement::Purge(10_000)).await;
    let now = database.now();
    for (id, record) in database.records() {
        if !record.is_held(now) {
            world.oracle(|oracle| oracle.violated(format!("{id:?} was not purged: {record:?}")));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}
