//! Replication.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, StoreError,
    protocol::{ClaimOutcome, Fence},
    store::{Store, redis::RedisStore},
};

use super::work::{GRANTED, complete, describe, key, lease, request};
use test_support::{
    longest,
    servers::redis::{FORGETFUL, Server, within},
    timing::one_of_five_within,
};

/// How long writes wait for a replica that does not respond.
const WITHIN: Duration = Duration::from_millis(300);
/// How long they wait for one that responds, on a busy machine.
const PATIENTLY: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn durations_of_any_length_are_accepted() {
    let master = Server::start(FORGETFUL);
    let _replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    longest::takes_them(store.clone()).await;
    longest::takes_them(store.clone().response_timeout(Duration::MAX)).await;
    longest::takes_them(store.wait_for_replicas(1, Duration::MAX)).await;
}

/// Fails if the store reads from or writes to a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused() {
    let master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let error = RedisStore::connect(&replica.url()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(describe(&error).contains("replica"), "{}", describe(&error));
}

/// Fails if a claim is granted that the replica has not received, or if a refused one stays behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_for_a_replica_is_refused_when_there_is_none() {
    let master = Server::start(FORGETFUL);
    let mut replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let patient = store.clone().wait_for_replicas(1, Duration::from_secs(5));
    let store = store.wait_for_replicas(1, Duration::from_millis(300));
    let (id, claim) = (key(), request());
    assert_eq!(patient.claim(&id, &claim).await.unwrap(), GRANTED);
    // It waits only for the claim's own acknowledgment.
    let _: () = master.ask("CONFIG RESETSTAT");
    assert!(matches!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));
    assert_eq!(master.calls("wait"), 0);

    replica.kill();
    let refused = key();
    let error = store.claim(&refused, &request()).await.unwrap_err();
    assert!(
        error.is_transient() && describe(&error).contains("0 of 1 replicas"),
        "{}",
        describe(&error)
    );
    assert_eq!(store.look_up(&refused).await.unwrap(), None);
    // Ten waiting claims do not wait for each other.
    one_of_five_within(Duration::from_millis(1_500), async || {
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
        started.elapsed()
    })
    .await;

    replica.restart();
    within("the replica is back", || master.info("connected_slaves").as_deref() == Some("1"));
    within("it acknowledges", || replica.info("master_link_status").as_deref() == Some("up"));
    assert_eq!(patient.claim(&refused, &request()).await.unwrap(), GRANTED);
}

/// The documented loss: fails if a promoted replica that lagged behind has the records that only
/// its master had acknowledged, because the documentation would be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_that_lagged_forgets_an_acknowledged_claim() {
    let mut master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let (early, late) = (key(), key());
    assert_eq!(store.claim(&early, &request()).await.unwrap(), GRANTED);
    within("the replica has it", || replica.ask::<u64>("DBSIZE") == 1);
    // No process listens there: the replica is disconnected from its master, and keeps its data.
    let _: () = replica.ask("REPLICAOF 127.0.0.1 1");
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
    master.kill();
    let _: () = replica.ask("REPLICAOF NO ONE");
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    assert!(matches!(
        store.claim(&early, &request()).await.unwrap(),
        ClaimOutcome::InFlight { .. }
    ));
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
}

/// Fails if a takeover that too few replicas acknowledge removes the record: another request would
/// be granted the key as a first attempt, and the next attempt would not know that it recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_is_short_of_replicas_stays_a_takeover() {
    let master = Server::start(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = store.clone().wait_for_replicas(1, Duration::from_millis(50));
    let (id, first) = (key(), request());
    assert_eq!(store.claim(&id, &first).await.unwrap(), GRANTED);
    store.abandon(&lease(id, &first), Abandoned::Retry).await.unwrap();

    let error = waiting.claim(&id, &request()).await.unwrap_err();
    assert!(
        error.is_transient() && describe(&error).contains("0 of 1 replicas"),
        "{}",
        describe(&error)
    );
    let other = request().with_fingerprint(Fingerprint::from_bytes([8; Fingerprint::BYTES]));
    assert!(matches!(store.claim(&id, &other).await.unwrap(), ClaimOutcome::Mismatch { .. }));
    let found = store.look_up(&id).await.unwrap().unwrap();
    assert_eq!(found.record.attempt, 2);
    // The key is free at once, and the next attempt knows that it recovers.
    assert_eq!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::Granted { attempt: 3 });
}

/// Fails if a repeated claim releases what was granted before: its owner may be running.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_sent_again_is_not_undone_for_lack_of_replicas() {
    let master = Server::start(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = store.clone().wait_for_replicas(1, Duration::from_millis(50));
    for abandoned in [Abandoned::Retry, Abandoned::Hold] {
        let (id, claim) = (key(), request().with_abandoned(abandoned));
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        assert!(waiting.claim(&id, &claim).await.unwrap_err().is_transient());
        assert!(matches!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::InFlight { .. }
        ));
    }
}

/// A master, its replica, and a store whose writes wait for the replica.
async fn pair() -> (Server, Server, RedisStore) {
    let master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap().wait_for_replicas(1, PATIENTLY);
    (master, replica, store)
}

/// The replica keeps its data and receives nothing more: no process listens on the port that it
/// follows.
fn cut_off(replica: &Server) {
    let _: () = replica.ask("REPLICAOF 127.0.0.1 1");
}

fn reunite(master: &Server, replica: &Server) {
    let _: () = replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    within("the replica is in step", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
}

/// The store after the master was killed and its replica promoted.
async fn promoted(mut master: Server, replica: &Server) -> RedisStore {
    master.kill();
    let _: () = replica.ask("REPLICAOF NO ONE");
    RedisStore::connect(&replica.url()).await.unwrap()
}

fn is_short(error: &StoreError) -> bool {
    error.is_transient() && describe(error).contains("0 of 1 replicas")
}

/// Fails if a claim is acknowledged that no replica has: a handler would run for a key that the
/// next master does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_acknowledged_is_known_to_the_next_master() {
    let (master, replica, store) = pair().await;
    cut_off(&replica);
    let (id, claim) = (key(), request());
    let claimed = store.wait_for_replicas(1, WITHIN).claim(&id, &claim).await;
    let next = promoted(master, &replica).await;
    match claimed {
        Ok(_) => assert!(matches!(
            next.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::InFlight { .. }
        )),
        Err(error) => assert!(is_short(&error), "{}", describe(&error)),
    }
}

/// Fails if a completion is acknowledged that no replica has: the operation would run again after a
/// failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_is_acknowledged_is_known_to_the_next_master() {
    let (master, replica, store) = pair().await;
    let (id, claim, response) = (key(), request(), Bytes::from_static(b"paid"));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    cut_off(&replica);
    let completed =
        store.wait_for_replicas(1, WITHIN).complete(&lease(id, &claim), &response).await;
    let next = promoted(master, &replica).await;
    match completed {
        Ok(_) => {
            assert_eq!(
                next.claim(&id, &request()).await.unwrap(),
                ClaimOutcome::Completed(response)
            )
        }
        Err(error) => assert!(is_short(&error), "{}", describe(&error)),
    }
}

/// Fails if a completion that too few replicas have is acknowledged when it is repeated while they
/// still lack it, or is not acknowledged once they have it; or if a fenced one waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_is_sent_again_until_enough_replicas_have_it() {
    let (master, replica, store) = pair().await;
    let (id, claim, response) = (key(), request(), Bytes::from_static(b"paid"));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    cut_off(&replica);
    let short = store.clone().wait_for_replicas(1, WITHIN);
    for _ in 0..3 {
        let error = short.complete(&lease(id, &claim), &response).await.unwrap_err();
        assert!(is_short(&error), "{}", describe(&error));
    }
    assert_eq!(short.complete(&lease(id, &request()), &response).await.unwrap(), Fence::Fenced);
    assert_eq!(short.complete(&lease(key(), &claim), &response).await.unwrap(), Fence::Fenced);

    reunite(&master, &replica);
    let written = master.calls("set");
    assert_eq!(store.complete(&lease(id, &claim), &response).await.unwrap(), Fence::Passed);
    assert_writes(&master, written);
    let next = promoted(master, &replica).await;
    assert_eq!(next.claim(&id, &request()).await.unwrap(), ClaimOutcome::Completed(response));
}

/// From Redis 7.2 on, `WAIT` returns at once on a connection that has written nothing since.
fn assert_writes(master: &Server, before: u64) {
    assert!(master.calls("set") > before, "what is sent again is not written again");
}

/// Fails if a key is reported as held before a replica has the hold, or if the hold is not
/// acknowledged once one has it: a claim under `retry`, which the next master would know instead,
/// is taken over when its lease expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_sent_again_until_enough_replicas_have_it() {
    let (master, replica, store) = pair().await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    cut_off(&replica);
    let short = store.clone().wait_for_replicas(1, WITHIN);
    for _ in 0..3 {
        let error = short.abandon(&lease(id, &claim), Abandoned::Hold).await.unwrap_err();
        assert!(is_short(&error), "{}", describe(&error));
    }
    assert_eq!(
        short.abandon(&lease(id, &request()), Abandoned::Hold).await.unwrap(),
        Fence::Fenced
    );
    assert_eq!(short.abandon(&lease(key(), &claim), Abandoned::Hold).await.unwrap(), Fence::Fenced);

    reunite(&master, &replica);
    let written = master.calls("set");
    assert_eq!(store.abandon(&lease(id, &claim), Abandoned::Hold).await.unwrap(), Fence::Passed);
    assert_writes(&master, written);
    let done = complete(&store, &Bytes::from_static(b"paid")).await.unwrap();
    let outcome = ClaimOutcome::Completed(Bytes::from_static(b"paid"));
    let found = store.look_up(&done).await.unwrap().unwrap();
    let owned = Lease { id: done, owner: found.record.owner };
    assert_eq!(store.abandon(&owned, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    assert_eq!(store.claim(&done, &request()).await.unwrap(), outcome);
    let next = promoted(master, &replica).await;
    assert_eq!(next.claim(&id, &request()).await.unwrap(), ClaimOutcome::Held { newly: false });
}

/// Fails if a master that became a replica still reports the outcome of a key: its data may be
/// stale. The connections of the stores were opened, and checked, while it was the master.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_is_not_read_from() {
    let server = Server::start(FORGETFUL);
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(RedisStore::connect(&server.url()).await.unwrap());
    }
    let [looking, claiming, full] = &stores[..] else { unreachable!() };
    let id = complete(looking, &Bytes::new()).await.unwrap();
    for store in &stores {
        assert!(store.look_up(&id).await.unwrap().is_some());
    }
    cut_off(&server);
    let mut errors = vec![
        looking.look_up(&id).await.unwrap_err(),
        claiming.claim(&id, &request()).await.unwrap_err(),
    ];
    // Such a server refuses a claim because it is full before it refuses it as a replica.
    for setting in ["replica-ignore-maxmemory no", "maxmemory 1"] {
        let _: () = server.ask(&format!("CONFIG SET {setting}"));
    }
    errors.push(full.claim(&id, &request()).await.unwrap_err());
    for error in errors {
        assert!(
            error.is_transient() && describe(&error).contains("replica"),
            "{}",
            describe(&error)
        );
    }
}
