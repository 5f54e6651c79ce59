//! A pool of the application that has too few connections.

use std::{sync::LazyLock, time::Duration};

use actix_web::{App, web::Data};
use idempotent_actix::{Idempotency, store::SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use test_support::{Probe, Request, Server, log};
use tokio::runtime::Runtime;

use super::handlers::{all, assert_problem};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

#[test]
fn a_pool_without_a_free_connection_is_logged_with_its_setting_and_size() {
    log::capture();
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("records.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let (pool, store) = RUNTIME.block_on(async {
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_millis(321))
            .connect_with(options)
            .await
            .unwrap();
        let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
        store.migrate().await.unwrap();
        (pool, store)
    });
    let idempotency = Idempotency::new(store);
    let server = Server::start(move || {
        App::new().app_data(idempotency.clone()).app_data(Data::new(Probe::new())).configure(all)
    });
    let busy = RUNTIME.block_on(pool.acquire()).unwrap();
    let pay = Request::post("/payments").user("alice").key("k").body("b");
    assert_problem(&server.send(&pay), 503, "store_unavailable", true);
    let logged = log::captured();
    let line = logged.lines().find(|line| line.contains("max_connections=1 acquire_timeout=321ms"));
    assert!(line.is_some_and(|line| line.contains("raise its `max_connections`")), "{line:?}");
    let _entered = RUNTIME.enter();
    drop(busy);
    RUNTIME.block_on(pool.close());
}
