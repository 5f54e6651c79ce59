//! What is particular to the memory store: its bounds.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, RecordId, Store,
    clock::{ManualClock, Timestamp},
    store::{Claim, ClaimOutcome, Fence, memory::MemoryStore},
};

use crate::connecting::whole;

const TTL: Duration = Duration::from_secs(60);

fn id(number: u64) -> RecordId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(id)
}

fn claim() -> Claim {
    Claim {
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        owner: OwnerToken::random().unwrap(),
        lease: Duration::from_secs(30),
        ttl: TTL,
        abandoned: Abandoned::Retry,
    }
}

async fn fill(store: &MemoryStore, records: u64) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..records {
        let claim = claim();
        assert_eq!(store.claim(&id(number), &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
        leases.push(Lease { id: id(number), owner: claim.owner });
    }
    leases
}

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
    (MemoryStore::with_clock(clock.clone()), clock)
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_keeps_all_it_has() {
    let store = store().0.max_records(1_000);
    let leases = fill(&store, 1_000).await;
    let error = store.claim(&id(1_000), &claim()).await.unwrap_err();
    assert!(error.is_transient());
    assert!(whole(&error).contains("1000 records"), "{}", whole(&error));
    // Those that are in go on as before.
    for lease in &leases {
        assert!(matches!(store.claim(&lease.id, &claim()).await.unwrap(), ClaimOutcome::InFlight { .. }));
        assert_eq!(store.complete(lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
        assert!(matches!(store.claim(&lease.id, &claim()).await.unwrap(), ClaimOutcome::Completed(_)));
    }
    assert!(store.claim(&id(1_000), &claim()).await.is_err());
}

#[tokio::test]
async fn a_released_or_purged_record_makes_room() {
    let (store, clock) = store();
    let store = store.max_records(1_000);
    let leases = fill(&store, 1_000).await;
    assert_eq!(store.release(&leases[0]).await.unwrap(), Fence::Passed);
    assert!(store.claim(&id(1_000), &claim()).await.is_ok());
    assert!(store.claim(&id(1_001), &claim()).await.is_err());
    clock.advance(TTL);
    assert_eq!(store.purge(10).await.unwrap(), 10);
    assert_eq!(store.purge(u32::MAX).await.unwrap(), 990);
    assert_eq!(store.purge(u32::MAX).await.unwrap(), 0);
    fill(&store, 1_000).await;
}

#[tokio::test]
async fn a_full_store_drops_what_has_expired_rather_than_refuse() {
    let (store, clock) = store();
    // So few records share one shard.
    let store = store.max_records(10);
    fill(&store, 10).await;
    clock.advance(TTL);
    for number in 10..20 {
        assert!(store.claim(&id(number), &claim()).await.is_ok());
    }
    assert!(store.claim(&id(20), &claim()).await.is_err());
}

#[tokio::test]
async fn the_bytes_of_recordings_are_bounded_and_given_back() {
    let (store, clock) = store();
    let store = store.max_bytes(1_000);
    let leases = fill(&store, 2).await;
    // What was worked for is kept, even beyond the bound.
    for lease in &leases {
        assert_eq!(store.complete(lease, &Bytes::from(vec![0; 700])).await.unwrap(), Fence::Passed);
    }
    let error = store.claim(&id(2), &claim()).await.unwrap_err();
    assert!(error.is_transient());
    assert!(whole(&error).contains("1400 bytes"), "{}", whole(&error));
    clock.advance(TTL);
    assert_eq!(store.purge(1).await.unwrap(), 1);
    assert!(store.claim(&id(2), &claim()).await.is_ok());
}

#[tokio::test]
async fn a_new_request_under_an_expired_key_needs_no_more_room() {
    let (store, clock) = store();
    let store = store.max_records(1);
    fill(&store, 1).await;
    clock.advance(TTL);
    assert_eq!(store.claim(&id(0), &claim()).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn many_claims_at_once_overshoot_the_bound_by_no_more_than_the_threads() {
    let store = Arc::new(MemoryStore::new().max_records(1_000));
    let claims = (0..2_000).map(|number| {
        let store = Arc::clone(&store);
        async move { store.claim(&id(number), &claim()).await.is_ok() }
    });
    let granted = claims.collect::<tokio::task::JoinSet<_>>().join_all().await;
    let granted = granted.into_iter().filter(|granted| *granted).count();
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    assert!((1_000..=1_000 + threads).contains(&granted), "{granted}");
}
