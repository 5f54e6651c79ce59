//! A store that several runtimes share.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use idempotent_core::{
    Store,
    store::{ClaimOutcome, postgres::PostgresStore},
};
use tokio::runtime::{Builder, Runtime};

use crate::{id, request, store};

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
    let started = Instant::now();
    second.block_on(claim_many(&store));
    second.block_on(store.migrate()).unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// A worker that computes for three seconds, and does not look at its sockets meanwhile. It is at it when this returns.
fn keep_busy(runtime: Runtime) -> thread::JoinHandle<()> {
    let (tell, told) = mpsc::channel();
    let working = thread::spawn(move || {
        runtime.block_on(async {
            tell.send(()).unwrap();
            thread::sleep(Duration::from_secs(3));
        });
    });
    told.recv().unwrap();
    working
}

#[test]
fn a_busy_runtime_holds_up_no_other_one() {
    let busy = runtime();
    let (store, _) = busy.block_on(store());
    busy.block_on(claim_many(&store));
    let working = keep_busy(busy);
    let idle = runtime();
    let started = Instant::now();
    idle.block_on(claim_many(&store));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    working.join().unwrap();
}

/// The same of a plain pool, to see that there is something to hold up.
#[test]
fn a_busy_runtime_holds_up_the_connections_of_a_plain_pool() {
    let busy = runtime();
    let (_store, url) = busy.block_on(store());
    let pool =
        busy.block_on(async { sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap() });
    let working = keep_busy(busy);
    let idle = runtime();
    let started = Instant::now();
    // An answer that is there before anyone waits for it needs no one to hear of it.
    // It fails if the busy runtime ends first.
    let _ = idle.block_on(async { sqlx::raw_sql("SELECT pg_sleep(0.2)").execute(&pool).await });
    assert!(
        started.elapsed() > Duration::from_secs(1),
        "{:?}: the driver thread is not needed any more",
        started.elapsed()
    );
    working.join().unwrap();
}
