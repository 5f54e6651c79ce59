//! A connection that is cut at each byte.

use idempotent_core::store::redis::RedisStore;

use test_support::{
    cuts::{self, Lane},
    proxy::Proxy,
    servers::redis::{FORGETFUL, Server},
};

/// Fails if a step that is repeated after a cut has another outcome than without the cut, if a key
/// is granted twice, or if a key is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_at_any_byte_of_a_step_changes_nothing() {
    let server = Server::start(FORGETFUL);
    let mut lanes = Vec::new();
    for _ in 0..16 {
        let proxy = Proxy::before("127.0.0.1", server.port).await;
        let cut = RedisStore::connect(&format!("redis://127.0.0.1:{}/", proxy.port)).await.unwrap();
        let direct = RedisStore::connect(&server.url()).await.unwrap();
        lanes.push(Lane { cut, direct, proxy, calm: Box::new(|| true), after_each: [0, 0] });
    }
    cuts::everywhere(lanes).await.assert_at_least(16);
}
