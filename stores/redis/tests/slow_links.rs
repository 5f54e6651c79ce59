//! Connections on which responses take long, or on which nothing arrives.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    protocol::{ClaimOutcome, Rejection, RenewOutcome, Renewal},
    store::Store,
};
use idempotent_redis::RedisStore;
use tokio::task::JoinHandle;

use super::helpers::{GRANTED, complete, key, lease, request};
use test_support::{
    proxy::Proxy,
    servers::redis::{IN_MEMORY, Server},
};

/// How long the store waits by default while nothing arrives.
const LIMIT: Duration = Duration::from_secs(2);
const MIB: usize = 1024 * 1024;

async fn open_through_proxy(server: &Server) -> (RedisStore, Proxy) {
    let proxy = Proxy::in_front_of("127.0.0.1", server.port).await;
    let url = format!("redis://127.0.0.1:{}/", proxy.port);
    (RedisStore::connect(&url).await.unwrap(), proxy)
}

/// How many connections the server has accepted, including that of this query.
fn accepted(server: &Server) -> u64 {
    server.info("total_connections_received").unwrap().parse().unwrap()
}

/// Fails if the limit for a response counts from when the call was sent: many replays, or a large
/// one, take longer through a slow link, and their server would be considered down.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_link_is_no_outage_while_bytes_arrive() {
    let server = Server::start(IN_MEMORY);
    let direct = RedisStore::connect(&server.url()).await.unwrap();
    let (store, proxy) = open_through_proxy(&server).await;
    let before = accepted(&server);
    // At most 64 KiB each time: 3 MB/s.
    proxy.delay(Duration::from_millis(20));
    for (replays, bytes) in [(24, MIB), (1, 10 * MIB)] {
        let recording = Bytes::from(vec![7; bytes]);
        let id = complete(&direct, &recording).await.unwrap();
        let started = Instant::now();
        let claims: Vec<_> = (0..replays)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.claim(&id, &request()).await })
            })
            .collect();
        for claim in claims {
            let replay = claim.await.unwrap().unwrap();
            assert!(
                replay == ClaimOutcome::Rejected(Rejection::Completed(recording.clone())),
                "not a replay"
            );
        }
        assert!(started.elapsed() > LIMIT, "the link is not slow");
    }
    assert_eq!(accepted(&server), before + 1, "a connection was closed");
}

/// Fails if a connection that nothing arrives on, such as one that a router has forgotten, closes
/// the connections on which the server responds.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_does_not_close_the_others() {
    let server = Server::start(IN_MEMORY);
    let (store, proxy) = open_through_proxy(&server).await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    proxy.silence();
    // Renewals have another connection, which is opened now.
    let renewal = Renewal::new(lease(id, &claim), claim.lease);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let before = accepted(&server);
    let claims: Vec<_> = (0..10)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&key(), &request()).await })
        })
        .collect();
    let started = Instant::now();
    while !claims.iter().all(|claim| claim.is_finished()) {
        assert!(started.elapsed() < 10 * LIMIT);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
        tokio::time::sleep(LIMIT / 100).await;
    }
    for claim in claims {
        assert_eq!(claim.await.unwrap().unwrap(), GRANTED);
    }
    assert!(started.elapsed() >= LIMIT, "the connection was not silent");
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    // The new connection for requests, and the query.
    assert_eq!(accepted(&server), before + 2);
}

/// Fails if each call on a silent connection waits for as long as the first one did.
#[tokio::test(flavor = "multi_thread")]
async fn all_calls_on_a_silent_connection_move_to_another_one() {
    let server = Server::start(IN_MEMORY);
    let (store, proxy) = open_through_proxy(&server).await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    proxy.silence();
    let renewal = Renewal::new(lease(id, &claim), claim.lease);
    let claim_new = || {
        let store = store.clone();
        tokio::spawn(async move {
            assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
            Instant::now()
        })
    };
    let first = claim_new();
    let mut later = None::<JoinHandle<Instant>>;
    let started = Instant::now();
    while !first.is_finished() || !later.as_ref().is_some_and(JoinHandle::is_finished) {
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
        if later.is_none() && started.elapsed() > LIMIT * 3 / 4 {
            later = Some(claim_new());
        }
        tokio::time::sleep(LIMIT / 100).await;
    }
    let (first, later) = (first.await.unwrap(), later.unwrap().await.unwrap());
    assert!(first - started >= LIMIT, "the connection was not silent");
    let apart = later.saturating_duration_since(first);
    assert!(apart < LIMIT / 2, "{apart:?}");
}
