//! What several tests use.

use std::time::Duration;

use idempotent_core::{
    Fingerprint, Lease, OwnerToken, RecordId,
    protocol::{Claim, ClaimOutcome},
    store::Store,
};
use idempotent_mysql::MySqlStore;
use test_support::servers::mariadb::database;

/// A migrated store in a new database, and the URL of the database.
pub(crate) async fn store() -> (MySqlStore, String) {
    let url = database().await;
    let store = MySqlStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (store, url)
}

/// A new key.
pub(crate) fn key() -> RecordId {
    let mut id = [0; 32];
    fastrand::fill(&mut id);
    RecordId::from_bytes(id)
}

pub(crate) fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
}

/// Claims a new key.
pub(crate) async fn claimed(store: &MySqlStore) -> Lease {
    let (id, claim) = (key(), claim());
    let outcome = Store::claim(store, &id, &claim).await.unwrap();
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 1 });
    Lease { id, owner: claim.owner }
}
