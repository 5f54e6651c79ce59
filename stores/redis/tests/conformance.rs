//! The conformance suite, and the comparison with the state machine.

use std::{sync::Arc, time::Duration};

use idempotent_core::conformance::{Action, TestedStore, check, follow, history};
use idempotent_redis::RedisStore;
use tokio::task::JoinSet;

use super::helpers::open_with;
use test_support::{
    histories::assert_not_vacuous,
    servers::redis::Cluster,
    subjects::redis::{ShiftedRedis, TestServer, unique_prefix},
};

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_on_a_server() {
    let server = TestServer::start();
    check(|| server.subject(false)).await;
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_when_it_reads_what_it_completes() {
    let server = TestServer::start();
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
async fn the_store_follows_the_state_machine_when_it_reads_what_it_completes() {
    follow_the_state_machine(true).await;
}

/// Fails at the first step at which the store and the state machine differ.
async fn follow_the_state_machine(conditional: bool) {
    let server = TestServer::start();
    let mut following = JoinSet::new();
    // Several at once, because a single one would outlast all other tests.
    for first in [0, 50, 100, 150] {
        let subject = Arc::new(server.subject(conditional).await);
        assert!(subject.set_back(Duration::ZERO).await);
        following.spawn(async move {
            let mut outcomes = Vec::new();
            for seed in first..first + 50 {
                println!("seed {seed}");
                outcomes.extend(follow(subject.clone(), &history_with_purges(seed, 100)).await);
                subject.forget();
            }
            outcomes
        });
    }
    assert_not_vacuous(&following.join_all().await.concat(), 25);
}
