//! A store that several tokio runtimes share.

use std::{sync::mpsc, thread, time::Duration};

use idempotent_core::{Store, protocol::ClaimOutcome};
use idempotent_postgres::PostgresStore;
use tokio::runtime::{Builder, Runtime};

use crate::helpers::{id, request, store};
use test_support::without_runtime;

/// How long a worker computes unless it is stopped: longer than the other claims take on a busy
/// machine.
const COMPUTING_LIMIT: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn claim(store: &PostgresStore) {
    assert_eq!(store.claim(&id(), &request()).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
}

async fn claim_many(store: &PostgresStore) {
    let claims = (0..30).map(|_| {
        let store = store.clone();
        async move { claim(&store).await }
    });
    claims.collect::<tokio::task::JoinSet<_>>().join_all().await;
}

#[test]
fn a_store_outlives_the_runtime_that_it_was_opened_on() {
    let first = runtime();
    let (store, _) = first.block_on(store());
    first.block_on(claim_many(&store));
    drop(first);
    let second = runtime();
    // Twice: the first claims could get connections that ended with the first runtime.
    for _ in 0..2 {
        second.block_on(claim_many(&store));
        second.block_on(store.migrate()).unwrap();
    }
}

/// A worker that computes until it is stopped, and does not poll its sockets meanwhile.
struct BusyWorker {
    stop: mpsc::Sender<()>,
    working: thread::JoinHandle<bool>,
}

impl BusyWorker {
    /// Returns once the worker is computing.
    fn start(runtime: Runtime) -> Self {
        let (started, has_started) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let working = thread::spawn(move || {
            runtime.block_on(async {
                started.send(()).unwrap();
                stopped.recv_timeout(COMPUTING_LIMIT).is_ok()
            })
        });
        has_started.recv().unwrap();
        Self { stop, working }
    }

    /// Stops the computation; returns whether it was still running.
    fn end(self) -> bool {
        // The worker may have ended by itself.
        let _ = self.stop.send(());
        self.working.join().unwrap()
    }
}

#[test]
fn a_busy_runtime_does_not_delay_another() {
    let busy = runtime();
    let (store, _) = busy.block_on(store());
    busy.block_on(claim_many(&store));
    let busy = BusyWorker::start(busy);
    runtime().block_on(claim_many(&store));
    assert!(busy.end(), "the claims waited for the busy runtime");
}

/// A control: with a plain pool, which has no driver thread, the connection of a busy runtime
/// hangs.
#[test]
fn a_busy_runtime_delays_the_connections_of_a_plain_pool() {
    let busy = runtime();
    let (_store, url) = busy.block_on(store());
    let pool = busy.block_on(async {
        sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap()
    });
    let busy = BusyWorker::start(busy);
    let idle = runtime();
    let slept = async {
        let sleep = sqlx::raw_sql("SELECT pg_sleep(0.2)").execute(&pool);
        tokio::time::timeout(Duration::from_secs(2), sleep).await.is_ok()
    };
    assert!(
        !idle.block_on(slept),
        "the connection does not hang, so the store needs no driver thread"
    );
    assert!(busy.end());
}

#[test]
fn calls_outside_of_a_tokio_runtime_are_refused_with_that_reason() {
    let runtime = runtime();
    let (own, url) = runtime.block_on(store());
    without_runtime::assert_done_or_refused(
        "connect",
        without_runtime::call(PostgresStore::connect(&url)),
    );
    without_runtime::call_all(&own);
    let shared = async {
        PostgresStore::from_pool(sqlx::PgPool::connect(&url).await.unwrap()).await.unwrap()
    };
    let shared = runtime.block_on(shared);
    without_runtime::call_all(&shared);
}
