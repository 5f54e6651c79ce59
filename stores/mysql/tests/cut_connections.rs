//! A connection that is cut at each byte.

use std::num::NonZeroU16;

use idempotent_mysql::{MySqlStore, internals::batched_mysql};
use sqlx::{
    ConnectOptions as _,
    mysql::{MySqlConnectOptions, MySqlSslMode},
};
use test_support::{
    cuts::{self, ProxiedStore, Step},
    proxy::Proxy,
    servers::mariadb::{MariaDb, database_on},
};

/// How many cuts run concurrently.
pub(super) const CONCURRENT_CUTS: usize = 16;

/// A store whose connections go through a proxy; `alter` says how it executes its steps.
pub(super) async fn proxied_store(
    url: &str,
    alter: fn(MySqlStore) -> MySqlStore,
) -> ProxiedStore<MySqlStore> {
    let direct = MySqlStore::connect(url).await.unwrap();
    direct.migrate().await.unwrap();
    let options: MySqlConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let through = options.host("127.0.0.1").port(proxy.port).ssl_mode(MySqlSslMode::Disabled);
    let through = through.to_url_lossy();
    // With one connection for transactions it is known which one a handler uses.
    let alone = MySqlStore::options().group_commit(false).max_transactions(NonZeroU16::MIN);
    let proxied = alter(alone.connect(through.as_str()).await.unwrap());
    // The store's pools do not test a connection that is returned.
    ProxiedStore { proxied, direct, proxy, is_idle: Box::new(|| true), test_bytes: [0, 0] }
}

async fn proxied_stores(
    server: &MariaDb,
    alter: fn(MySqlStore) -> MySqlStore,
) -> Vec<ProxiedStore<MySqlStore>> {
    let url = database_on(&server.url("mysql")).await;
    let mut stores = Vec::new();
    for _ in 0..CONCURRENT_CUTS {
        stores.push(proxied_store(&url, alter).await);
    }
    stores
}

/// Fails if a step that is repeated after a cut has a different outcome than without the cut, if a
/// key is granted twice, or if a key is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_step_does_not_change_its_outcome() {
    let server = MariaDb::without_fsync();
    let stores = proxied_stores(&server, |store| store).await;
    // What acknowledges a release has 22 bytes.
    cuts::cut_at_each_byte(stores).await.assert_at_least(5);
}

/// The same for the steps that are executed in batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_batch_does_not_change_the_outcome_of_its_step() {
    let server = MariaDb::without_fsync();
    let stores = proxied_stores(&server, batched_mysql).await;
    // The last statement of a batch of claims is acknowledged with few bytes.
    cuts::cut_steps(stores, &[Step::Claim, Step::Complete]).await.assert_at_least(3);
}
