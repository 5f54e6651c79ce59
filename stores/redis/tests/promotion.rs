//! A replica that replaces its master.

use std::time::Duration;

use idempotent_core::protocol::{ClaimOutcome, Rejection};

use idempotent_core::store::Store;
use idempotent_redis::RedisStore;

use super::helpers::{GRANTED, key, request};
use test_support::servers::redis::{IN_MEMORY, Server};

const CLAIMS: usize = 200;

/// Fails if a promoted replica grants a key again whose claim it had acknowledged. The claims
/// follow each other without a pause, and the master is killed right after the last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_replica_acknowledged_outlives_the_master() {
    let mut master = Server::start(IN_MEMORY);
    let replica = master.replica(IN_MEMORY);
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_secs(5));
    let store = options.connect(&master.url()).await.unwrap();
    let claims: Vec<_> = (0..CLAIMS).map(|_| (key(), request())).collect();
    for (id, claim) in &claims {
        assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
    }
    master.kill();
    let _: () = replica.command("REPLICAOF NO ONE");
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    for (id, claim) in &claims {
        assert!(matches!(
            store.claim(id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        assert_eq!(store.claim(id, claim).await.unwrap(), GRANTED);
    }
}
