//! A connection that is cut at each byte.

use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use sqlx::{
    ConnectOptions,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use test_support::{
    cuts::{self, ProxiedStore, Step},
    proxy::Proxy,
    servers::postgres::Postgres,
};

/// How many cuts run concurrently.
pub(super) const CONCURRENT_CUTS: usize = 16;

/// A store whose only connection goes through a proxy.
pub(super) async fn proxied_store(url: &str) -> ProxiedStore<PostgresStore> {
    let direct = PostgresStore::connect(url).await.unwrap();
    direct.migrate().await.unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let options = options.host("127.0.0.1").port(proxy.port);
    // With one connection it is known which connection a step uses. Like the store's own pool, this
    // one does not test connections before use.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .unwrap();
    let proxied = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let is_idle = move || pool.num_idle() == 1;
    // The pool tests a connection that is returned to it: it sends a `Sync`, and the server sends
    // `ReadyForQuery`.
    ProxiedStore { proxied, direct, proxy, is_idle: Box::new(is_idle), test_bytes: [5, 6] }
}

/// A store whose claims and completions are sent in batches, on connections that go through a
/// proxy.
async fn batched_store(url: &str) -> ProxiedStore<PostgresStore> {
    let direct = PostgresStore::connect(url).await.unwrap();
    direct.migrate().await.unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let through = options.host("127.0.0.1").port(proxy.port).to_url_lossy();
    let proxied = batched_postgres(PostgresStore::connect(through.as_str()).await.unwrap());
    // The store's own pools do not test a connection that is returned.
    ProxiedStore { proxied, direct, proxy, is_idle: Box::new(|| true), test_bytes: [0, 0] }
}

/// The same for the steps that are executed in batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_batch_does_not_change_the_outcome_of_its_step() {
    let server = Postgres::without_fsync();
    let url = server.url("postgres");
    let mut stores = Vec::new();
    for _ in 0..CONCURRENT_CUTS {
        stores.push(batched_store(&url).await);
    }
    cuts::cut_steps(stores, &[Step::Claim, Step::Complete]).await.assert_at_least(15);
}

/// Fails if a step that is repeated after a cut has a different outcome than without the cut, if a
/// key is granted twice, or if a key is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_step_does_not_change_its_outcome() {
    let server = Postgres::without_fsync();
    let url = server.url("postgres");
    let mut stores = Vec::new();
    for _ in 0..CONCURRENT_CUTS {
        stores.push(proxied_store(&url).await);
    }
    cuts::cut_at_each_byte(stores).await.assert_at_least(15);
}
