//! The privileges that the store's Redis user needs.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use idempotent_core::{
    Abandoned, RecordId, ShortText, StoreError,
    history::Kind,
    protocol::{
        Contents, Note, RecordFilter, Removal, RenewOutcome, Renewal, Replacement, Resolution,
    },
    store::{Administration, Store},
};
use idempotent_redis::{RedisStore, internals::forget_first_claims};

use super::helpers::{GRANTED, complete, describe, key, lease, request};
use test_support::{
    decision,
    servers::redis::{Cluster, IN_MEMORY, Server, command},
};

const REQUIRED_COMMANDS: [&str; 22] = [
    "info",
    "set",
    "get",
    "getrange",
    "del",
    "pttl",
    "pexpiretime",
    "zadd",
    "zrem",
    "zscore",
    "zrange",
    "xadd",
    "xrevrange",
    "scan",
    "dbsize",
    "time",
    "eval",
    "evalsha",
    "wait",
    "cluster|slots",
    "cluster|info",
    "cluster|nodes",
];

fn grant(server: &Server, keys: &str, commands: &[&str]) {
    let commands: String = commands.iter().map(|command| format!(" +{command}")).collect();
    let _: () = server.command(&format!("ACL SETUSER limited reset on >secret {keys}{commands}"));
}

fn all_except(lacking: &str) -> Vec<&'static str> {
    REQUIRED_COMMANDS.into_iter().filter(|command| *command != lacking).collect()
}

/// Fails if the store opens with a user that lacks a required command or key pattern: a handler
/// would run, and its response would not be stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_privilege_is_found_before_the_first_claim() {
    let server = Server::start(IN_MEMORY);
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port);
    let checked = async |waiting: bool| {
        let options = RedisStore::options()
            .key_prefix("payments:")
            .wait_for_replicas(waiting.into(), Duration::from_millis(1));
        let store = options.connect(&url).await?;
        store.check().await.map(|()| store)
    };
    for lacking in REQUIRED_COMMANDS {
        grant(&server, "~payments:*", &all_except(lacking));
        let required = !lacking.starts_with("cluster|");
        match checked(true).await {
            Ok(_) => assert!(!required, "{lacking} is missing and the check passes"),
            Err(error) => {
                let message = describe(&error);
                assert!(required && !error.is_transient() && !error.is_unreadable(), "{message}");
                assert!(
                    message.contains("ACL SETUSER") && message.contains(&format!("+{lacking}")),
                    "{lacking}: {message}"
                );
            }
        }
    }
    // A store that does not wait for replicas needs no `WAIT`.
    grant(&server, "~payments:*", &all_except("wait"));
    let store = checked(false).await.unwrap();
    complete(&store, &bytes::Bytes::new()).await.unwrap();

    for keys in ["~other:*", "%R~payments:*", "%W~payments:*", "resetkeys"] {
        grant(&server, keys, &REQUIRED_COMMANDS);
        let error = checked(true).await.unwrap_err();
        assert!(!error.is_transient(), "{}", describe(&error));
        assert!(describe(&error).contains("~payments:*"), "{keys}: {}", describe(&error));
    }
}

/// Calls every method of the store.
async fn call_all(store: &RedisStore) -> Result<(), StoreError> {
    let (id, claim) = (key(), request().with_abandoned(Abandoned::Hold));
    let (own, audit) = (lease(id, &claim), decision(&id));
    store.claim(&id, &claim).await?;
    store.renew(&[Renewal::new(own, claim.lease)]).await?;
    let input = Note::input(bytes::Bytes::from_static(b"input"));
    store.note(&own, &input).await?;
    store.resumable(&ShortText::EMPTY, None, 10).await?;
    store.look_up(&id).await?;
    store.append_history(&id, Kind::Fenced).await?;
    let replacement = Replacement::new(own.owner, Contents::default(), Contents::default());
    store.replace(&id, &replacement).await?;
    store.abandon(&own, Abandoned::Hold).await?;
    store.resolve(&id, &own.owner, &Resolution::Release, &audit).await?;
    for large in [0, 64 * 1024] {
        complete(store, &bytes::Bytes::from(vec![1; large])).await?;
    }
    let (other, claim) = (key(), request());
    store.claim(&other, &claim).await?;
    store.release(&lease(other, &claim)).await?;
    store.remove(&id, &Removal::of_any(own.owner), &audit).await?;
    store.watched(&RecordFilter::default(), None, 10).await?;
    store.scan(&RecordFilter::default(), None, 10).await?;
    let (first, last) = RecordId::range("0").unwrap();
    store.find(&first, &last, 10).await?;
    store.count().await?;
    store.audit(None, 10).await?;
    store.purge(10).await.map(drop)
}

/// Fails if a call needs a privilege that the check does not ask for.
#[tokio::test(flavor = "multi_thread")]
async fn the_privileges_that_are_checked_suffice_for_every_call() {
    let server = Server::start(IN_MEMORY);
    let _replica = server.replica(IN_MEMORY);
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port);
    grant(&server, "~idempotency:*", &REQUIRED_COMMANDS);
    for replicas in [0, 1] {
        let options = RedisStore::options().wait_for_replicas(replicas, Duration::from_secs(10));
        let store = options.connect(&url).await.unwrap();
        store.check().await.unwrap();
        // Without a record: a list drops it, and only logs the error if it cannot.
        let _: () = server.command(&format!("ZADD idempotency:watched 1 {}", "a".repeat(32)));
        call_all(&store).await.map_err(|error| describe(&error)).unwrap();
        assert_eq!(server.command::<u64>("ZCARD idempotency:watched"), 0);
    }
    let denied: Vec<HashMap<String, redis::Value>> = server.command("ACL LOG");
    let denied = denied.iter().map(|entry| redis::from_redis_value_ref(&entry["object"]).unwrap());
    let mut denied: BTreeSet<String> = denied.collect();
    // What the client library tells the server of itself.
    denied.remove("client|setinfo");
    assert_eq!(denied, BTreeSet::new());
}

/// Fails if the error does not name the privilege that only a database other than 0 needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_other_than_0_needs_one_more_privilege() {
    let server = Server::start(IN_MEMORY);
    let url = format!("redis://limited:secret@127.0.0.1:{}/1", server.port);
    grant(&server, "~idempotency:*", &REQUIRED_COMMANDS);
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert!(
        !error.is_transient() && describe(&error).contains("`ACL SETUSER <user> +select`"),
        "{}",
        describe(&error)
    );
    grant(&server, "~idempotency:*", &[REQUIRED_COMMANDS.as_slice(), &["select"]].concat());
    RedisStore::connect(&url).await.unwrap().check().await.unwrap();
}

/// Fails if the check writes anything, or if it fails because the server is full or has no replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_changes_nothing() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    store.check().await.unwrap();
    assert_eq!(server.command::<u64>("DBSIZE"), 0);
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
    for setting in ["maxmemory 1", "min-replicas-to-write 1"] {
        let _: () = server.command(&format!("CONFIG SET {setting}"));
        store.check().await.unwrap();
    }
    assert_eq!(server.command::<u64>("DBSIZE"), 0);
}

/// The error of the check of a new store. The check skips a node that is too busy to respond in
/// time; then this tries again.
async fn check_error(url: &str) -> StoreError {
    loop {
        let began = Instant::now();
        let Err(error) = RedisStore::connect(url).await.unwrap().check().await else {
            assert!(began.elapsed() > Duration::from_millis(500), "the check passes");
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
            let all = [REQUIRED_COMMANDS.as_slice(), &["asking"]].concat();
            let commands = if at == lacking {
                [all_except("evalsha").as_slice(), &["asking"]].concat()
            } else {
                all
            };
            grant(node, "~idempotency:*", &commands);
        }
        let error = check_error(&url).await;
        assert!(
            !error.is_transient() && describe(&error).contains("+evalsha"),
            "{}",
            describe(&error)
        );
    }
    for node in &cluster.0 {
        grant(node, "~{payments}*", &[REQUIRED_COMMANDS.as_slice(), &["asking"]].concat());
    }
    let store = RedisStore::connect(&url).await.unwrap();
    assert!(store.check().await.is_err());
    let options = RedisStore::options().key_prefix("{payments}");
    let store = options.connect(&url).await.unwrap();
    store.check().await.unwrap();
    complete(&store, &bytes::Bytes::new()).await.unwrap();
    for node in &cluster.0 {
        grant(node, "~{payments}*", &REQUIRED_COMMANDS);
    }
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("+asking"), "{}", describe(&error));
    for lacking in ["cluster|slots", "cluster|info", "cluster|nodes"] {
        for node in &cluster.0 {
            grant(node, "~{payments}*", &[all_except(lacking).as_slice(), &["asking"]].concat());
        }
        let error = match RedisStore::options().key_prefix("{payments}").connect(&url).await {
            Ok(store) => store.check().await.unwrap_err(),
            Err(error) => error,
        };
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
async fn a_revoked_privilege_is_permanent_and_too_many_clients_are_transient() {
    let server = Server::start(IN_MEMORY);
    grant(&server, "~idempotency:*", &REQUIRED_COMMANDS);
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port);
    let store = RedisStore::connect(&url).await.unwrap();
    store.check().await.unwrap();
    let (id, claim) = (key(), request());
    let lease = lease(id, &claim);
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    forget_first_claims(&store);
    grant(&server, "~idempotency:*", &all_except("evalsha"));
    let renewal = Renewal::new(lease, claim.lease);
    for error in [
        store.complete(&lease, &bytes::Bytes::new()).await.unwrap_err(),
        store.release(&lease).await.unwrap_err(),
        store.renew(&[renewal]).await.unwrap_err(),
        store.look_up(&id).await.unwrap_err(),
    ] {
        assert!(!error.is_transient() && !error.is_unreadable(), "{}", describe(&error));
    }
    grant(&server, "~other:*", &REQUIRED_COMMANDS);
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert!(!error.is_transient(), "{}", describe(&error));
    grant(&server, "~idempotency:*", &REQUIRED_COMMANDS);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);

    let mut admin = server.client().get_connection().unwrap();
    let _: () = command(&mut admin, "CONFIG SET maxclients 1");
    for url in [&url, &server.url()] {
        let error = RedisStore::connect(url).await.unwrap_err();
        assert!(error.is_transient(), "{}", describe(&error));
    }
    let _: () = command(&mut admin, "CONFIG SET maxclients 1000");
    let error = RedisStore::connect(&url.replace("secret", "wrong")).await.unwrap_err();
    assert!(!error.is_transient(), "{}", describe(&error));
}
