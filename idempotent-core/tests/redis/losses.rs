//! What a server loses, and what it does not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal},
    store::{Store, redis::RedisStore},
};
use tokio::sync::watch;

use super::{
    server::{DURABLE, FORGETFUL, Server},
    work::{GRANTED, complete, key, lease, request, told},
};

async fn work_until_it_fails(
    store: RedisStore,
    answer: Bytes,
    count: watch::Sender<usize>,
) -> (Vec<RecordId>, StoreError) {
    let mut done = Vec::new();
    loop {
        match complete(&store, &answer).await {
            Ok(id) => {
                done.push(id);
                count.send_replace(done.len());
            }
            Err(error) => return (done, error),
        }
    }
}

/// Fails if an acknowledged claim or answer is not there after `kill -9` and a restart with `appendfsync always`, if a call that meets
/// the dead server ends in anything but a transient error, or if the store has not found the server again after 5 seconds: 2, and some for a
/// busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_with_a_log_loses_nothing_that_it_acknowledged() {
    let mut server = Server::start(DURABLE);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let answer = Bytes::from_static(b"answer");
    for _ in 0..3 {
        let (count, mut counted) = watch::channel(0);
        let working = tokio::spawn(work_until_it_fails(store.clone(), answer.clone(), count));
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        counted.wait_for(|done| *done > 10).await.unwrap();
        server.kill();
        let (done, error) = working.await.unwrap();
        assert!(error.is_transient(), "{}", told(&error));
        assert!(done.len() > 10, "only {} before the kill", done.len());
        for _ in 0..20 {
            let error = store.claim(&key(), &request()).await.unwrap_err();
            assert!(error.is_transient(), "{}", told(&error));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.restart();
        let back = Instant::now();
        while store.claim(&key(), &request()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(back.elapsed() < Duration::from_secs(60), "{:?}", back.elapsed());
        assert!(matches!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        for id in done {
            assert_eq!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::Completed(answer.clone()));
        }
    }
}

/// The documented loss: fails if a server without a log comes to keep its claims, and the documentation says too little of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_without_a_log_forgets_its_claims() {
    for args in [FORGETFUL, &["--save", "3600 1", "--appendonly", "no"]] {
        let mut server = Server::start(args);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let id = key();
        assert_eq!(store.claim(&id, &request()).await.unwrap(), GRANTED);
        server.restart();
        assert_eq!(store.claim(&id, &request()).await.unwrap(), GRANTED, "{args:?}");
    }
}

/// Fails if the store starts on a server that could evict a live record, or if it does not say what to set.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_refused() {
    let server = Server::start(FORGETFUL);
    for limit in ["0", "100mb"] {
        let _: () = server.ask(&format!("CONFIG SET maxmemory {limit}"));
        for policy in [
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
        ] {
            let _: () = server.ask(&format!("CONFIG SET maxmemory-policy {policy}"));
            let error = RedisStore::connect(&server.url()).await.unwrap_err();
            assert!(!error.is_transient());
            let told = told(&error);
            assert!(
                told.contains("maxmemory-policy") && told.contains(policy) && told.contains("noeviction"),
                "{told}"
            );
        }
        let _: () = server.ask("CONFIG SET maxmemory-policy noeviction");
        RedisStore::connect(&server.url()).await.unwrap();
    }
}

/// Fails if a full server grants a claim, loses one, or refuses the answer of one that it granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_claims_and_takes_answers() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let lease = lease(id, &claim);
    let _: () = server.ask("CONFIG SET maxmemory 1");
    for abandoned in [Abandoned::Retry, Abandoned::Hold] {
        let error = store.claim(&key(), &Claim { abandoned, ..request() }).await.unwrap_err();
        assert!(error.is_transient(), "{}", told(&error));
    }
    let renewal = Renewal { lease, extend: claim.lease };
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let answer = Bytes::from(vec![1; 1024]);
    assert_eq!(store.complete(&lease, &answer).await.unwrap(), Fence::Passed);
    assert!(store.look_up(&id).await.unwrap().is_some());
    assert_eq!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::Completed(answer));
}

/// Fails if a server that takes no writes, because it is full or has too few replicas, no longer says what became of a key: it is only
/// read.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_goes_on_saying_what_became_of_a_key() {
    for setting in ["maxmemory 1", "min-replicas-to-write 1"] {
        let server = Server::start(FORGETFUL);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let answer = Bytes::from_static(b"answer");
        let done = complete(&store, &answer).await.unwrap();
        let [(busy, at_work), (held, abandoned)] = [(key(), request()), (key(), request())];
        for (id, claim) in [(&busy, &at_work), (&held, &abandoned)] {
            assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
        }
        assert_eq!(store.abandon(&lease(held, &abandoned), Abandoned::Hold).await.unwrap(), Fence::Passed);
        let _: () = server.ask(&format!("CONFIG SET {setting}"));
        for abandoned in [Abandoned::Retry, Abandoned::Hold] {
            let again = Claim { abandoned, ..request() };
            let told = async |id, claim: &Claim| {
                let outcome = store.claim(id, claim).await;
                outcome.map_err(|error| format!("{setting} {abandoned:?}: {}", told(&error))).unwrap()
            };
            assert_eq!(told(&done, &again).await, ClaimOutcome::Completed(answer.clone()));
            assert!(matches!(told(&busy, &again).await, ClaimOutcome::InFlight { .. }));
            assert_eq!(told(&held, &again).await, ClaimOutcome::Held { newly: false });
            let other = Claim { fingerprint: Fingerprint::from_bytes([8; Fingerprint::BYTES]), ..again };
            for id in [&done, &busy, &held] {
                assert!(matches!(told(id, &other).await, ClaimOutcome::Mismatch { .. }));
                assert!(store.look_up(id).await.unwrap().is_some());
            }
            assert_eq!(store.look_up(&key()).await.unwrap(), None);
            // It does refuse what it would have to write.
            assert!(store.claim(&busy, &at_work).await.is_err());
            assert!(store.claim(&key(), &again).await.is_err());
        }
    }
}
