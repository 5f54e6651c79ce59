//! The privileges of the URL's user.

use std::time::{Duration, Instant};

use idempotent_core::{
    StoreError,
    protocol::{RenewOutcome, Renewal},
    store::{Store, redis::RedisStore},
};

use super::work::{GRANTED, complete, describe, key, lease, request};
use test_support::servers::redis::{Cluster, FORGETFUL, Server};

const NEEDED: [&str; 13] = [
    "info",
    "set",
    "get",
    "getrange",
    "del",
    "pttl",
    "pexpiretime",
    "time",
    "eval",
    "evalsha",
    "wait",
    "cluster|slots",
    "cluster|info",
];

fn grant(server: &Server, keys: &str, commands: &[&str]) {
    let commands: String = commands.iter().map(|command| format!(" +{command}")).collect();
    let _: () = server.ask(&format!("ACL SETUSER limited reset on >secret {keys}{commands}"));
}

fn without(lacking: &str) -> Vec<&'static str> {
    NEEDED.into_iter().filter(|command| *command != lacking).collect()
}

/// Fails if the store opens with a user that lacks a required command or key pattern: a handler
/// would run, and its response would not be stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_privilege_is_found_before_the_first_claim() {
    let server = Server::start(FORGETFUL);
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port);
    let checked = async |waiting: bool| {
        let store = RedisStore::connect(&url).await?.key_prefix("payments:");
        let store =
            if waiting { store.wait_for_replicas(1, Duration::from_millis(1)) } else { store };
        store.check().await.map(|()| store)
    };
    for lacking in NEEDED {
        grant(&server, "~payments:*", &without(lacking));
        let missed = !lacking.starts_with("cluster|");
        match checked(true).await {
            Ok(_) => assert!(!missed, "{lacking} is not missed"),
            Err(error) => {
                let message = describe(&error);
                assert!(missed && !error.is_transient() && !error.is_unreadable(), "{message}");
                assert!(
                    message.contains("ACL SETUSER") && message.contains(&format!("+{lacking}")),
                    "{lacking}: {message}"
                );
            }
        }
    }
    // A store that does not wait for replicas needs no `WAIT`.
    grant(&server, "~payments:*", &without("wait"));
    let store = checked(false).await.unwrap();
    complete(&store, &bytes::Bytes::new()).await.unwrap();

    for keys in ["~other:*", "%R~payments:*", "%W~payments:*", "resetkeys"] {
        grant(&server, keys, &NEEDED);
        let error = checked(true).await.unwrap_err();
        assert!(!error.is_transient(), "{}", describe(&error));
        assert!(describe(&error).contains("~payments:*"), "{keys}: {}", describe(&error));
    }
}

/// Fails if the error does not name the privilege that only a database other than 0 needs.
#[tokio::test(flavor = "multi_thread")]
async fn another_database_needs_one_more_privilege() {
    let server = Server::start(FORGETFUL);
    let url = format!("redis://limited:secret@127.0.0.1:{}/1", server.port);
    grant(&server, "~idempotency:*", &NEEDED);
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert!(
        !error.is_transient() && describe(&error).contains("`ACL SETUSER <user> +select`"),
        "{}",
        describe(&error)
    );
    grant(&server, "~idempotency:*", &[NEEDED.as_slice(), &["select"]].concat());
    RedisStore::connect(&url).await.unwrap().check().await.unwrap();
}

/// Fails if the check leaves anything behind, or if it fails because the server is full or has no
/// replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_changes_nothing() {
    let server = Server::start(FORGETFUL);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    store.check().await.unwrap();
    assert_eq!(server.ask::<u64>("DBSIZE"), 0);
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
    for setting in ["maxmemory 1", "min-replicas-to-write 1"] {
        let _: () = server.ask(&format!("CONFIG SET {setting}"));
        store.check().await.unwrap();
    }
    assert_eq!(server.ask::<u64>("DBSIZE"), 0);
}

/// Returns why the check of a new store fails. A node that is too busy to respond in time is
/// skipped.
async fn refused(url: &str) -> StoreError {
    loop {
        let began = Instant::now();
        let Err(error) = RedisStore::connect(url).await.unwrap().check().await else {
            assert!(began.elapsed() > Duration::from_millis(500), "it is not refused");
            continue;
        };
        return error;
    }
}

/// Fails if only some of a cluster's nodes are checked.
#[tokio::test(flavor = "multi_thread")]
async fn each_node_of_a_cluster_is_checked() {
    let cluster = Cluster::start();
    let hosts: Vec<_> = cluster.0.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
    let url = format!("redis+cluster://limited:secret@{}", hosts.join(","));
    for lacking in 0..3 {
        for (at, node) in cluster.0.iter().enumerate() {
            let all = [NEEDED.as_slice(), &["asking"]].concat();
            let commands = if at == lacking {
                [without("evalsha").as_slice(), &["asking"]].concat()
            } else {
                all
            };
            grant(node, "~idempotency:*", &commands);
        }
        let error = refused(&url).await;
        assert!(
            !error.is_transient() && describe(&error).contains("+evalsha"),
            "{}",
            describe(&error)
        );
    }
    for node in &cluster.0 {
        grant(node, "~{payments}*", &[NEEDED.as_slice(), &["asking"]].concat());
    }
    let store = RedisStore::connect(&url).await.unwrap();
    assert!(store.check().await.is_err());
    let store = store.key_prefix("{payments}");
    store.check().await.unwrap();
    complete(&store, &bytes::Bytes::new()).await.unwrap();
    for node in &cluster.0 {
        grant(node, "~{payments}*", &NEEDED);
    }
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("+asking"), "{}", describe(&error));
    for lacking in ["cluster|slots", "cluster|info"] {
        for node in &cluster.0 {
            grant(node, "~{payments}*", &[without(lacking).as_slice(), &["asking"]].concat());
        }
        let error = RedisStore::connect(&url).await.unwrap_err();
        let granted = format!("+{lacking}");
        assert!(
            !error.is_transient() && describe(&error).contains(&granted),
            "{}",
            describe(&error)
        );
    }
}

/// Fails if a permanent misconfiguration is reported as an outage, or an outage as permanent.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_privilege_is_permanent_and_a_crowded_server_is_not() {
    let server = Server::start(FORGETFUL);
    grant(&server, "~idempotency:*", &NEEDED);
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port);
    let store = RedisStore::connect(&url).await.unwrap();
    store.check().await.unwrap();
    let (id, claim) = (key(), request());
    let lease = lease(id, &claim);
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    grant(&server, "~idempotency:*", &without("evalsha"));
    let renewal = Renewal::new(lease, claim.lease);
    for error in [
        store.complete(&lease, &bytes::Bytes::new()).await.unwrap_err(),
        store.release(&lease).await.unwrap_err(),
        store.renew(&[renewal]).await.unwrap_err(),
        store.look_up(&id).await.unwrap_err(),
    ] {
        assert!(!error.is_transient() && !error.is_unreadable(), "{}", describe(&error));
    }
    grant(&server, "~other:*", &NEEDED);
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert!(!error.is_transient(), "{}", describe(&error));
    grant(&server, "~idempotency:*", &NEEDED);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);

    let mut admin = server.client().get_connection().unwrap();
    let _: () = test_support::servers::redis::ask(&mut admin, "CONFIG SET maxclients 1");
    for url in [&url, &server.url()] {
        let error = RedisStore::connect(url).await.unwrap_err();
        assert!(error.is_transient(), "{}", describe(&error));
    }
    let _: () = test_support::servers::redis::ask(&mut admin, "CONFIG SET maxclients 1000");
    let error = RedisStore::connect(&url.replace("secret", "wrong")).await.unwrap_err();
    assert!(!error.is_transient(), "{}", describe(&error));
}
