//! Replication.

use std::time::Duration;

use idempotent_core::{
    Abandoned, Fingerprint,
    store::{Claim, ClaimOutcome, Store, redis::RedisStore},
};

use super::{
    server::{FORGETFUL, Server, within},
    work::{GRANTED, key, lease, request, told},
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
    let patient = store.clone().wait_for_replicas(1, Duration::from_secs(5));
    let store = store.wait_for_replicas(1, Duration::from_millis(300));
    let (id, claim) = (key(), request());
    assert_eq!(patient.claim(&id, &claim).await.unwrap(), GRANTED);
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
    assert_eq!(patient.claim(&refused, &request()).await.unwrap(), GRANTED);
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

/// Fails if a takeover that is short of replicas removes the record: another request would be granted the key, as a first attempt, and
/// the next attempt of this one would not know that it recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_is_short_of_replicas_stays_a_takeover() {
    let master = Server::start(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = store.clone().wait_for_replicas(1, Duration::from_millis(50));
    let (id, first) = (key(), request());
    assert_eq!(store.claim(&id, &first).await.unwrap(), GRANTED);
    store.abandon(&lease(id, &first), Abandoned::Retry).await.unwrap();

    let error = waiting.claim(&id, &request()).await.unwrap_err();
    assert!(error.is_transient() && told(&error).contains("0 of 1 replicas"), "{}", told(&error));
    let other = Claim { fingerprint: Fingerprint::from_bytes([8; Fingerprint::BYTES]), ..request() };
    assert!(matches!(store.claim(&id, &other).await.unwrap(), ClaimOutcome::Mismatch { .. }));
    let found = store.look_up(&id).await.unwrap().unwrap();
    assert_eq!(found.record.attempt, 2);
    // It is free at once, and whoever gets it knows that it recovers.
    assert_eq!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::Granted { attempt: 3 });
}

/// Fails if a claim that is sent again gives back what was granted before: its holder may be at its work.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_sent_again_is_not_undone_for_lack_of_replicas() {
    let master = Server::start(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = store.clone().wait_for_replicas(1, Duration::from_millis(50));
    for abandoned in [Abandoned::Retry, Abandoned::Hold] {
        let (id, claim) = (key(), Claim { abandoned, ..request() });
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        assert!(waiting.claim(&id, &claim).await.unwrap_err().is_transient());
        assert!(matches!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));
    }
}
