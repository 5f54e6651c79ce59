//! A planned failover by Sentinels, during which the old master still responds.
#![allow(clippy::panic, clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    RecordId,
    protocol::{ClaimOutcome, Rejection},
    store::{Administration, Store},
};
use idempotent_redis::{RedisOptions, RedisStore};
use tokio::{task::JoinSet, time::sleep};

use super::helpers::{complete, describe, request};
use test_support::servers::redis::{IN_MEMORY, Server, wait_until};

/// How long the store may use the old master after the Sentinels name the new one: the polling
/// interval of one second, and one second of tolerance for a busy machine.
const SWITCH_LIMIT: Duration = Duration::from_secs(2);

/// A master with a replica and three Sentinels.
struct MonitoredMaster {
    master: Server,
    replica: Server,
    sentinels: [Server; 3],
}

impl MonitoredMaster {
    fn start() -> Self {
        let master = Server::start(IN_MEMORY);
        let replica = master.replica(IN_MEMORY);
        let sentinels = [(); 3].map(|()| Server::sentinel(&master, 2));
        wait_until("the Sentinels know each other and the replica", || {
            sentinels.iter().all(|sentinel| {
                let fields: Vec<String> = sentinel.command("SENTINEL MASTER payments");
                let field = |name| {
                    fields.iter().position(|field| field == name).map(|at| fields[at + 1].clone())
                };
                field("num-slaves").as_deref() == Some("1")
                    && field("num-other-sentinels").as_deref() == Some("2")
            })
        });
        Self { master, replica, sentinels }
    }

    async fn open(&self, options: RedisOptions) -> RedisStore {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        let url = format!("redis+sentinel://{}/payments", hosts.join(","));
        options.connect(&url).await.unwrap()
    }

    /// Starts a failover, and returns when the first Sentinel names the new master.
    async fn fail_over(&self) -> Instant {
        // A Sentinel that does not know the replica's role yet refuses with `NOGOODSLAVE`.
        let mut client = self.sentinels[0].client().get_connection().unwrap();
        wait_until("a failover began", || {
            let mut order = redis::cmd("SENTINEL");
            order
                .arg("FAILOVER")
                .arg("payments")
                .query::<()>(&mut self.sentinels[0].client().get_connection().unwrap())
                .is_ok()
        });
        let new = self.replica.port.to_string();
        let ordered = Instant::now();
        loop {
            let mut named = redis::cmd("SENTINEL");
            let (_, port): (String, String) =
                named.arg("GET-MASTER-ADDR-BY-NAME").arg("payments").query(&mut client).unwrap();
            if port == new {
                println!("the new master was named {:?} after the order", ordered.elapsed());
                return Instant::now();
            }
            assert!(ordered.elapsed() < Duration::from_secs(30), "no failover");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The completed keys, and when each was completed.
type Done = Arc<Mutex<Vec<(RecordId, Instant)>>>;

fn load(store: &RedisStore) -> (JoinSet<()>, Done) {
    let (mut workers, done) = (JoinSet::new(), Done::default());
    for _ in 0..4 {
        let (store, done) = (store.clone(), done.clone());
        workers.spawn(async move {
            loop {
                if let Ok(id) = complete(&store, &Bytes::from_static(b"done")).await {
                    done.lock().unwrap().push((id, Instant::now()));
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    (workers, done)
}

/// The largest delay of a task that only sleeps, as a measure of how busy the machine is.
type Late = Arc<Mutex<Duration>>;

fn measure_delay(workers: &mut JoinSet<()>) -> Late {
    let late = Late::default();
    let longest = late.clone();
    workers.spawn(async move {
        loop {
            let due = Instant::now() + Duration::from_millis(5);
            sleep(Duration::from_millis(5)).await;
            let mut longest = longest.lock().unwrap();
            *longest = longest.max(due.elapsed());
        }
    });
    late
}

async fn await_completion_since(done: &Done, since: Instant, within: Duration) {
    await_completions_since(done, 1, since, within).await;
}

async fn await_completions_since(done: &Done, count: usize, since: Instant, within: Duration) {
    while done.lock().unwrap().iter().filter(|(_, at)| *at > since).count() < count {
        assert!(since.elapsed() < within, "not {count} were completed within {within:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// When those completed keys were completed that run again, as first attempts.
async fn lost_keys(store: &RedisStore, done: &Done) -> Vec<Instant> {
    let done = done.lock().unwrap().clone();
    let mut lost_keys = Vec::new();
    for (id, at) in done {
        match store.claim(&id, &request()).await {
            Ok(ClaimOutcome::Granted { attempt: 1 }) => lost_keys.push(at),
            Ok(_) => {}
            Err(error) => panic!("{}", describe(&error)),
        }
    }
    lost_keys
}

/// Fails if the store keeps using the old master after the Sentinels name a new one, so that
/// acknowledged records are lost, or if a new process uses another master than a running one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_a_planned_failover_at_once() {
    let setup = MonitoredMaster::start();
    let store = setup.open(RedisStore::options()).await;
    let (mut workers, done) = load(&store);
    await_completion_since(&done, Instant::now(), Duration::from_secs(60)).await;
    let late = measure_delay(&mut workers);
    let named = setup.fail_over().await;
    await_completion_since(&done, named + SWITCH_LIMIT, SWITCH_LIMIT + Duration::from_secs(30))
        .await;

    // The old master has not been demoted yet, so it would still acknowledge these.
    println!("the old master is {:?}", setup.master.info("role"));
    let other = setup.open(RedisStore::options()).await;
    for _ in 0..20 {
        let id = complete(&store, &Bytes::from_static(b"old")).await.unwrap();
        assert_eq!(
            other.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"old")))
        );
        let id = complete(&other, &Bytes::from_static(b"new")).await.unwrap();
        assert_eq!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"new")))
        );
    }
    await_completions_since(&done, 20, named, Duration::from_secs(120)).await;
    drop(workers);
    let last = lost_keys(&other, &done).await;
    let longest = last.iter().map(|at| at.saturating_duration_since(named)).max();
    println!(
        "{} of {} run again; the last was acknowledged {longest:?} after the switch",
        last.len(),
        done.lock().unwrap().len()
    );
    // Keys can be lost between the beginning of the promotion, which a Sentinel publishes, and the
    // store's reaction to it. A Sentinel names the new master about a second later.
    let span = last.iter().max().zip(last.iter().min()).map(|(last, first)| *last - *first);
    println!("they were acknowledged within {span:?}");
    // The Sentinel's message, the store's reaction, and a worker's last completion may each be
    // late.
    let late = 4 * *late.lock().unwrap();
    assert!(
        span.is_none_or(|span| span < Duration::from_millis(600) + late),
        "{span:?}, {late:?} late"
    );
    assert!(
        longest.is_none_or(|longest| longest < SWITCH_LIMIT + late),
        "{longest:?}, {late:?} late"
    );
}

/// The old master refuses writes as soon as its replica has disconnected, and claims and
/// completions wait for the replica. Fails if any key runs again. `replicas.rs` tests that they
/// wait, because here a missing wait would not be noticed each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_nothing_that_a_replica_acknowledged() {
    let setup = MonitoredMaster::start();
    for server in [&setup.master, &setup.replica] {
        let _: () = server.command("CONFIG SET min-replicas-to-write 1");
    }
    let store =
        setup.open(RedisStore::options().wait_for_replicas(1, Duration::from_millis(500))).await;
    let (workers, done) = load(&store);
    let began = Instant::now();
    while done.lock().unwrap().len() <= 40 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was completed");
        sleep(Duration::from_millis(10)).await;
    }
    let named = setup.fail_over().await;
    // The new master accepts no writes before the old one replicates it, which the Sentinels
    // arrange about ten seconds later.
    await_completion_since(&done, named + SWITCH_LIMIT, Duration::from_secs(40)).await;
    sleep(Duration::from_millis(500)).await;
    drop(workers);
    let again = lost_keys(&setup.open(RedisStore::options()).await, &done).await;
    println!("{} of {} run again", again.len(), done.lock().unwrap().len());
    assert!(again.is_empty());
    assert!(done.lock().unwrap().iter().filter(|(_, at)| *at < named).count() > 20);
}

/// Waits until a Sentinel publishes that it is about to promote a replica.
fn await_promotion(sentinel: &Server) -> tokio::task::JoinHandle<Instant> {
    let mut client = sentinel.client().get_connection().unwrap();
    let (ready, subscribed) = std::sync::mpsc::channel();
    let waiting = tokio::task::spawn_blocking(move || {
        let mut published = client.as_pubsub();
        published.subscribe("+failover-state-send-slaveof-noone").unwrap();
        ready.send(()).unwrap();
        published.get_message().unwrap();
        Instant::now()
    });
    subscribed.recv().unwrap();
    waiting
}

/// Fails if a process that starts during a promotion uses the outgoing master: keys that it
/// acknowledges would run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_opens_during_a_failover_waits_for_its_end() {
    let setup = MonitoredMaster::start();
    let promotion = await_promotion(&setup.sentinels[0]);
    let done = Done::default();
    let new_process = async {
        let began = promotion.await.unwrap();
        sleep(Duration::from_millis(150)).await;
        let store = setup.open(RedisStore::options()).await;
        println!("opened {:?} after the promotion began", began.elapsed());
        while began.elapsed() < Duration::from_secs(3) || done.lock().unwrap().len() <= 10 {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing was completed");
            if let Ok(id) = complete(&store, &Bytes::from_static(b"done")).await {
                done.lock().unwrap().push((id, Instant::now()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        (store, began)
    };
    let (named, (store, began)) = tokio::join!(setup.fail_over(), new_process);
    println!("named {:?} after the promotion began", named - began);
    let again = lost_keys(&store, &done).await;
    println!("{} of {} run again", again.len(), done.lock().unwrap().len());
    assert!(again.is_empty(), "{} run again", again.len());
}

/// The replica is slow, and promoted late. Fails if the store returns to the old master while the
/// failover is in progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_waits_for_the_end_of_a_long_failover() {
    let setup = MonitoredMaster::start();
    for sentinel in &setup.sentinels {
        let _: () = sentinel.command("SENTINEL SET payments failover-timeout 60000");
    }
    let store = setup.open(RedisStore::options()).await;
    let promotion = await_promotion(&setup.sentinels[0]);
    let (workers, done) = load(&store);
    await_completion_since(&done, Instant::now(), Duration::from_secs(60)).await;
    let slow = async {
        let began = promotion.await.unwrap();
        setup.replica.pause();
        sleep(Duration::from_secs(8)).await;
        let count = done
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, at)| *at > began + Duration::from_secs(1))
            .count();
        println!("{count} done on the old master during the failover");
        setup.replica.resume();
        Instant::now()
    };
    let (named, resumed) = tokio::join!(setup.fail_over(), slow);
    println!("named {:?} after the replica was resumed", named.saturating_duration_since(resumed));
    await_completion_since(&done, named + Duration::from_secs(1), Duration::from_secs(60)).await;
    drop(workers);
    let again = lost_keys(&setup.open(RedisStore::options()).await, &done).await;
    println!("{} of {} run again", again.len(), done.lock().unwrap().len());
    // Keys that were acknowledged in the last milliseconds before the promotion can be lost.
    let late = again.iter().filter(|at| **at > resumed - Duration::from_secs(7)).count();
    assert_eq!(late, 0);
}

/// Fails if a search says that there is no record while no server is known to be the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_search_during_a_failover_finds_the_record_or_fails() {
    let monitored = MonitoredMaster::start();
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_secs(5));
    let store = monitored.open(options).await;
    let id = complete(&store, &Bytes::new()).await.unwrap();
    let searching = tokio::spawn(async move {
        let (first, last) = RecordId::range(&id.to_string()[..8]).unwrap();
        let (mut found, mut failed) = (0, 0);
        // Until it has failed, and passes again.
        while failed == 0 || found == 0 {
            match store.find(&first, &last, 10).await {
                Ok(records) => {
                    assert_eq!(records.len(), 1, "the record is missing");
                    found += usize::from(failed > 0);
                }
                Err(error) => {
                    assert!(error.is_transient(), "{}", describe(&error));
                    failed += 1;
                }
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    monitored.fail_over().await;
    tokio::time::timeout(Duration::from_secs(20), searching).await.unwrap().unwrap();
}
