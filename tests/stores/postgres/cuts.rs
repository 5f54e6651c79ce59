//! A connection that is cut at each byte.

use idempotent_core::store::postgres::PostgresStore;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use test_support::{
    cuts::{self, Lane},
    proxy::Proxy,
    servers::postgres::Postgres,
};

/// How many cuts run concurrently.
pub(super) const LANES: usize = 16;

/// A store whose one connection goes through a proxy.
pub(super) async fn lane(url: &str) -> Lane<PostgresStore> {
    let direct = PostgresStore::connect(url).await.unwrap();
    direct.migrate().await.unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::before(options.get_host(), options.get_port()).await;
    let options = options.host("127.0.0.1").port(proxy.port);
    // One connection, so that it is known which connection a step uses; like the store's own pool,
    // it does not test connections before use.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .unwrap();
    let cut = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let calm = move || pool.num_idle() == 1;
    // A connection that is returned to the pool is tested: the pool sends a `Sync`, and the server
    // reports that it is ready.
    Lane { cut, direct, proxy, calm: Box::new(calm), after_each: [5, 6] }
}

/// Fails if a step that is repeated after a cut has another outcome than without the cut, if a key
/// is granted twice, or if a key is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_at_any_byte_of_a_step_changes_nothing() {
    let server = Postgres::without_fsync();
    let url = server.url("postgres");
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        lanes.push(lane(&url).await);
    }
    cuts::everywhere(lanes).await.assert_at_least(100);
}
