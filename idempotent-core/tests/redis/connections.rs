//! Connections, and the runtimes that drive them.
#![allow(clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal};
use idempotent_core::store::{Store, connect, redis::RedisStore};
use tokio::runtime::{Builder, Runtime};

use super::{
    proxied::without_runtime,
    server::{FORGETFUL, Server},
    work::{GRANTED, complete, key, lease, request, told},
};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Fails if a connection is shared between runtimes: a connection ends with the runtime that drives
/// it.
#[test]
fn a_runtime_that_ends_takes_nobody_elses_connection_away() {
    let server = Server::start(FORGETFUL);
    let first = runtime();
    let store = first.block_on(RedisStore::connect(&server.url())).unwrap();
    let worker = std::thread::spawn({
        let store = store.clone();
        move || {
            let second = runtime();
            for _ in 0..200 {
                second.block_on(complete(&store, &Bytes::new())).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let claimed = (key(), request());
    assert_eq!(first.block_on(store.claim(&claimed.0, &claimed.1)).unwrap(), GRANTED);
    drop(first);
    let third = runtime();
    let fence = third.block_on(store.complete(&lease(claimed.0, &claimed.1), &Bytes::from_static(b"done")));
    assert_eq!(fence.unwrap(), Fence::Passed);
    worker.join().unwrap();
}

/// Fails if the connections of runtimes that are gone pile up.
#[test]
fn the_connections_of_ended_runtimes_are_closed() {
    let server = Server::start(FORGETFUL);
    let lasting = runtime();
    let store = lasting.block_on(RedisStore::connect(&server.url())).unwrap();
    for _ in 0..20 {
        runtime().block_on(complete(&store, &Bytes::new())).unwrap();
    }
    super::server::within("only the lasting one is left", || {
        // The other is the one that asks.
        server.info("connected_clients").as_deref() == Some("2")
    });
    drop(store);
    super::server::within("none is left", || {
        lasting.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        server.info("connected_clients").as_deref() == Some("1")
    });
}

/// Fails if a renewal waits behind what a handler has sent.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_have_a_connection_of_their_own() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let before: usize = server.info("connected_clients").unwrap().parse().unwrap();
    let renewal = Renewal { lease: lease(id, &claim), extend: claim.lease };
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let after: usize = server.info("connected_clients").unwrap().parse().unwrap();
    assert_eq!(after, before + 1);
}

/// Fails if many leases take a round trip each.
#[tokio::test]
async fn many_leases_are_renewed_in_one_round_trip() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut renewals = Vec::new();
    for _ in 0..500 {
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        renewals.push(Renewal { lease: lease(id, &claim), extend: claim.lease });
    }
    assert_eq!(store.renew(&renewals[..1]).await.unwrap(), [RenewOutcome::Renewed]);
    let _: () = server.ask("CONFIG RESETSTAT");
    let reads = || server.info("total_reads_processed").unwrap().parse::<u64>().unwrap();
    let before = reads();
    assert_eq!(store.renew(&renewals).await.unwrap(), vec![RenewOutcome::Renewed; 500]);
    let read = reads() - before;
    println!("500 renewals: {read} reads by the server");
    assert!(read < 25, "{read} reads for 500 renewals");
    assert_eq!(server.calls("evalsha"), 500);
}

/// Fails if a connection that the server closed is not made again by the next claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_outlives_the_connection_that_it_was_sent_on() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for _ in 0..50 {
        let _: () = server.ask("CLIENT KILL TYPE normal SKIPME yes");
        complete(&store, &Bytes::new()).await.unwrap();
    }
}

/// Fails if a lost acknowledgement refuses its own claim, or if an answer that takes too long
/// blocks for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_acknowledgement_was_lost_is_granted() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap().response_timeout(Duration::from_millis(200));
    complete(&store, &Bytes::new()).await.unwrap();
    let (id, claim) = (key(), request());
    // The claim waits in the server for longer than its caller does, and is taken there before it
    // is sent again.
    let _: () = server.ask("CLIENT PAUSE 300 ALL");
    let started = Instant::now();
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert!(matches!(store.claim(&id, &request()).await.unwrap(), ClaimOutcome::InFlight { .. }));

    // It is given up long before the server goes on.
    let _: () = server.ask("CLIENT PAUSE 60000 ALL");
    let started = Instant::now();
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert!(error.is_transient() && started.elapsed() < Duration::from_secs(55), "{}", told(&error));
}

/// Fails if an error shows what a URL keeps secret, or does not tell what to do about the URL.
#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_password() {
    let server = Server::start(FORGETFUL);
    let _: () = server.ask("CONFIG SET requirepass right");
    let port = server.port;
    let mut told_all = Vec::new();
    for (url, needle) in [
        (format!("redis://user:hunter2@127.0.0.1:{port}/"), "authentication"),
        ("redis://:hunter2@127.0.0.1:1/".to_owned(), "refused"),
        ("redis://:hunter2@127.0.0.1:port/".to_owned(), "URL"),
        ("redis+sentinel://:hunter2@127.0.0.1:1/payments".to_owned(), ""),
        ("redis+sentinel://:hunter2@127.0.0.1:1/".to_owned(), "names the master"),
        ("redis+sentinel://127.0.0.1:1/payments?password=hunter2".to_owned(), "sentinel_password"),
        (format!("redis+cluster://:hunter2@127.0.0.1:{port}"), ""),
        ("redis+other://:hunter2@127.0.0.1".to_owned(), "redis+cluster"),
    ] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        let told = told(&error);
        assert!(told.to_lowercase().contains(&needle.to_lowercase()), "{told}");
        told_all.push(told);
    }
    let store = RedisStore::connect(&format!("redis://:right@127.0.0.1:{port}/")).await.unwrap();
    told_all.push(format!("{store:?}"));
    assert!(told_all.iter().all(|told| !told.contains("hunter2") && !told.contains("right")), "{told_all:#?}");
}

/// Fails if a URL does not lead to the store, or if one for TLS fails without naming the feature.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_names_the_store() {
    let server = Server::start(FORGETFUL);
    let store = connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.purge(1_000).await.unwrap(), 0);
    assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
    if cfg!(not(feature = "redis-tls")) {
        for scheme in ["rediss", "rediss+sentinel", "rediss+cluster"] {
            let error = connect(&format!("{scheme}://127.0.0.1/")).await.err().unwrap();
            assert!(error.to_string().contains("`redis-tls`"), "{error}");
        }
        let error = RedisStore::connect("rediss://127.0.0.1/").await.unwrap_err();
        assert!(told(&error).contains("`redis-tls`"), "{}", told(&error));
    }
}

/// The connections that lead to a port of this machine, as its kernel sees them: also those that a
/// stopped server has not accepted.
fn established(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[1].ends_with(&port) && fields[3] == "01").count()
}

/// Fails if one response that is late costs the calls beside it more than a new connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slow_once_fails_no_claim() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap().response_timeout(Duration::from_millis(200));
    complete(&store, &Bytes::new()).await.unwrap();
    let before: usize = server.info("total_connections_received").unwrap().parse().unwrap();
    let _: () = server.ask("CLIENT PAUSE 350 ALL");
    let claims: Vec<_> = (0..50)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&key(), &request()).await })
        })
        .collect();
    for claim in claims {
        assert_eq!(claim.await.unwrap().unwrap(), GRANTED);
    }
    let after: usize = server.info("total_connections_received").unwrap().parse().unwrap();
    assert!(after > before + 2, "the responses were not late");
}

/// Fails if connections pile up while a server hangs, or what was sent to it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_two_connections_at_most() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap().response_timeout(Duration::from_millis(300));
    let (id, claim) = (key(), Claim { lease: Duration::from_secs(300), ..request() });
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let renewal = Renewal { lease: lease(id, &claim), extend: claim.lease };
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    super::server::within("one connection for work and one for renewals", || established(server.port) == 2);
    for round in 0..3 {
        server.pause();
        let (began, mut most, mut failed, mut slowest) = (Instant::now(), 0, 0, Duration::ZERO);
        while began.elapsed() < Duration::from_secs(3) || failed < 40 {
            let calls: Vec<_> = (0..20)
                .map(|_| {
                    let store = store.clone();
                    tokio::spawn(async move {
                        let began = Instant::now();
                        let renewed = store.renew(&[renewal]).await.is_err();
                        (renewed, store.claim(&key(), &request()).await.is_err(), began.elapsed())
                    })
                })
                .collect();
            for call in calls {
                let (renewal, claim, took) = call.await.unwrap();
                assert!(renewal && claim);
                failed += 1;
                slowest = slowest.max(took);
            }
            // A connection that was given up is closed as soon as the task that drove it is polled.
            most = most.max(established(server.port));
            super::server::within("what was given up is closed", || established(server.port) <= 2);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("round {round}: {failed} failed, the slowest took {slowest:?}, {most} connections at most");
        // A busy machine closes them late. If each call opened one, there would be twenty.
        assert!(failed >= 40 && most < 16, "{failed} {most}");
        server.resume();
        let back = Instant::now();
        while store.claim(&key(), &request()).await.is_err() || store.renew(&[renewal]).await.is_err() {
            assert!(back.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        super::server::within("one connection for work and one for renewals", || established(server.port) == 2);
    }
}

/// Fails if a handler that blocks its runtime makes the store believe that the server hangs: the
/// calls of other runtimes would fail.
#[test]
fn a_runtime_that_is_blocked_costs_no_other_its_connection() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let server = Server::start(FORGETFUL);
    let blocked = runtime();
    let store = blocked.block_on(RedisStore::connect(&server.url())).unwrap().response_timeout(TIMEOUT);
    blocked.block_on(complete(&store, &Bytes::new())).unwrap();
    let (done, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let other = std::thread::spawn({
        let (store, done, ended) = (store.clone(), done.clone(), ended.clone());
        move || {
            let runtime = runtime();
            while !ended.load(Ordering::Relaxed) {
                let completed = runtime.block_on(complete(&store, &Bytes::new()));
                done.fetch_add(usize::from(completed.is_ok()), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    super::server::within("the other runtime works", || done.load(Ordering::Relaxed) > 0);
    let connections = || server.info("total_connections_received").unwrap().parse::<usize>().unwrap();
    let mut undisturbed = 0;
    for _ in 0..5 {
        let before = connections();
        blocked.block_on(async {
            let claims: Vec<_> = (0..20)
                .map(|_| {
                    let store = store.clone();
                    tokio::spawn(async move { store.claim(&key(), &request()).await })
                })
                .collect();
            // It runs before the task that writes them to the socket.
            tokio::spawn(async { std::thread::sleep(TIMEOUT * 2) });
            for claim in claims {
                assert_eq!(claim.await.unwrap().unwrap(), GRANTED);
            }
        });
        // The last look is a connection too.
        undisturbed += usize::from(connections() == before + 1);
    }
    // On a busy machine the server itself may be late.
    assert!(undisturbed > 0, "the server was taken for one that hangs");
    ended.store(true, Ordering::Relaxed);
    other.join().unwrap();
    assert!(done.load(Ordering::Relaxed) > 50, "{done:?}");
}

#[test]
fn calls_from_outside_of_a_runtime_are_refused_for_that_reason() {
    let server = Server::start(FORGETFUL);
    without_runtime::assert_done_or_refused("connect", without_runtime::call(RedisStore::connect(&server.url())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(RedisStore::connect(&server.url())).unwrap();
    without_runtime::call_all(&store);
    without_runtime::call_all(&store.clone().wait_for_replicas(1, Duration::from_millis(10)));
    runtime.block_on(store.look_up(&key())).unwrap();
    without_runtime::call_all(&store);
}
