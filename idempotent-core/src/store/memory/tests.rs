//! The limits of the memory store, and its purge.

use super::*;
use crate::{clock::ManualClock, fingerprint::Fingerprint, protocol::Rejection, scope::ScopeId};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

fn id(number: u64) -> RecordId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(id)
}

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(TTL)
}

async fn fill(store: &MemoryStore, records: u64) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..records {
        let claim = claim();
        assert_eq!(
            store.claim(&id(number), &claim).await.unwrap(),
            ClaimOutcome::Granted { attempt: 1 }
        );
        leases.push(Lease { id: id(number), owner: claim.owner });
    }
    leases
}

/// An error and its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000));
    (MemoryStore::with_clock(clock.clone()), clock)
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_keeps_its_records() {
    let store = store().0.max_records(1_000);
    let leases = fill(&store, 1_000).await;
    let error = store.claim(&id(1_000), &claim()).await.unwrap_err();
    assert!(error.is_transient());
    assert!(error_chain(&error).contains("1000 records"), "{}", error_chain(&error));
    // Keys that are stored can still be completed and replayed.
    for lease in &leases {
        assert!(matches!(
            store.claim(&lease.id, &claim()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        assert_eq!(
            store.complete(lease, &Bytes::from_static(b"done")).await.unwrap(),
            Fence::Passed
        );
        assert!(matches!(
            store.claim(&lease.id, &claim()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(_))
        ));
    }
    assert!(store.claim(&id(1_000), &claim()).await.is_err());
}

#[tokio::test]
async fn a_full_store_accepts_a_new_key_after_a_release_or_a_purge() {
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
async fn a_full_store_replaces_expired_records() {
    let (store, clock) = store();
    // A store with so low a limit has only one shard.
    let store = store.max_records(10);
    fill(&store, 10).await;
    clock.advance(TTL);
    for number in 10..20 {
        assert!(store.claim(&id(number), &claim()).await.is_ok());
    }
    assert!(store.claim(&id(20), &claim()).await.is_err());
}

#[tokio::test]
async fn the_bytes_of_recordings_are_limited_and_freed() {
    let (store, clock) = store();
    let store = store.max_bytes(1_000);
    let leases = fill(&store, 2).await;
    // A recording is stored even if it exceeds the limit.
    for lease in &leases {
        assert_eq!(store.complete(lease, &Bytes::from(vec![0; 700])).await.unwrap(), Fence::Passed);
    }
    let error = store.claim(&id(2), &claim()).await.unwrap_err();
    assert!(error.is_transient());
    assert!(error_chain(&error).contains("1400 bytes"), "{}", error_chain(&error));
    clock.advance(TTL);
    assert_eq!(store.purge(1).await.unwrap(), 1);
    assert!(store.claim(&id(2), &claim()).await.is_ok());
}

#[tokio::test]
async fn a_full_store_accepts_a_new_request_with_an_expired_key() {
    let (store, clock) = store();
    let store = store.max_records(1);
    fill(&store, 1).await;
    clock.advance(TTL);
    assert_eq!(store.claim(&id(0), &claim()).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_exceed_the_limit_by_at_most_one_record_per_thread() {
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

fn claim_of(user: &str) -> Claim {
    claim().with_principal(Some(ScopeId::of("user", user).principal()))
}

/// Claims new keys of a user until one is refused, and returns how many were granted.
async fn fill_for(store: &MemoryStore, user: &str, from: u64) -> (u64, StoreError) {
    for number in from..from + 10_000 {
        if let Err(error) = store.claim(&id(number), &claim_of(user)).await {
            return (number - from, error);
        }
    }
    panic!("the store is not limited")
}

/// One user can fill at most half of the store, and every other user still gets a share.
#[tokio::test]
async fn a_principal_takes_no_more_than_its_share_of_a_store_that_is_half_full() {
    let (store, clock) = store();
    let store = store.max_records(1_000).max_share(100, usize::MAX);
    let (granted, error) = fill_for(&store, "mallory", 0).await;
    assert_eq!(granted, 500);
    assert!(error.is_share_exceeded() && !error.is_transient());
    assert!(error_chain(&error).contains("share of 100 records"), "{}", error_chain(&error));
    for (number, user) in ["alice", "bob", "carol"].into_iter().enumerate() {
        let (granted, error) = fill_for(&store, user, 1_000 * (number as u64 + 1)).await;
        assert_eq!((granted, error.is_share_exceeded()), (100, true), "{user}");
    }
    assert!(
        store.claim(&id(9_000), &claim()).await.is_ok(),
        "the global scope is limited to a share"
    );
    // Stored records are still found, and expired ones do not count.
    assert!(matches!(
        store.claim(&id(0), &claim_of("mallory")).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::InFlight { .. })
    ));
    clock.advance(TTL);
    while store.purge(u32::MAX).await.unwrap() > 0 {}
    assert_eq!(fill_for(&store, "mallory", 0).await.0, 500);
    assert_eq!(fill_for(&store, "alice", 1_000).await.0, 100, "expired records count");
}

#[tokio::test]
async fn the_bytes_of_a_principals_recordings_count_towards_its_share() {
    let store = store().0.max_bytes(1_000).max_share(usize::MAX, 100);
    for (number, user) in [(0, "mallory"), (1, "mallory"), (2, "alice")] {
        let claim = claim_of(user);
        store.claim(&id(number), &claim).await.unwrap();
        let lease = Lease { id: id(number), owner: claim.owner };
        let bytes = if user == "mallory" { 300 } else { 50 };
        assert_eq!(
            store.complete(&lease, &Bytes::from(vec![0; bytes])).await.unwrap(),
            Fence::Passed
        );
    }
    assert!(store.claim(&id(3), &claim_of("mallory")).await.unwrap_err().is_share_exceeded());
    assert!(store.claim(&id(3), &claim_of("alice")).await.is_ok());
}

#[tokio::test]
async fn a_principal_gets_back_the_bytes_of_records_that_are_gone() {
    let (store, clock) = store();
    let store = store.max_bytes(1_000).max_share(usize::MAX, 400);
    let complete = async |number, claim: Claim, bytes| {
        store.claim(&id(number), &claim).await.unwrap();
        let lease = Lease { id: id(number), owner: claim.owner };
        store.complete(&lease, &Bytes::from(vec![0; bytes])).await.unwrap()
    };
    complete(0, claim_of("alice").with_ttl(2 * TTL), 500).await;
    // With this record the principal is not forgotten together with the next one.
    store.claim(&id(1), &claim_of("mallory").with_ttl(2 * TTL)).await.unwrap();
    complete(2, claim_of("mallory"), 400).await;
    let refused = store.claim(&id(3), &claim_of("mallory")).await.unwrap_err();
    assert!(refused.is_share_exceeded(), "all of the share is used");
    clock.advance(TTL);
    assert_eq!(complete(2, claim_of("mallory"), 399).await, Fence::Passed);
    assert!(store.claim(&id(3), &claim_of("mallory")).await.is_ok(), "a byte is left");
}

#[tokio::test]
async fn a_record_that_is_completed_counts_once() {
    let store = store().0.max_records(3);
    for lease in fill(&store, 2).await {
        assert_eq!(
            store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(),
            Fence::Passed
        );
    }
    assert!(store.claim(&id(2), &claim()).await.is_ok(), "two records are stored");
    assert!(store.claim(&id(3), &claim()).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_purge_removes_expired_records_only_and_shortens_leases_after_the_clock_is_set_back() {
    let (store, clock) = store();
    let [expired, running, other] = [0, 1, 2].map(id);
    store.claim(&expired, &claim()).await.unwrap();
    clock.advance(TTL);
    // The ttl is over before the lease.
    let lease = Duration::from_secs(30);
    store.claim(&running, &claim().with_ttl(Duration::ZERO).with_lease(lease)).await.unwrap();
    store.claim(&other, &claim()).await.unwrap();
    assert_eq!(store.purge(u32::MAX).await.unwrap(), 1);
    assert!(store.look_up(&expired).await.unwrap().is_none());
    assert!(store.look_up(&running).await.unwrap().is_some());
    let record = store.look_up(&running).await.unwrap().unwrap().record;
    clock.set_back(TTL);
    let over = Change::Put(Record { expires_at: Timestamp::EPOCH, ..record });
    store.shards.lock(&running).apply(over);
    assert_eq!(store.purge(u32::MAX).await.unwrap(), 0);
    let shortened = store.look_up(&running).await.unwrap().unwrap();
    assert_eq!(shortened.record.lease_until, shortened.at.after(lease));
}

/// What becomes of an operation that has noted its input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Abandoned,
    WithoutInput,
    Held,
    GivenUp,
    Completed,
    Expired,
    Running,
}

async fn resumable(store: &MemoryStore, limit: u32) -> Vec<RecordId> {
    store.resumable(&ShortText::EMPTY, None, limit).await.unwrap().ids
}

#[tokio::test]
async fn only_abandoned_operations_with_an_input_are_resumable() {
    let (store, clock) = store();
    // One shard, so that it has more of them than a call may return.
    let store = store.max_records(100);
    let fates = [
        Fate::Abandoned,
        Fate::WithoutInput,
        Fate::Held,
        Fate::GivenUp,
        Fate::Completed,
        Fate::Abandoned,
        Fate::Expired,
        Fate::Running,
    ];
    for (number, fate) in (0..).zip(fates) {
        let ttl = if fate == Fate::Expired { Duration::from_secs(30) } else { TTL };
        let claim = claim().with_ttl(ttl);
        store.claim(&id(number), &claim).await.unwrap();
        let lease = Lease { id: id(number), owner: claim.owner };
        if fate != Fate::WithoutInput {
            let note = Note { hold: fate == Fate::Held, ..Note::input(Bytes::from_static(b"7")) };
            assert_eq!(store.note(&lease, &note).await.unwrap(), Fence::Passed);
        }
        match fate {
            Fate::GivenUp => drop(store.abandon(&lease, Abandoned::Hold).await.unwrap()),
            Fate::Completed => drop(store.complete(&lease, &Bytes::new()).await.unwrap()),
            Fate::Abandoned | Fate::WithoutInput | Fate::Held | Fate::Expired | Fate::Running => {}
        }
    }
    assert!(resumable(&store, 9).await.is_empty(), "their leases have not expired");
    clock.advance(Duration::from_secs(30));
    let claim = claim();
    store.claim(&id(7), &claim).await.unwrap();
    let found = resumable(&store, 9).await;
    let mut expected = [0, 5].map(id);
    expected.sort_unstable();
    assert_eq!(found, expected);
    let [first, last] = expected;
    let page = store.resumable(&ShortText::EMPTY, None, 1).await.unwrap();
    assert_eq!((page.ids, page.next), (vec![first], Some(first)));
    let page = store.resumable(&ShortText::EMPTY, Some(&first), 2).await.unwrap();
    assert_eq!((page.ids, page.next), (vec![last], None));
    let other = ShortText::new("other").unwrap();
    assert!(store.resumable(&other, None, 9).await.unwrap().ids.is_empty());
}

#[tokio::test]
async fn steps_and_inputs_count_towards_the_limit() {
    for note in [Note::step(Bytes::from(vec![0; 600])), Note::input(Bytes::from(vec![0; 600]))] {
        let store = store().0.max_bytes(500);
        let lease = fill(&store, 1).await[0];
        assert_eq!(store.note(&lease, &note).await.unwrap(), Fence::Passed);
        assert!(store.claim(&id(1), &claim()).await.is_err(), "the store is full");
        assert_eq!(store.release(&lease).await.unwrap(), Fence::Passed);
        assert!(store.claim(&id(1), &claim()).await.is_ok());
    }
}

#[tokio::test]
async fn a_single_abandoned_operation_is_found() {
    let (store, clock) = store();
    let lease = fill(&store, 1).await[0];
    store.note(&lease, &Note::input(Bytes::from_static(b"7"))).await.unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!(resumable(&store, 9).await, [id(0)]);
}
