//! Many calls at once for the same records.

use std::time::Duration;

use idempotent_core::{
    Lease,
    protocol::{ClaimOutcome, RenewOutcome, Renewal},
    store::Store,
};
use tokio::task::JoinSet;

use crate::helpers::{claim, claimed, key, store};

/// No renewal fails because another one has locked the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_can_be_renewed_many_times_at_once() {
    let (store, _) = store().await;
    for _ in 0..20 {
        let lease = claimed(&store).await;
        let renewals = (0..16).map(|_| {
            let store = store.clone();
            async move { store.renew(&[Renewal::new(lease, Duration::from_secs(30))]).await }
        });
        let renewed = renewals.collect::<JoinSet<_>>().join_all().await;
        let outcomes: Vec<_> = renewed.into_iter().map(|renewed| renewed.unwrap()).collect();
        assert!(outcomes.contains(&vec![RenewOutcome::Renewed]), "{outcomes:?}");
        assert!(!outcomes.contains(&vec![RenewOutcome::Fenced]), "{outcomes:?}");
    }
}

/// A claim whose acknowledgment was lost is granted to its owner, however often it is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_claims_wins() {
    let (store, _) = store().await;
    for _ in 0..50 {
        let id = key();
        let claims = (0..16).map(|_| {
            let (store, claim) = (store.clone(), claim());
            async move {
                let outcome = Store::claim(&store, &id, &claim).await.unwrap();
                (outcome == ClaimOutcome::Granted { attempt: 1 }).then_some(claim.owner)
            }
        });
        let claims = claims.collect::<JoinSet<_>>().join_all().await;
        let owners: Vec<_> = claims.into_iter().flatten().collect();
        let [owner] = owners[..] else { panic!("{owners:?}") };
        assert!(store.release(&Lease { id, owner }).await.is_ok());
    }
}
