//! Replicas: what is lost without them, and writes that wait for them.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection},
    store::Store,
};
use idempotent_redis::{RedisStore, internals::with_options};

use super::helpers::{GRANTED, complete, describe, key, lease, request};
use test_support::{
    longest_durations,
    servers::redis::{IN_MEMORY, Server, wait_until},
    timing::one_of_five_within,
};

/// How long writes wait for a replica that never responds.
pub(super) const REPLICA_TIMEOUT: Duration = Duration::from_millis(300);
/// How long writes wait for a replica that responds. Long, because the machine may be busy.
const LONG_REPLICA_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn durations_of_any_length_are_accepted() {
    let master = Server::start(IN_MEMORY);
    let _replica = master.replica(IN_MEMORY);
    for options in [
        RedisStore::options(),
        RedisStore::options().response_timeout(Duration::MAX),
        RedisStore::options().wait_for_replicas(1, Duration::MAX),
    ] {
        let store = options.connect(&master.url()).await.unwrap();
        longest_durations::assert_accepted(store).await;
    }
}

/// Fails if the store reads from or writes to a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused() {
    let master = Server::start(IN_MEMORY);
    let replica = master.replica(IN_MEMORY);
    let error = RedisStore::connect(&replica.url()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(describe(&error).contains("replica"), "{}", describe(&error));
}

/// Fails if a claim is granted that the replica has not received, or if a refused claim leaves a
/// record.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_needs_a_replica_is_refused_while_there_is_none() {
    let master = Server::start(IN_MEMORY);
    let mut replica = master.replica(IN_MEMORY);
    let long_wait = waiting(&master, Duration::from_secs(5)).await;
    let store = waiting(&master, Duration::from_millis(300)).await;
    let (id, claim) = (key(), request());
    assert_eq!(long_wait.claim(&id, &claim).await.unwrap(), GRANTED);
    // A rejected claim does not wait for replicas.
    let _: () = master.command("CONFIG RESETSTAT");
    assert!(matches!(
        store.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::InFlight { .. })
    ));
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
    wait_until("the replica is back", || master.info("connected_slaves").as_deref() == Some("1"));
    wait_until("the replica is in sync", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
    assert_eq!(long_wait.claim(&refused, &request()).await.unwrap(), GRANTED);
}

/// A documented loss: fails if a promoted replica that lagged behind has the records that only its
/// master had acknowledged, because the documentation would be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_that_lagged_lacks_an_acknowledged_claim() {
    let mut master = Server::start(IN_MEMORY);
    let replica = master.replica(IN_MEMORY);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let (early, late) = (key(), key());
    assert_eq!(store.claim(&early, &request()).await.unwrap(), GRANTED);
    wait_until("the replica has the record", || replica.command::<u64>("DBSIZE") == 1);
    // No process listens on this port: the replica is disconnected from its master, and keeps its
    // data.
    let _: () = replica.command("REPLICAOF 127.0.0.1 1");
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
    master.kill();
    let _: () = replica.command("REPLICAOF NO ONE");
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    assert!(matches!(
        store.claim(&early, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::InFlight { .. })
    ));
    assert_eq!(store.claim(&late, &request()).await.unwrap(), GRANTED);
}

/// Fails if a takeover that too few replicas acknowledge removes the record: another request would
/// be granted the key as a first attempt, and the next attempt would not know that it recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_with_too_few_replicas_remains_a_takeover() {
    let master = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = waiting(&master, Duration::from_millis(50)).await;
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
    assert!(matches!(
        store.claim(&id, &other).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Mismatch { .. })
    ));
    let found = store.look_up(&id).await.unwrap().unwrap();
    assert_eq!(found.record.attempt, 2);
    // The key can be taken over at once, and the next attempt knows that it recovers.
    assert_eq!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::Granted { attempt: 3 });
}

/// Fails if a repeated claim releases the key that was granted before, because its owner may be
/// running.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_claim_is_not_undone_for_lack_of_replicas() {
    let master = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let waiting = waiting(&master, Duration::from_millis(50)).await;
    for abandoned in [Abandoned::Retry, Abandoned::Hold] {
        let (id, claim) = (key(), request().with_abandoned(abandoned));
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        assert!(waiting.claim(&id, &claim).await.unwrap_err().is_transient());
        assert!(matches!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
    }
}

/// A store that waits for one replica.
async fn waiting(master: &Server, within: Duration) -> RedisStore {
    RedisStore::options().wait_for_replicas(1, within).connect(&master.url()).await.unwrap()
}

/// A store that waits for one replica, but not for long, on the connections of another store.
pub(super) fn impatient(store: &RedisStore) -> RedisStore {
    with_options(store, &RedisStore::options().wait_for_replicas(1, REPLICA_TIMEOUT))
}

/// A master, its replica, and a store whose writes wait for the replica.
pub(super) async fn pair() -> (Server, Server, RedisStore) {
    let master = Server::start(IN_MEMORY);
    let replica = master.replica(IN_MEMORY);
    let store = waiting(&master, LONG_REPLICA_TIMEOUT).await;
    (master, replica, store)
}

/// Disconnects a replica from its master: no process listens on this port. The replica keeps its
/// data.
pub(super) fn disconnect(replica: &Server) {
    let _: () = replica.command("REPLICAOF 127.0.0.1 1");
}

pub(super) fn reconnect(master: &Server, replica: &Server) {
    let _: () = replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    wait_until("the replica is in sync", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
}

/// Kills the master and promotes its replica; returns a store on the new master.
pub(super) async fn promote(mut master: Server, replica: &Server) -> RedisStore {
    master.kill();
    let _: () = replica.command("REPLICAOF NO ONE");
    RedisStore::connect(&replica.url()).await.unwrap()
}

pub(super) fn lacks_replicas(error: &StoreError) -> bool {
    error.is_transient() && describe(error).contains("0 of 1 replicas")
}

/// Fails if a claim is acknowledged that no replica has, because a handler would run for a key that
/// the next master does not know.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_claim_is_known_to_the_next_master() {
    let (master, replica, store) = pair().await;
    disconnect(&replica);
    let (id, claim) = (key(), request());
    let claimed = impatient(&store).claim(&id, &claim).await;
    let next = promote(master, &replica).await;
    match claimed {
        Ok(_) => assert!(matches!(
            next.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        )),
        Err(error) => assert!(lacks_replicas(&error), "{}", describe(&error)),
    }
}

/// Fails if a completion is acknowledged that no replica has, because the operation would run again
/// after a failover.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_completion_is_known_to_the_next_master() {
    let (master, replica, store) = pair().await;
    let (id, claim, response) = (key(), request(), Bytes::from_static(b"paid"));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    disconnect(&replica);
    let completed = impatient(&store).complete(&lease(id, &claim), &response).await;
    let next = promote(master, &replica).await;
    match completed {
        Ok(_) => {
            assert_eq!(
                next.claim(&id, &request()).await.unwrap(),
                ClaimOutcome::Rejected(Rejection::Completed(response))
            )
        }
        Err(error) => assert!(lacks_replicas(&error), "{}", describe(&error)),
    }
}

/// Fails if a repeated completion is acknowledged while too few replicas have it, or is not
/// acknowledged once enough have it; or if a fenced completion waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_is_sent_again_until_enough_replicas_have_it() {
    let (master, replica, store) = pair().await;
    let (id, claim, response) = (key(), request(), Bytes::from_static(b"paid"));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    disconnect(&replica);
    let short = impatient(&store);
    for _ in 0..3 {
        let error = short.complete(&lease(id, &claim), &response).await.unwrap_err();
        assert!(lacks_replicas(&error), "{}", describe(&error));
    }
    assert_eq!(short.complete(&lease(id, &request()), &response).await.unwrap(), Fence::Fenced);
    assert_eq!(short.complete(&lease(key(), &claim), &response).await.unwrap(), Fence::Fenced);

    reconnect(&master, &replica);
    let written = master.calls("set");
    assert_eq!(store.complete(&lease(id, &claim), &response).await.unwrap(), Fence::Passed);
    assert_writes(&master, written);
    let next = promote(master, &replica).await;
    assert_eq!(
        next.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Completed(response))
    );
}

/// Asserts that a repeated call writes again. From Redis 7.2 on, `WAIT` returns at once on a
/// connection that has written nothing.
fn assert_writes(master: &Server, before: u64) {
    assert!(master.calls("set") > before, "the repeated call did not write");
}

/// Fails if a hold is acknowledged before a replica has it, or not acknowledged once a replica has
/// it. The next master would have the claim with `retry` instead, which is taken over when its
/// lease expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_sent_again_until_enough_replicas_have_it() {
    let (master, replica, store) = pair().await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    disconnect(&replica);
    let short = impatient(&store);
    for _ in 0..3 {
        let error = short.abandon(&lease(id, &claim), Abandoned::Hold).await.unwrap_err();
        assert!(lacks_replicas(&error), "{}", describe(&error));
    }
    assert_eq!(
        short.abandon(&lease(id, &request()), Abandoned::Hold).await.unwrap(),
        Fence::Fenced
    );
    assert_eq!(short.abandon(&lease(key(), &claim), Abandoned::Hold).await.unwrap(), Fence::Fenced);

    reconnect(&master, &replica);
    let written = master.calls("set");
    assert_eq!(store.abandon(&lease(id, &claim), Abandoned::Hold).await.unwrap(), Fence::Passed);
    assert_writes(&master, written);
    let done = complete(&store, &Bytes::from_static(b"paid")).await.unwrap();
    let outcome = ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"paid")));
    let found = store.look_up(&done).await.unwrap().unwrap();
    let owned = Lease { id: done, owner: found.record.owner };
    assert_eq!(store.abandon(&owned, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    assert_eq!(store.claim(&done, &request()).await.unwrap(), outcome);
    let next = promote(master, &replica).await;
    assert_eq!(
        next.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
    );
}

/// Fails if a master that became a replica still reports the outcome of a key, because its data may
/// be stale. The stores' connections were opened and checked while it was the master.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_is_not_read_from() {
    let server = Server::start(IN_MEMORY);
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(RedisStore::connect(&server.url()).await.unwrap());
    }
    let [looking, claiming, full] = &stores[..] else { unreachable!() };
    let id = complete(looking, &Bytes::new()).await.unwrap();
    for store in &stores {
        assert!(store.look_up(&id).await.unwrap().is_some());
    }
    disconnect(&server);
    let mut errors = vec![
        looking.look_up(&id).await.unwrap_err(),
        claiming.claim(&id, &request()).await.unwrap_err(),
    ];
    // A replica that is full refuses a claim as full, before it refuses the claim as a replica.
    for setting in ["replica-ignore-maxmemory no", "maxmemory 1"] {
        let _: () = server.command(&format!("CONFIG SET {setting}"));
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
