//! Connections that the server closes while they are idle.

use idempotent_core::{
    Abandoned, Lease,
    protocol::{Claim, Fence, Note, Resolution, ResolveOutcome},
    store::Store,
};
use idempotent_redis::RedisStore;
use test_support::decision;
use test_support::servers::redis::{IN_MEMORY, Server, wait_until};

use super::helpers::{GRANTED, established, key, lease, request};

async fn claimed(store: &RedisStore, claim: &Claim) -> Lease {
    let id = key();
    assert_eq!(store.claim(&id, claim).await.unwrap(), GRANTED);
    lease(id, claim)
}

/// Closes the store's connections, and waits until the store has noticed.
fn close_connections(server: &Server) {
    let _: u64 = server.command("CLIENT KILL TYPE normal SKIPME yes");
    wait_until("the connections are closed", || established(server.port) == 0);
}

/// Fails if a step that must not be executed twice fails although nothing of it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_was_not_sent_is_sent_on_a_new_connection() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let held = request().with_abandoned(Abandoned::Hold);
    for _ in 0..20 {
        let lease = claimed(&store, &request()).await;
        close_connections(&server);
        let step = Note::step(bytes::Bytes::from_static(b"step"));
        assert_eq!(store.note(&lease, &step).await.unwrap(), Fence::Passed);
        close_connections(&server);
        assert_eq!(store.release(&lease).await.unwrap(), Fence::Passed);

        let lease = claimed(&store, &held).await;
        close_connections(&server);
        assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
        close_connections(&server);
        let resolved = store
            .resolve(&lease.id, &lease.owner, &Resolution::Release, &decision(&lease.id))
            .await;
        assert_eq!(resolved.unwrap(), ResolveOutcome::Resolved);
    }
}
