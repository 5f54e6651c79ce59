//! Which records a server loses, and which it keeps.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::Store,
};
use idempotent_redis::RedisStore;
use tokio::sync::watch;

use super::helpers::{GRANTED, complete, describe, key, lease, request};
use test_support::servers::redis::{DURABLE, IN_MEMORY, Server};

async fn work_until_it_fails(
    store: RedisStore,
    response: Bytes,
    count: watch::Sender<usize>,
) -> (Vec<RecordId>, StoreError) {
    let mut done = Vec::new();
    loop {
        match complete(&store, &response).await {
            Ok(id) => {
                done.push(id);
                count.send_replace(done.len());
            }
            Err(error) => return (done, error),
        }
    }
}

/// With `appendfsync always`, fails if an acknowledged claim or response is missing after `kill -9`
/// and a restart, if a call to the dead server fails with a permanent error, or if the store does
/// not reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_with_a_log_keeps_all_acknowledged_writes() {
    let mut server = Server::start(DURABLE);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let response = Bytes::from_static(b"response");
    for _ in 0..3 {
        let (count, mut counted) = watch::channel(0);
        let working = tokio::spawn(work_until_it_fails(store.clone(), response.clone(), count));
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        counted.wait_for(|done| *done > 10).await.unwrap();
        server.kill();
        let (done, error) = working.await.unwrap();
        assert!(error.is_transient(), "{}", describe(&error));
        assert!(done.len() > 10, "only {} before the kill", done.len());
        for _ in 0..20 {
            let error = store.claim(&key(), &request()).await.unwrap_err();
            assert!(error.is_transient(), "{}", describe(&error));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.restart();
        let back = Instant::now();
        while store.claim(&key(), &request()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(back.elapsed() < Duration::from_secs(60), "{:?}", back.elapsed());
        assert!(matches!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        for id in done {
            assert_eq!(
                store.claim(&id, &request()).await.unwrap(),
                ClaimOutcome::Rejected(Rejection::Completed(response.clone()))
            );
        }
    }
}

/// A documented loss: fails if a server without a log keeps its claims, because the documentation
/// would be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_without_a_log_loses_its_claims() {
    for args in [IN_MEMORY, &["--save", "3600 1", "--appendonly", "no"]] {
        let mut server = Server::start(args);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let id = key();
        assert_eq!(store.claim(&id, &request()).await.unwrap(), GRANTED);
        server.restart();
        assert_eq!(store.claim(&id, &request()).await.unwrap(), GRANTED, "{args:?}");
    }
}

/// Fails if the store opens on a server that could evict a live record, or if the error does not
/// name the setting.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_refused() {
    let server = Server::start(IN_MEMORY);
    for limit in ["0", "100mb"] {
        let _: () = server.command(&format!("CONFIG SET maxmemory {limit}"));
        for policy in [
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
        ] {
            let _: () = server.command(&format!("CONFIG SET maxmemory-policy {policy}"));
            let error = RedisStore::connect(&server.url()).await.unwrap_err();
            assert!(!error.is_transient());
            let message = describe(&error);
            assert!(
                message.contains("maxmemory-policy")
                    && message.contains(policy)
                    && message.contains("noeviction"),
                "{message}"
            );
        }
        let _: () = server.command("CONFIG SET maxmemory-policy noeviction");
        RedisStore::connect(&server.url()).await.unwrap();
    }
}

/// Fails if a full server grants a claim, loses one, or refuses the response of a granted one.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_claims_and_accepts_completions() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let lease = lease(id, &claim);
    let _: () = server.command("CONFIG SET maxmemory 1");
    for abandoned in [Abandoned::Retry, Abandoned::Hold] {
        let error = store.claim(&key(), &request().with_abandoned(abandoned)).await.unwrap_err();
        assert!(error.is_transient(), "{}", describe(&error));
    }
    let renewal = Renewal::new(lease, claim.lease);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let response = Bytes::from(vec![1; 1024]);
    assert_eq!(store.complete(&lease, &response).await.unwrap(), Fence::Passed);
    assert!(store.look_up(&id).await.unwrap().is_some());
    assert_eq!(
        store.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Completed(response))
    );
}

/// A server accepts no writes if it is full or has too few replicas. Fails if it does not report
/// the outcome of a key, for which reading suffices.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_no_writes_still_reports_the_outcome_of_a_key() {
    for setting in ["maxmemory 1", "min-replicas-to-write 1"] {
        let server = Server::start(IN_MEMORY);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let response = Bytes::from_static(b"response");
        let done = complete(&store, &response).await.unwrap();
        let [(running, running_claim), (held, abandoned)] =
            [(key(), request()), (key(), request())];
        for (id, claim) in [(&running, &running_claim), (&held, &abandoned)] {
            assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
        }
        assert_eq!(
            store.abandon(&lease(held, &abandoned), Abandoned::Hold).await.unwrap(),
            Fence::Passed
        );
        let _: () = server.command(&format!("CONFIG SET {setting}"));
        for abandoned in [Abandoned::Retry, Abandoned::Hold] {
            let again = request().with_abandoned(abandoned);
            let outcome_of = async |id, claim: &Claim| {
                let outcome = store.claim(id, claim).await;
                outcome
                    .map_err(|error| format!("{setting} {abandoned:?}: {}", describe(&error)))
                    .unwrap()
            };
            assert_eq!(
                outcome_of(&done, &again).await,
                ClaimOutcome::Rejected(Rejection::Completed(response.clone()))
            );
            assert!(matches!(
                outcome_of(&running, &again).await,
                ClaimOutcome::Rejected(Rejection::InFlight { .. })
            ));
            assert_eq!(
                outcome_of(&held, &again).await,
                ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
            );
            let other = again.with_fingerprint(Fingerprint::from_bytes([8; Fingerprint::BYTES]));
            for id in [&done, &running, &held] {
                assert!(matches!(
                    outcome_of(id, &other).await,
                    ClaimOutcome::Rejected(Rejection::Mismatch { .. })
                ));
                assert!(store.look_up(id).await.unwrap().is_some());
            }
            assert_eq!(store.look_up(&key()).await.unwrap(), None);
            // Calls that have to write are refused.
            assert!(store.claim(&running, &running_claim).await.is_err());
            assert!(store.claim(&key(), &again).await.is_err());
        }
    }
}
