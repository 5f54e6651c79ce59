//! A store that several runtimes share.

use std::{sync::mpsc, thread, time::Duration};

use idempotent_core::{Store, protocol::ClaimOutcome, store::postgres::PostgresStore};
use tokio::runtime::{Builder, Runtime};

use super::{id, request, store};
use test_support::without_runtime;

/// How long a worker computes unless it is released: longer than the other claims take on a busy
/// machine.
const HELD_UP: Duration = Duration::from_secs(30);

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
fn a_store_outlives_the_runtime_it_was_opened_on() {
    let first = runtime();
    let (store, _) = first.block_on(store());
    first.block_on(claim_many(&store));
    drop(first);
    let second = runtime();
    // Twice: the first claims would get connections that the first runtime took with it.
    for _ in 0..2 {
        second.block_on(claim_many(&store));
        second.block_on(store.migrate()).unwrap();
    }
}

/// A worker that computes until it is released, and does not poll its sockets meanwhile.
struct Busy {
    let_go: mpsc::Sender<()>,
    working: thread::JoinHandle<bool>,
}

impl Busy {
    /// Returns once the worker is computing.
    fn keep(runtime: Runtime) -> Self {
        let (started, has_started) = mpsc::channel();
        let (let_go, done) = mpsc::channel();
        let working = thread::spawn(move || {
            runtime.block_on(async {
                started.send(()).unwrap();
                done.recv_timeout(HELD_UP).is_ok()
            })
        });
        has_started.recv().unwrap();
        Self { let_go, working }
    }

    /// Ends the computation; returns whether it was still running.
    fn end(self) -> bool {
        // The worker may have ended by itself.
        let _ = self.let_go.send(());
        self.working.join().unwrap()
    }
}

#[test]
fn a_busy_runtime_holds_up_no_other_one() {
    let busy = runtime();
    let (store, _) = busy.block_on(store());
    busy.block_on(claim_many(&store));
    let busy = Busy::keep(busy);
    runtime().block_on(claim_many(&store));
    assert!(busy.end(), "the claims waited for the busy runtime");
}

/// The same with a plain pool, as a control.
#[test]
fn a_busy_runtime_holds_up_the_connections_of_a_plain_pool() {
    let busy = runtime();
    let (_store, url) = busy.block_on(store());
    let pool = busy.block_on(async {
        sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap()
    });
    let busy = Busy::keep(busy);
    let idle = runtime();
    // The signal was sent before anyone waited for it.
    let slept = async {
        let sleep = sqlx::raw_sql("SELECT pg_sleep(0.2)").execute(&pool);
        tokio::time::timeout(Duration::from_secs(2), sleep).await.is_ok()
    };
    assert!(!idle.block_on(slept), "the driver thread is not needed any more");
    assert!(busy.end());
}

#[test]
fn calls_from_outside_of_a_runtime_are_refused_for_that_reason() {
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
