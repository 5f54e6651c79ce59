//! Servers that speak the protocol of Redis and lack what the store needs, or can lose what they
//! have acknowledged.

use std::time::Duration;

use idempotent_core::StoreError;
use idempotent_redis::RedisStore;

use super::helpers::describe;
use test_support::{
    log,
    servers::redis::{DURABLE, IN_MEMORY, Server},
};

async fn checked(url: &str) -> Result<(), StoreError> {
    RedisStore::connect(url).await?.check().await
}

/// The warnings about a server since the test began to log.
fn warnings(server: &Server) -> Vec<String> {
    let address = format!("127.0.0.1:{}\"", server.port);
    let log = log::captured();
    let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(&address));
    lines.map(str::to_owned).collect()
}

/// Fails if a command that a managed service has taken away is reported without its name, or only
/// by the first request.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_server_does_not_have_is_named() {
    for command in ["INFO", "SET", "EVAL", "EVALSHA", "PEXPIRETIME", "XADD", "SCAN", "ZRANGE"] {
        let server = Server::start(&[IN_MEMORY, &["--rename-command", command, ""]].concat());
        let error = checked(&server.url()).await.unwrap_err();
        let message = describe(&error);
        assert!(!error.is_transient() && !error.is_unreadable(), "{message}");
        let named = format!("does not execute `{command}`");
        assert!(message.contains(&named) && message.contains("use Redis 7.0"), "{message}");
    }
}

/// Fails if a server that loses its records at a restart is not reported by its setting.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_an_append_only_file_is_warned_of() {
    log::capture();
    for (args, expected) in [(IN_MEMORY, 1), (&["--save", "3600 1"], 1), (DURABLE, 0)] {
        let server = Server::start(args);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        for _ in 0..2 {
            store.check().await.unwrap();
        }
        let warnings = warnings(&server);
        assert_eq!(warnings.len(), expected, "{args:?}: {warnings:?}");
        assert!(warnings.iter().all(|line| line.contains("set `appendonly yes`")), "{warnings:?}");
    }
}

/// Fails if the check does not ask how often the append-only file is written to disk, or needs an
/// answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_only_file_that_is_not_synced_is_warned_of() {
    log::capture();
    const UNSYNCED: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "no"];
    let server = Server::start(UNSYNCED);
    checked(&server.url()).await.unwrap();
    let found = warnings(&server);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`appendfsync no`"), "{found:?}");

    // A service that has no `CONFIG`, and a user who may not use it.
    let server = Server::start(&[UNSYNCED, &["--rename-command", "CONFIG", ""]].concat());
    checked(&server.url()).await.unwrap();
    assert_eq!(warnings(&server), Vec::<String>::new());
    let server = Server::start(UNSYNCED);
    let _: () = server.command("ACL SETUSER limited reset on >secret ~* +@all -config");
    checked(&format!("redis://limited:secret@127.0.0.1:{}/", server.port)).await.unwrap();
    assert_eq!(warnings(&server), Vec::<String>::new());
}

/// Fails if replicas that may lack acknowledged claims when they are promoted are not reported.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_no_claim_waits_for_are_warned_of() {
    log::capture();
    let server = Server::start(DURABLE);
    let _replica = server.replica(DURABLE);
    let waiting = RedisStore::options().wait_for_replicas(1, Duration::from_secs(10));
    waiting.connect(&server.url()).await.unwrap().check().await.unwrap();
    assert_eq!(warnings(&server), Vec::<String>::new());
    checked(&server.url()).await.unwrap();
    let found = warnings(&server);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("set `wait_for_replicas`"), "{found:?}");
}
