//! The errors of a real server: each is temporary or not, and the store works again once its cause
//! is gone.

use std::{
    thread,
    time::{Duration, Instant},
};

use idempotent_core::{Lease, StoreError, protocol::Renewal, store::Store};
use idempotent_redis::{RedisStore, internals::alter_redis};
use test_support::{
    WAIT_LIMIT,
    servers::redis::{IN_MEMORY, Server, wait_until},
};
use tokio::time::sleep;

use super::helpers::{GRANTED, complete, describe, key, lease, request};

const RELEASE: &str = include_str!("../src/lua/release.lua");
const ENDLESS: &str = "while true do end";

fn assert_temporary(error: &StoreError, text: &str) {
    assert!(error.is_transient() && describe(error).contains(text), "{text}: {}", describe(error));
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::connect(&server.url()).await.unwrap()
}

/// Fails if claims are not granted again, at the latest after the pause between two attempts to
/// connect.
async fn assert_claims_are_granted(store: &RedisStore) {
    let started = Instant::now();
    loop {
        match store.claim(&key(), &request()).await {
            Ok(outcome) => return assert_eq!(outcome, GRANTED),
            Err(error) => assert!(started.elapsed() < WAIT_LIMIT, "{}", describe(&error)),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn send(server: &Server, command: &str) {
    let _: redis::Value = server.command(command);
}

async fn assert_claims_fail_until(server: &Server, store: &RedisStore, text: &str, mend: &str) {
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert_temporary(&error, text);
    send(server, mend);
    assert_claims_are_granted(store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_writes_refuses_claims_for_now() {
    let server = Server::start(&[
        "--save",
        "3600 1",
        "--appendonly",
        "no",
        "--enable-protected-configs",
        "yes",
    ]);
    let store = open(&server).await;
    send(&server, "CONFIG SET min-replicas-to-write 1");
    assert_claims_fail_until(&server, &store, "NOREPLICAS", "CONFIG SET min-replicas-to-write 0")
        .await;
    send(&server, "CONFIG SET maxmemory 1");
    assert_claims_fail_until(&server, &store, "OOM", "CONFIG SET maxmemory 0").await;
    // A directory in which the server cannot create a file.
    send(&server, "CONFIG SET dir /proc");
    send(&server, "BGSAVE");
    wait_until("saving has failed", || {
        server.info("rdb_last_bgsave_status").as_deref() == Some("err")
    });
    let mend = "CONFIG SET stop-writes-on-bgsave-error no";
    assert_claims_fail_until(&server, &store, "MISCONF", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_a_replica_fails_for_now() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    complete(&store, &bytes::Bytes::new()).await.unwrap();
    for serves_stale_data in ["yes", "no"] {
        send(&server, &format!("CONFIG SET replica-serve-stale-data {serves_stale_data}"));
        // No server listens on this port.
        send(&server, "REPLICAOF 127.0.0.1 1");
        for error in [
            store.look_up(&key()).await.unwrap_err(),
            store.release(&Lease { id: key(), owner: request().owner }).await.unwrap_err(),
        ] {
            assert_temporary(&error, "replica");
        }
        assert_claims_fail_until(&server, &store, "replica", "REPLICAOF NO ONE").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_replicas_that_a_role_change_ends_fails_for_now() {
    let server = Server::start(IN_MEMORY);
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_secs(60));
    let store = options.connect(&server.url()).await.unwrap();
    let claim = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&key(), &request()).await }
    });
    wait_until("the claim waits", || server.info("blocked_clients").as_deref() == Some("1"));
    send(&server, "REPLICAOF 127.0.0.1 1");
    assert_temporary(&claim.await.unwrap().unwrap_err(), "UNBLOCKED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_and_a_script_that_is_killed_fail_for_now() {
    let server = Server::start(IN_MEMORY);
    send(&server, "CONFIG SET busy-reply-threshold 1");
    let options = RedisStore::options().response_timeout(Duration::from_secs(20));
    let store = options.connect(&server.url()).await.unwrap();
    let stuck = alter_redis(store.clone(), &[(RELEASE, ENDLESS)]);
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let lease = lease(id, &claim);
    let killed = tokio::spawn(async move { stuck.release(&lease).await });
    let busy = || {
        let mut connection = server.client().get_connection().unwrap();
        redis::cmd("GET").arg("key").query::<Option<String>>(&mut connection).is_err()
    };
    wait_until("the server is busy", busy);
    // Another store, since the connection of the first one waits for the script.
    let other = RedisStore::connect(&server.url()).await;
    if let Ok(other) = &other {
        assert_temporary(&other.claim(&key(), &request()).await.unwrap_err(), "BUSY");
    } else {
        assert_temporary(&other.unwrap_err(), "BUSY");
    }
    send(&server, "SCRIPT KILL");
    assert_temporary(&killed.await.unwrap().unwrap_err(), "killed");
    assert_eq!(store.release(&lease).await.unwrap(), idempotent_core::protocol::Fence::Passed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_fails_for_now() {
    let delay = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];
    let mut server = Server::start(&[IN_MEMORY, &delay].concat());
    let store = open(&server).await;
    for _ in 0..100 {
        complete(&store, &bytes::Bytes::new()).await.unwrap();
    }
    let _: () = server.command("SAVE");
    let restarted = thread::spawn(move || {
        server.restart();
        server
    });
    let mut loading = false;
    while !restarted.is_finished() {
        if let Err(error) = store.claim(&key(), &request()).await {
            assert!(error.is_transient(), "{}", describe(&error));
            loading |= describe(&error).contains("loading the dataset");
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(loading, "the store has not met the error");
    let _server = restarted.join().unwrap();
    assert_claims_are_granted(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_many_clients_fails_for_now() {
    for password in ["", ":secret@"] {
        let server = Server::start(IN_MEMORY);
        let mut control = server.client().get_connection().unwrap();
        let mut set = |name: &str, value: &str| {
            let _: () =
                redis::cmd("CONFIG").arg(&["SET", name, value]).query(&mut control).unwrap();
        };
        if !password.is_empty() {
            set("requirepass", "secret");
        }
        let url = format!("redis://{password}127.0.0.1:{}/", server.port);
        let store = RedisStore::connect(&url).await.unwrap();
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        set("maxclients", "2");
        // Renewals have another connection.
        let renewals = [Renewal::new(lease(id, &claim), claim.lease)];
        let error = store.renew(&renewals).await.unwrap_err();
        assert!(error.is_transient(), "{}", describe(&error));
        set("maxclients", "100");
        assert_claims_are_granted(&store).await;
        let started = Instant::now();
        while let Err(error) = store.renew(&renewals).await {
            assert!(started.elapsed() < WAIT_LIMIT, "{}", describe(&error));
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Fails if the store keeps a connection without the rights that its user has by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_password_has_to_be_corrected() {
    let server = Server::start(IN_MEMORY);
    send(&server, "ACL SETUSER default resetpass >secret");
    for password in ["", ":wrong@"] {
        let url = format!("redis://{password}127.0.0.1:{}/", server.port);
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert!(!error.is_transient(), "{}", describe(&error));
    }
}
