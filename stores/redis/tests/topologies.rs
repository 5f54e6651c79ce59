//! Clusters and Sentinels.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    RecordId,
    protocol::{ClaimOutcome, Rejection},
    store::Store,
};
use idempotent_redis::{RedisStore, internals::with_options};
use redis::Value;

use super::helpers::{GRANTED, complete, describe, key, open_store, open_with, request};
use test_support::{
    WAIT_LIMIT,
    servers::redis::{Cluster, DURABLE, Server, wait_until},
};

/// Fails if a key is claimed on a node that does not own it, or if a store for one server opens on
/// a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shares_the_records_among_its_nodes() {
    let cluster = Cluster::start();
    let store = open_store(&cluster.url()).await;
    let response = Bytes::from_static(b"response");
    for _ in 0..60 {
        let id = complete(&store, &response).await.unwrap();
        assert_eq!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(response.clone()))
        );
    }
    for node in &cluster.0 {
        assert!(node.command::<u64>("DBSIZE") > 0);
    }
    let error = RedisStore::connect(&cluster.0[0].url()).await.unwrap_err();
    assert!(describe(&error).contains("redis+cluster://"), "{}", describe(&error));

    // This cluster has no replicas.
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_millis(50));
    let waiting = with_options(&store, &options);
    let id = key();
    let error = waiting.claim(&id, &request()).await.unwrap_err();
    assert!(
        error.is_transient() && describe(&error).contains("0 of 1 replicas"),
        "{}",
        describe(&error)
    );
    assert_eq!(store.look_up(&id).await.unwrap(), None);

    let _: () = cluster.0[2].command("CONFIG SET maxmemory-policy allkeys-lru");
    let error = RedisStore::connect(&cluster.url()).await.unwrap_err();
    assert!(describe(&error).contains("maxmemory-policy"), "{}", describe(&error));
}

/// Fails if the store does not find the new master, or if it grants a key again that the replica
/// had.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_store_finds_the_new_master() {
    let mut master = Server::start(DURABLE);
    let replica = master.replica(DURABLE);
    let sentinels = [(); 3].map(|()| Server::sentinel(&master, 2));
    wait_until("the Sentinels know each other and the replica", || {
        sentinels.iter().all(|sentinel| {
            let message: Vec<String> = sentinel.command("SENTINEL MASTER payments");
            let field = |name| {
                message.iter().position(|field| field == name).map(|at| message[at + 1].clone())
            };
            field("num-slaves").as_deref() == Some("1")
                && field("num-other-sentinels").as_deref() == Some("2")
        })
    });
    let hosts: Vec<_> =
        sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    let store = open_store(&format!("redis+sentinel://{}/payments", hosts.join(","))).await;
    let response = Bytes::from_static(b"response");
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_secs(1));
    let id = complete(&with_options(&store, &options), &response).await.unwrap();
    wait_until("the replica has the record", || replica.command::<u64>("DBSIZE") == 1);

    master.kill();
    let killed = Instant::now();
    let mut refused = 0;
    while let Err(error) = store.claim(&key(), &request()).await {
        assert!(error.is_transient(), "{}", describe(&error));
        assert!(killed.elapsed() < Duration::from_secs(20), "{}", describe(&error));
        refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("failover: {:?}, {refused} claims refused", killed.elapsed());
    assert!(refused > 0);
    assert_eq!(replica.info("role").as_deref(), Some("master"));
    assert_eq!(
        store.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Completed(response))
    );
    assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
}

/// Fails if a claim of a key whose slot moves to another node is granted twice or fails. While the
/// slot moves, its old owner redirects calls for keys that have moved (`ASK`), and afterwards calls
/// for all keys (`MOVED`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_found_while_their_slot_moves() {
    let cluster = Cluster::start();
    let prefix = "{payments}";
    let store = open_with(RedisStore::options().key_prefix(prefix), &cluster.url()).await;
    store.check().await.unwrap();
    let slot: u16 = cluster.0[0].command(&format!("CLUSTER KEYSLOT {prefix}"));
    let count = |node: &Server| node.command::<u64>(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    let response = Bytes::from_static(b"response");
    let mut done = Vec::new();
    for _ in 0..40 {
        done.push(complete(&store, &response).await.unwrap());
    }
    for round in 0..2 {
        let from = cluster.0.iter().find(|node| count(node) > 0).unwrap();
        let to = cluster.0.iter().find(|node| count(node) == 0).unwrap();
        let ids = [from, to].map(|node| node.command::<String>("CLUSTER MYID"));
        let _: () = to.command(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
        let _: () = from.command(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]));
        // Half of the keys are moved. New keys are created on the destination.
        let migrate = |most: usize| {
            let keys: Vec<Vec<u8>> = from.command(&format!("CLUSTER GETKEYSINSLOT {slot} {most}"));
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
            migrate.query::<()>(&mut from.client().get_connection().unwrap()).unwrap();
        };
        migrate(done.len() / 2);
        let before = count(to);
        for _ in 0..10 {
            done.push(complete(&store, &response).await.unwrap());
        }
        assert_eq!(count(to), before + 10, "round {round}");
        for id in &done {
            assert_eq!(
                claim_once_connected(&store, id).await,
                ClaimOutcome::Rejected(Rejection::Completed(response.clone()))
            );
        }
        migrate(1_000);
        for node in [to, from] {
            let _: () = node.command(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]));
        }
        for id in &done {
            assert_eq!(
                claim_once_connected(&store, id).await,
                ClaimOutcome::Rejected(Rejection::Completed(response.clone()))
            );
        }
        assert_eq!(count(from), 0);
    }
}

/// Claims a key, and repeats that if a busy machine did not connect to a node in time.
async fn claim_once_connected(store: &RedisStore, id: &RecordId) -> ClaimOutcome {
    let started = Instant::now();
    loop {
        match store.claim(id, &request()).await {
            Err(error)
                if describe(&error).contains("ConnectTimeout")
                    && started.elapsed() < WAIT_LIMIT => {}
            outcome => return outcome.unwrap(),
        }
    }
}

fn slot(node: &Server, key: &str) -> i64 {
    node.command(&format!("CLUSTER KEYSLOT {key}"))
}

/// The ranges of slots that a node knows a master for.
fn known_slots(node: &Server) -> Vec<RangeInclusive<i64>> {
    let ranges: Vec<Vec<Value>> = node.command("CLUSTER SLOTS");
    let range = |range: &Vec<Value>| match range[..] {
        [Value::Int(first), Value::Int(last), ..] => first..=last,
        _ => unreachable!("{range:?}"),
    };
    ranges.iter().map(range).collect()
}

/// Makes the last node forget the others, like a node that has just rejoined. Returns two prefixes
/// of keys: one that this node serves, and one that another node serves.
fn isolate_last_node(cluster: &Cluster) -> [String; 2] {
    let (node, others) = cluster.0.split_last().unwrap();
    for other in others {
        let _: () =
            node.command(&format!("CLUSTER FORGET {}", other.command::<String>("CLUSTER MYID")));
    }
    let own = known_slots(node);
    let has = |key: &String| own.iter().any(|range| range.contains(&slot(node, key)));
    let prefix =
        |wanted: bool| (0..).map(|n| format!("{{{n}}}")).find(|key| has(key) == wanted).unwrap();
    let prefixes = [true, false].map(prefix);
    assert!(others.iter().all(|other| known_slots(other).len() >= cluster.0.len()));
    prefixes
}

/// Fails if the store adopts the view of a node that knows only some of the slots while others know
/// all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_knows_only_its_own_slots_hides_no_other_slots() {
    let cluster = Cluster::start();
    let [_, of_other_node] = isolate_last_node(&cluster);
    let node = &cluster.0[2];
    let looked_up = node.calls("cluster|slots");
    // Each store looks up the slots itself.
    for _ in 0..20 {
        let options = RedisStore::options().key_prefix(&of_other_node);
        let store = open_with(options, &cluster.url()).await;
        assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
    }
    assert!(node.calls("cluster|slots") > looked_up, "the node was never queried");
    assert!(known_slots(node).len() < cluster.0.len(), "the node has met the others");
}

/// Fails if the store does not look up the slots at once when a node refuses its keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_makes_the_store_look_up_the_slots() {
    let cluster = Cluster::start();
    let store = open_store(&cluster.url()).await;
    let node = &cluster.0[2];
    let _: () = node.command("CONFIG SET cluster-require-full-coverage yes");
    let [own, _] = isolate_last_node(&cluster);
    wait_until("the node serves no keys", || {
        node.command::<String>("CLUSTER INFO").contains("cluster_state:fail")
    });
    let store = with_options(&store, &RedisStore::options().key_prefix(&own));
    let (started, looked_up) = (Instant::now(), node.calls("cluster|slots"));
    // With the regular look-up every 5 seconds this would take at least half a minute.
    while node.calls("cluster|slots") < looked_up + 12 {
        let error = store.claim(&key(), &request()).await.unwrap_err();
        assert!(
            error.is_transient() && describe(&error).contains("ClusterDown"),
            "{}",
            describe(&error)
        );
        assert!(
            started.elapsed() < Duration::from_secs(25),
            "{} look-ups",
            node.calls("cluster|slots") - looked_up
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
