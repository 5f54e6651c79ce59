//! A replica that replaces its master.

use std::time::Duration;

use idempotent_core::protocol::ClaimOutcome;

use idempotent_core::store::{Store, redis::RedisStore};

use super::work::{GRANTED, key, request};
use test_support::servers::redis::{FORGETFUL, Server};

const CLAIMS: usize = 200;

/// Fails if a replica grants a claim again that was granted once it had received it. The claims
/// follow each other without a pause, and the master is killed right after the last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_for_a_replica_outlives_the_master() {
    let mut master = Server::start(FORGETFUL);
    let replica = master.replica(FORGETFUL);
    let store = RedisStore::connect(&master.url()).await.unwrap();
    let store = store.wait_for_replicas(1, Duration::from_secs(5));
    let claims: Vec<_> = (0..CLAIMS).map(|_| (key(), request())).collect();
    for (id, claim) in &claims {
        assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
    }
    master.kill();
    let _: () = replica.ask("REPLICAOF NO ONE");
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    for (id, claim) in &claims {
        assert!(matches!(
            store.claim(id, &request()).await.unwrap(),
            ClaimOutcome::InFlight { .. }
        ));
        assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
    }
}
