//! Checks that a store accepts the longest possible durations.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Digester, EncodedRecording, Fingerprint, Lease, OwnerToken, Policy, RecordId, RequestDigest,
    Runtime, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    runtime::{Admission, AttemptOutcome, RuntimeOptions, Verdict},
    store::TransactionClaim,
};
use idempotent_http::recording::{RecordedBody, Recording};

const LONGEST: Duration = Duration::MAX;

fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

fn claim() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(LONGEST)
        .with_ttl(LONGEST)
}

/// Asserts that a migrated store accepts [`Duration::MAX`] for every duration, directly and through
/// a runtime.
pub async fn assert_accepted(store: impl Store + Clone) {
    check_store(&store).await;
    check_transactions(&store).await;
    check_runtime(store).await;
}

async fn check_store(store: &impl Store) {
    let (id, claim) = (id(), claim());
    let lease = Lease { id, owner: claim.owner };
    assert_eq!(store.claim(&id, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    assert_eq!(
        store.renew(&[Renewal::new(lease, LONGEST)]).await.unwrap(),
        [RenewOutcome::Renewed]
    );
    let outcome = store.claim(&id, &self::claim()).await.unwrap();
    assert!(
        matches!(
            outcome,
            ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. })
                if lease_left.as_secs() > 1 << 30
        ),
        "{outcome:?}"
    );
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
    assert!(store.look_up(&id).await.unwrap().is_some());
    store.purge(u32::MAX).await.unwrap();
    assert!(matches!(
        store.claim(&id, &self::claim()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Completed(_))
    ));
}

async fn check_transactions(store: &impl Store) {
    let Some(transactions) = store.transactions() else { return };
    let (id, claim) = (id(), claim());
    let claimed = transactions.claim(&id, &claim, LONGEST).await.unwrap();
    let TransactionClaim::Granted { transaction, .. } = claimed else { panic!("{claimed:?}") };
    let (lease, recording) = (Lease { id, owner: claim.owner }, Bytes::from(recording()));
    let (completed, outcome) = tokio::join!(
        transaction.complete_and_commit(&lease, &recording),
        // In some stores the claim waits for the completion.
        async { transactions.claim(&id, &self::claim(), LONGEST).await },
    );
    assert_eq!(completed.unwrap(), Fence::Passed);
    assert!(matches!(outcome.unwrap(), TransactionClaim::Rejected(Rejection::Completed(_))));
}

fn recording() -> EncodedRecording {
    Recording::new(201, Vec::new(), RecordedBody::None).encode()
}

fn digest() -> RequestDigest {
    Digester::new(["POST", "/payments"]).finish()
}

async fn check_runtime(store: impl Store + Clone) {
    let mut options = RuntimeOptions::default();
    (options.store_timeout, options.purge_every) = (LONGEST, Some(LONGEST));
    let policy = Policy::DEFAULT.with_ttl(LONGEST).with_lease(LONGEST).with_wait(LONGEST);
    let has_transactions = store.transactions().is_some();
    let runtime = Runtime::new(store, options);
    for in_transaction in if has_transactions { &[false, true][..] } else { &[false] } {
        let id = id();
        let begin = async || match in_transaction {
            false => runtime.begin(id, digest(), &policy).await.unwrap(),
            true => runtime.begin_in_transaction(id, digest(), &policy).await.unwrap(),
        };
        let Admission::Proceed(attempt) = begin().await else {
            panic!("the claim of a new key was rejected")
        };
        let recording = recording();
        let (outcome, ending) = tokio::join!(begin(), attempt.complete(&recording));
        assert_eq!(ending, AttemptOutcome::Stored);
        assert!(
            matches!(outcome, Admission::Rejected(Verdict::Rejected(Rejection::Completed(_)))),
            "{outcome:?}"
        );
    }
}
