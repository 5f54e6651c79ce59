//! Servers that do not respond to operators.

use std::time::{Duration, Instant};

use idempotent_core::{
    RecordId, StoreError,
    history::Kind,
    protocol::{Contents, RecordFilter, Removal, Replacement},
    store::Administration,
};
use idempotent_redis::RedisStore;

use super::{held, watched};
use crate::helpers::{describe, key, open_store};
use test_support::{
    decision,
    servers::redis::{Cluster, IN_MEMORY, Server},
};

/// The response timeout of 2 seconds, once more on a new connection, and the time of a busy
/// machine.
const LONGEST: Duration = Duration::from_secs(10);

/// The errors of all calls, each within the time limit.
async fn failures(store: &RedisStore, id: &RecordId) -> Vec<StoreError> {
    let removal = Removal::of_any(idempotent_core::OwnerToken::from_bytes([1; 16]));
    let replacement = Replacement::new(removal.seen, Contents::default(), Contents::default());
    let (all, audit) = (RecordFilter::default(), decision(id));
    let (first, last) = RecordId::range("0").unwrap();
    let mut failures = Vec::new();
    for call in 0..8 {
        let began = Instant::now();
        let result = match call {
            0 => store.watched(&all, None, 10).await.map(drop),
            1 => store.scan(&all, None, 1_000).await.map(drop),
            2 => store.find(&first, &last, 1_000).await.map(drop),
            3 => store.count().await.map(drop),
            4 => store.audit(None, 10).await.map(drop),
            5 => store.remove(id, &removal, &audit).await.map(drop),
            6 => store.replace(id, &replacement).await.map(drop),
            _ => store.append_history(id, Kind::Fenced).await,
        };
        assert!(began.elapsed() < LONGEST, "call {call} took {:?}", began.elapsed());
        failures.push(result.expect_err(&format!("call {call} passes")));
    }
    failures
}

/// Fails if a list or a decision hangs with a server, or if the error says that repeating it is of
/// no use.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_server_that_hangs() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let held = held(&store, key()).await;
    server.pause();
    for failure in failures(&store, &held.id).await {
        assert!(failure.is_transient(), "{}", describe(&failure));
    }
    server.resume();
    let began = Instant::now();
    while store.watched(&RecordFilter::default(), None, 10).await.is_err() {
        assert!(began.elapsed() < LONGEST, "the lists stay away");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Fails if a list of a cluster leaves out the records of a node that hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_that_of_all_nodes_or_an_error() {
    let cluster = Cluster::start();
    let store = open_store(&cluster.url()).await;
    let (_, mut ids) = (held(&store, key()).await, Vec::new());
    for _ in 0..12 {
        ids.push(held(&store, key()).await.id);
    }
    let node = &cluster.0[2];
    let keys: Vec<Vec<u8>> = node.command("KEYS *");
    let its = ids.iter().find(|id| keys.iter().any(|key| key.ends_with(id.as_bytes()))).unwrap();
    node.pause();
    for failure in failures(&store, its).await {
        assert!(failure.is_transient(), "{}", describe(&failure));
    }
    node.resume();
}

/// Fails if a list shows the records of a server that has become a replica, which may be outdated.
#[tokio::test(flavor = "multi_thread")]
async fn no_list_is_read_from_a_replica() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let held = held(&store, key()).await;
    assert_eq!(watched(&store, 10).await, [held.id]);
    // No server listens on this port.
    let _: () = server.command("REPLICAOF 127.0.0.1 1");
    for failure in failures(&store, &held.id).await {
        assert!(failure.is_transient(), "{}", describe(&failure));
        assert!(describe(&failure).contains("replica"), "{}", describe(&failure));
    }
    let found = store.find(&held.id, &held.id, 1).await.unwrap_err();
    assert!(found.is_transient(), "{}", describe(&found));
    let _: () = server.command("REPLICAOF NO ONE");
    let began = Instant::now();
    while store.watched(&RecordFilter::default(), None, 10).await.is_err() {
        assert!(began.elapsed() < LONGEST, "the lists stay away");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(watched(&store, 10).await, [held.id]);
}
