//! The conformance suite, and the comparison with the state machine.

use std::sync::Arc;

use idempotent_core::{
    conformance::{Action, TestedStore, check, follow, history},
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::EventOutcome,
};
use idempotent_redis::{RedisStore, internals::with_large_recordings_from};

use super::helpers::open_with;
use test_support::{
    servers::redis::{Cluster, IN_MEMORY, Server},
    subjects::redis::ShiftedRedis,
};

/// A private server, or the one that `REDIS_URL` names.
pub(crate) struct TestServer {
    url: String,
    _own: Option<Server>,
}

impl TestServer {
    pub(crate) fn server() -> Self {
        match std::env::var("REDIS_URL") {
            Ok(url) => Self { url, _own: None },
            Err(_) => {
                let own = Server::start(IN_MEMORY);
                Self { url: own.url(), _own: Some(own) }
            }
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A store, which stores all recordings without a script if `conditional` and the server can.
    pub(crate) async fn subject(&self, conditional: bool) -> ShiftedRedis {
        let prefix = unique_prefix();
        let options = RedisStore::options().key_prefix(&prefix);
        let store = options.connect(&self.url).await.unwrap();
        let store = if conditional { with_large_recordings_from(store, 0) } else { store };
        let raw = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        ShiftedRedis::new(store, prefix, Box::new(raw))
    }
}

fn unique_prefix() -> String {
    format!("test:{:x}:", fastrand::u64(..))
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_on_a_server() {
    let server = TestServer::server();
    check(|| server.subject(false)).await;
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_without_the_script_that_completes() {
    let server = TestServer::server();
    check(|| server.subject(true)).await;
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_on_a_cluster() {
    let cluster = Cluster::start();
    check(|| async {
        let prefix = unique_prefix();
        let store = open_with(RedisStore::options().key_prefix(&prefix), &cluster.url()).await;
        let raw = cluster.client().get_connection().unwrap();
        ShiftedRedis::new(store, prefix, Box::new(raw))
    })
    .await;
}

/// A history with a purge after each advance, because Redis removes expired keys by itself.
fn history_with_purges(seed: u64, steps: usize) -> Vec<Action> {
    let purge = |step| if step == Action::Advance { vec![step, Action::Purge] } else { vec![step] };
    history(seed, steps).into_iter().flat_map(purge).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine() {
    follow_the_state_machine(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_without_the_script_that_completes() {
    follow_the_state_machine(true).await;
}

/// Fails at the first step at which the store and the state machine differ.
async fn follow_the_state_machine(conditional: bool) {
    let server = TestServer::server();
    let subject = Arc::new(server.subject(conditional).await);
    assert!(subject.set_back(std::time::Duration::ZERO).await);
    let mut outcomes = Vec::new();
    for seed in 0..200 {
        println!("seed {seed}");
        outcomes.extend(follow(subject.clone(), &history_with_purges(seed, 100)).await);
        subject.forget();
    }
    let count =
        |is: fn(&EventOutcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    for (what, seen) in [
        (
            "takeovers",
            count(|outcome| {
                matches!(outcome, EventOutcome::Claim(ClaimOutcome::Granted { attempt: 2.. }))
            }),
        ),
        (
            "replays",
            count(|outcome| {
                matches!(
                    outcome,
                    EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_)))
                )
            }),
        ),
        (
            "held",
            count(|outcome| {
                matches!(
                    outcome,
                    EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. }))
                )
            }),
        ),
        (
            "mismatches",
            count(|outcome| {
                matches!(
                    outcome,
                    EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. }))
                )
            }),
        ),
        ("passed", count(|outcome| *outcome == EventOutcome::Fence(Fence::Passed))),
        ("fenced", count(|outcome| *outcome == EventOutcome::Fence(Fence::Fenced))),
        ("resolved", count(|outcome| *outcome == EventOutcome::Resolve(ResolveOutcome::Resolved))),
        ("purged", count(|outcome| *outcome == EventOutcome::Purge(true))),
    ] {
        println!("{what}: {seen}");
        assert!(seen >= 25, "only {seen} {what}");
    }
}
