//! A connection that is cut at each byte.

use idempotent_redis::{
    RedisStore,
    internals::{alter_redis, with_large_recordings_from},
};
use test_support::{
    cuts::{self, ProxiedStore},
    proxy::Proxy,
    servers::redis::{IN_MEMORY, Server},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_step_does_not_change_its_outcome() {
    cut_at_each_byte(|store| store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_completion_after_a_read_does_not_change_its_outcome() {
    cut_at_each_byte(|store| with_large_recordings_from(store, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_of_a_completion_by_a_script_does_not_change_its_outcome() {
    cut_at_each_byte(|store| alter_redis(store, &[("", ""); 0])).await;
}

/// Fails if a step that is repeated after a cut has a different outcome than without the cut, if a
/// key is granted twice, or if a key is lost.
async fn cut_at_each_byte(with: fn(RedisStore) -> RedisStore) {
    let server = Server::start(IN_MEMORY);
    let mut stores = Vec::new();
    for _ in 0..16 {
        let proxy = Proxy::in_front_of("127.0.0.1", server.port).await;
        let url = format!("redis://127.0.0.1:{}/", proxy.port);
        let store = RedisStore::connect(&url).await.unwrap();
        let proxied = with(store);
        let direct = RedisStore::connect(&server.url()).await.unwrap();
        let is_idle = Box::new(|| true);
        stores.push(ProxiedStore { proxied, direct, proxy, is_idle, test_bytes: [0, 0] });
    }
    cuts::cut_at_each_byte(stores).await.assert_at_least(3);
}
