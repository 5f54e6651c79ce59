//! Connections, and the tokio runtimes that drive them.
#![allow(clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    protocol::{ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::Store,
};
use idempotent_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};

use super::helpers::{GRANTED, complete, describe, established, key, lease, request};
use test_support::{
    servers::redis::{IN_MEMORY, Server, wait_until},
    without_runtime,
};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Fails if runtimes share a connection: a connection ends with the runtime that drives it.
#[test]
fn a_runtime_that_ends_does_not_close_the_connections_of_others() {
    let server = Server::start(IN_MEMORY);
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
    let fence =
        third.block_on(store.complete(&lease(claimed.0, &claimed.1), &Bytes::from_static(b"done")));
    assert_eq!(fence.unwrap(), Fence::Passed);
    worker.join().unwrap();
}

/// Fails if connections of ended runtimes accumulate.
#[test]
fn the_connections_of_ended_runtimes_are_closed() {
    let server = Server::start(IN_MEMORY);
    let lasting = runtime();
    let store = lasting.block_on(RedisStore::connect(&server.url())).unwrap();
    for _ in 0..20 {
        runtime().block_on(complete(&store, &Bytes::new())).unwrap();
    }
    wait_until("only the connection of the lasting runtime is left", || {
        // The second connection is the one that runs this query.
        server.info("connected_clients").as_deref() == Some("2")
    });
    drop(store);
    wait_until("no connection of the store is left", || {
        lasting.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        server.info("connected_clients").as_deref() == Some("1")
    });
}

/// Fails if a renewal queues behind a handler's commands.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_have_a_separate_connection() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let before: usize = server.info("connected_clients").unwrap().parse().unwrap();
    let renewal = Renewal::new(lease(id, &claim), claim.lease);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    let after: usize = server.info("connected_clients").unwrap().parse().unwrap();
    assert_eq!(after, before + 1);
}

/// Fails if many leases take one round trip each.
#[tokio::test]
async fn many_leases_are_renewed_in_one_round_trip() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let mut renewals = Vec::new();
    for _ in 0..500 {
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        renewals.push(Renewal::new(lease(id, &claim), claim.lease));
    }
    assert_eq!(store.renew(&renewals[..1]).await.unwrap(), [RenewOutcome::Renewed]);
    let _: () = server.command("CONFIG RESETSTAT");
    let reads = || server.info("total_reads_processed").unwrap().parse::<u64>().unwrap();
    let before = reads();
    assert_eq!(store.renew(&renewals).await.unwrap(), vec![RenewOutcome::Renewed; 500]);
    let read = reads() - before;
    println!("500 renewals: {read} reads by the server");
    assert!(read < 25, "{read} reads for 500 renewals");
    assert_eq!(server.calls("evalsha"), 500);
}

/// Fails if the next claim does not replace a connection that the server closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_is_replaced_transparently() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for _ in 0..50 {
        let _: () = server.command("CLIENT KILL TYPE normal SKIPME yes");
        complete(&store, &Bytes::new()).await.unwrap();
    }
}

/// Fails if a claim whose acknowledgment was lost is then rejected as a duplicate of itself, or if
/// a call without a response never ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_acknowledgment_was_lost_is_granted() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options()
        .response_timeout(Duration::from_millis(200))
        .connect(&server.url())
        .await
        .unwrap();
    complete(&store, &Bytes::new()).await.unwrap();
    let (id, claim) = (key(), request());
    // The server holds the claim back for longer than the store waits, and executes it before the
    // store sends it again.
    let _: () = server.command("CLIENT PAUSE 300 ALL");
    let started = Instant::now();
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert!(matches!(
        store.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::InFlight { .. })
    ));

    // The call times out long before the server continues.
    let _: () = server.command("CLIENT PAUSE 60000 ALL");
    let started = Instant::now();
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert!(
        error.is_transient() && started.elapsed() < Duration::from_secs(55),
        "{}",
        describe(&error)
    );
}

/// Fails if an error shows a secret of the URL, or does not explain how to correct the URL.
#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_password() {
    let server = Server::start(IN_MEMORY);
    let _: () = server.command("CONFIG SET requirepass right");
    let port = server.port;
    let mut messages = Vec::new();
    for (url, needle) in [
        (format!("redis://user:hunter2@127.0.0.1:{port}/"), "authentication"),
        ("redis://:hunter2@127.0.0.1:1/".to_owned(), "refused"),
        ("redis://:hunter2@127.0.0.1:port/".to_owned(), "URL"),
        ("redis+sentinel://:hunter2@127.0.0.1:1/payments".to_owned(), ""),
        ("redis+sentinel://:hunter2@127.0.0.1:1/".to_owned(), "names the master"),
        ("redis+sentinel://127.0.0.1:1/payments?password=hunter2".to_owned(), "sentinel_password"),
        (format!("redis+cluster://:hunter2@127.0.0.1:{port}"), ""),
        ("redis://127.0.0.1:1/?protocol=hunter2".to_owned(), "`protocol`"),
        ("redis+other://:hunter2@127.0.0.1".to_owned(), "redis+cluster"),
    ] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        let message = describe(&error);
        assert!(message.to_lowercase().contains(&needle.to_lowercase()), "{message}");
        messages.push(message);
    }
    let store = RedisStore::connect(&format!("redis://:right@127.0.0.1:{port}/")).await.unwrap();
    messages.push(format!("{store:?}"));
    assert!(
        messages.iter().all(|message| !message.contains("hunter2") && !message.contains("right")),
        "{messages:#?}"
    );
}

/// Fails if a URL does not open the store, or if a TLS URL fails without naming the feature.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_opens_the_store() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.purge(1_000).await.unwrap(), 0);
    assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
    if cfg!(not(feature = "tls")) {
        for url in
            ["rediss://127.0.0.1", "rediss+sentinel://127.0.0.1/a", "rediss+cluster://127.0.0.1"]
        {
            let error = RedisStore::connect(url).await.unwrap_err();
            assert!(describe(&error).contains("`redis-tls`"), "{}", describe(&error));
        }
    }
}

/// Fails if one late response makes concurrent calls fail, instead of making them use a new
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_slow_response_fails_no_claim() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options()
        .response_timeout(Duration::from_millis(200))
        .connect(&server.url())
        .await
        .unwrap();
    complete(&store, &Bytes::new()).await.unwrap();
    let connections =
        || server.info("total_connections_received").unwrap().parse::<usize>().unwrap();
    // On a busy machine the claims may be sent after the pause.
    for _ in 0..20 {
        let before = connections();
        let _: () = server.command("CLIENT PAUSE 350 ALL");
        let claims: Vec<_> = (0..50)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.claim(&key(), &request()).await })
            })
            .collect();
        for claim in claims {
            assert_eq!(claim.await.unwrap().unwrap(), GRANTED);
        }
        if connections() > before + 2 {
            return;
        }
    }
    panic!("the responses were never late");
}

/// Fails if connections or sent commands accumulate while a server hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_hanging_server_do_not_accumulate() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options()
        .response_timeout(Duration::from_millis(300))
        .connect(&server.url())
        .await
        .unwrap();
    let (id, claim) = (key(), request().with_lease(Duration::from_secs(300)));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let renewal = Renewal::new(lease(id, &claim), claim.lease);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    wait_until("one connection for work and one for renewals", || established(server.port) == 2);
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
            // An abandoned connection is closed when the task that drives it is polled.
            most = most.max(established(server.port));
            wait_until("abandoned connections are closed", || established(server.port) <= 2);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!(
            "round {round}: {failed} failed, the slowest took {slowest:?}, {most} connections at \
             most"
        );
        // On a busy machine they are closed late. With one connection per call there would be
        // twenty.
        assert!(failed >= 40 && most < 16, "{failed} {most}");
        server.resume();
        let back = Instant::now();
        while store.claim(&key(), &request()).await.is_err()
            || store.renew(&[renewal]).await.is_err()
        {
            assert!(back.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        wait_until("one connection for work and one for renewals", || {
            established(server.port) == 2
        });
    }
}

/// Fails if the store takes a blocked runtime for a server that hangs, which would make the calls
/// of other runtimes fail.
#[test]
fn a_blocked_runtime_does_not_disturb_the_connections_of_others() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let server = Server::start(IN_MEMORY);
    let blocked = runtime();
    let options = RedisStore::options().response_timeout(TIMEOUT);
    let store = blocked.block_on(options.connect(&server.url())).unwrap();
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
    wait_until("the other runtime works", || done.load(Ordering::Relaxed) > 0);
    let connections =
        || server.info("total_connections_received").unwrap().parse::<usize>().unwrap();
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
            // This task runs before the one that writes the claims to the socket.
            tokio::spawn(async { std::thread::sleep(TIMEOUT * 2) });
            for claim in claims {
                assert_eq!(claim.await.unwrap().unwrap(), GRANTED);
            }
        });
        // The query uses one connection itself.
        undisturbed += usize::from(connections() == before + 1);
    }
    // On a busy machine the server may be late in some rounds.
    assert!(undisturbed > 0, "in no round was the server considered responsive");
    ended.store(true, Ordering::Relaxed);
    other.join().unwrap();
    assert!(done.load(Ordering::Relaxed) > 50, "{done:?}");
}

#[test]
fn calls_outside_of_a_tokio_runtime_are_refused_with_that_reason() {
    let server = Server::start(IN_MEMORY);
    without_runtime::assert_done_or_refused(
        "connect",
        without_runtime::call(RedisStore::connect(&server.url())),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(RedisStore::connect(&server.url())).unwrap();
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_millis(10));
    let waiting = runtime.block_on(options.connect(&server.url())).unwrap();
    without_runtime::call_all(&store);
    without_runtime::call_all(&waiting);
    runtime.block_on(store.look_up(&key())).unwrap();
    without_runtime::call_all(&store);
}
