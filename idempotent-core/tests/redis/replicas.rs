//! Replication.

use std::time::Duration;

use idempotent_core::store::{ClaimOutcome, Store, redis::RedisStore};

use super::{
    server::{FORGETFUL, Server, within},
    work::{GRANTED, key, request, told},
};

/// Fails if the store reads from or writes to a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused() {
    let master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let error = RedisStore::connect(&replica.url()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(told(&error).contains("replica"), "{}", told(&error));
}

/// Fails if a claim is granted that the replica does not have, or if a refused one stays behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_for_a_replica_is_refused_when_there_is_none() {
    let master = Server::start(FORGETFUL);
    let mut replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let store = store.wait_for_replicas(1, Duration::from_millis(300));
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    // It waits only where it claims.
    let _: () = master.ask("CONFIG RESETSTAT");
    assert!(matches!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));
    assert_eq!(master.calls("wait"), 0);

    replica.kill();
    let refused = key();
    let error = store.claim(&refused, &request()).await.unwrap_err();
    assert!(error.is_transient() && told(&error).contains("0 of 1 replicas"), "{}", told(&error));
    assert_eq!(store.look_up(&refused).await.unwrap(), None);
    // Ten that wait do not wait for each other.
    let started = std::time::Instant::now();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&key(), &request()).await })
        })
        .collect();
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_err());
    }
    assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());

    replica.restart();
    within("the replica is back", || master.info("connected_slaves").as_deref() == Some("1"));
    within("it acknowledges", || replica.info("master_link_status").as_deref() == Some("up"));
    assert_eq!(store.claim(&refused, &request()).await.unwrap(), GRANTED);
}

/// The documented loss: fails if a promoted replica that lagged behind comes to know what only its master had acknowledged, and the
/// documentation says too little.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_that_lagged_forgets_an_acknowledged_claim() {
    let mut master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let (early, late) = (key(), key());
    assert_eq!(store.claim(&early, &request()).await.unwrap(), GRANTED);
    within("the replica has it", || replica.ask::<u64>("DBSIZE") == 1);
    // Nobody answers there: the replica is cut off from its master, and keeps what it has.
    let _: () = replica.ask("REPLICAOF 127.0.0.1 1");
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
    master.kill();
    let _: () = replica.ask("REPLICAOF NO ONE");
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    assert!(matches!(store.claim(&early, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
}
