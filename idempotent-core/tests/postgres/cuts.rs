//! A connection that is cut at each byte.

use idempotent_core::{Store, store::postgres::PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::servers::{
    cuts::{self, Lane},
    postgres::Postgres,
    proxy::Proxy,
};

/// How many cuts are under way at once.
pub const LANES: usize = 16;

/// A store whose one connection goes through a proxy.
pub async fn lane(url: &str) -> Lane<PostgresStore> {
    let direct = PostgresStore::connect(url).await.unwrap();
    direct.migrate().await.unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::before(options.get_host(), options.get_port()).await;
    let options = options.host("127.0.0.1").port(proxy.port);
    // One connection, so that it is known which one a step takes; like the store's own pool, it is not looked at before.
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect_with(options).await.unwrap();
    let cut = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let calm = move || pool.num_idle() == 1;
    // As it is given back, a connection is asked whether it is there: a `Sync`, and that the server is ready.
    Lane { cut, direct, proxy, calm: Box::new(calm), after_each: [5, 6] }
}

/// Fails if a step that is told again after a cut comes to anything but what it would have come to without, if a key is granted to two,
/// or if one is lost.
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
