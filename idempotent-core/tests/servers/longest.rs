//! Durations that are as long as they can be.
#![allow(clippy::panic, unreachable_pub, reason = "helpers of tests are tests")]

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, BodyForm, Digester, Fingerprint, Lease, OwnerToken, Policy, RecordId, RecordedBody, Recording,
    RequestDigest, Runtime, Store,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal},
    runtime::{Admission, AttemptOutcome, RuntimeOptions, Verdict},
    store::TransactionClaim,
};

const LONGEST: Duration = Duration::MAX;

fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

fn claim() -> Claim {
    Claim {
        fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
        owner: OwnerToken::random().unwrap(),
        lease: LONGEST,
        ttl: LONGEST,
        abandoned: Abandoned::Retry,
        principal: None,
    }
}

/// A migrated store takes them all, alone and below a runtime.
pub async fn takes_them(store: impl Store + Clone) {
    claims(&store).await;
    within(&store).await;
    runs(store).await;
}

async fn claims(store: &impl Store) {
    let (id, claim) = (id(), claim());
    let lease = Lease { id, owner: claim.owner };
    assert_eq!(store.claim(&id, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    assert_eq!(store.renew(&[Renewal { lease, extend: LONGEST }]).await.unwrap(), [RenewOutcome::Renewed]);
    let told = store.claim(&id, &self::claim()).await.unwrap();
    assert!(
        matches!(told, ClaimOutcome::InFlight { lease_left } if lease_left > Duration::from_secs(1 << 30)),
        "{told:?}"
    );
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
    assert!(store.look_up(&id).await.unwrap().is_some());
    store.purge(u32::MAX).await.unwrap();
    assert!(matches!(store.claim(&id, &self::claim()).await.unwrap(), ClaimOutcome::Completed(_)));
}

async fn within(store: &impl Store) {
    let Some(transactions) = store.transactions() else { return };
    let (id, claim) = (id(), claim());
    let claimed = transactions.claim(&id, &claim, LONGEST).await.unwrap();
    let TransactionClaim::Granted { transaction, .. } = claimed else { panic!("{claimed:?}") };
    let (lease, recording) = (Lease { id, owner: claim.owner }, recording().encode());
    let (completed, told) = tokio::join!(
        transaction.complete_and_commit(&lease, &recording),
        // It may wait for the other.
        async { transactions.claim(&id, &self::claim(), LONGEST).await },
    );
    assert_eq!(completed.unwrap(), Fence::Passed);
    assert!(matches!(told.unwrap(), TransactionClaim::Rejected(ClaimOutcome::Completed(_))));
}

fn recording() -> Recording {
    Recording { status: 201, headers: Vec::new(), body: RecordedBody::None }
}

fn digest() -> RequestDigest {
    Digester::new("POST", "/payments", "", b"", BodyForm::Raw).finish()
}

async fn runs(store: impl Store + Clone) {
    let mut options = RuntimeOptions::default();
    (options.store_timeout, options.purge_every) = (LONGEST, Some(LONGEST));
    let policy = Policy { ttl: LONGEST, lease: LONGEST, wait: LONGEST, ..Policy::DEFAULT };
    let within = store.transactions().is_some();
    let runtime = Runtime::new(store, options);
    for within in if within { &[false, true][..] } else { &[false] } {
        let id = id();
        let begin = async || match within {
            false => runtime.begin(id, digest(), &policy).await.unwrap(),
            true => runtime.begin_within(id, digest(), &policy).await.unwrap(),
        };
        let Admission::Proceed(attempt) = begin().await else { panic!("a new key does not run") };
        let recording = recording();
        let (told, ending) = tokio::join!(begin(), attempt.complete(&recording));
        assert_eq!(ending, AttemptOutcome::Stored);
        assert!(matches!(told, Admission::Rejected(Verdict::Completed(_))), "{told:?}");
    }
}
