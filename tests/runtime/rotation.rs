//! Rotation of the keys that sign fingerprints.

use idempotent_core::{
    FingerprintKeys, Policy, Runtime,
    protocol::Rejection,
    runtime::{AttemptOutcome, Verdict},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

fn runtime_with_keys(store: &FaultyStore, ids: &[u32]) -> Runtime {
    let secret = |id: u32| [u8::try_from(id).unwrap(); 32];
    let keys =
        ids.iter().fold(FingerprintKeys::none(), |keys, id| keys.with(*id, &secret(*id)).unwrap());
    Runtime::new(store.clone(), options(|options| options.fingerprint_keys = keys))
}

#[tokio::test]
async fn a_record_signed_with_the_old_key_is_replayed_with_two_claims() {
    let store = FaultyStore::default();
    let (before, after) = (runtime_with_keys(&store, &[1]), runtime_with_keys(&store, &[2, 1]));
    proceed(&before, "k", "b", &Policy::DEFAULT).await.complete(&response("a")).await;
    let claims = store.begun(Op::Claim);
    assert_eq!(verdict_of(&after, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
    assert_eq!(store.begun(Op::Claim) - claims, 2);
    assert!(is_mismatch(&verdict_of(&after, "k", "other", &Policy::DEFAULT).await));
    assert_eq!(store.begun(Op::Claim) - claims, 3, "a mismatch was claimed twice");
    assert!(
        is_mismatch(
            &verdict_of(&runtime_with_keys(&store, &[2]), "k", "b", &Policy::DEFAULT).await
        ),
        "the record matches without its key"
    );
}

#[tokio::test]
async fn an_unsigned_record_is_recognized_once_there_are_keys() {
    let store = FaultyStore::default();
    proceed(&runtime(&store), "k", "b", &Policy::DEFAULT).await.complete(&response("a")).await;
    assert_eq!(
        verdict_of(&runtime_with_keys(&store, &[1]), "k", "b", &Policy::DEFAULT).await,
        replay_of("a")
    );
}

#[tokio::test]
async fn an_attempt_with_an_old_signature_is_taken_over_and_completed() {
    let store = FaultyStore::default();
    let (before, after) = (runtime_with_keys(&store, &[1]), runtime_with_keys(&store, &[2, 1]));
    drop(proceed(&before, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    let attempt = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.number(), 2);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    assert_eq!(verdict_of(&before, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
}

#[tokio::test]
async fn a_waiter_for_a_record_with_an_old_signature_signs_with_the_new_key() {
    let store = FaultyStore::default();
    let (before, after) = (runtime_with_keys(&store, &[1]), runtime_with_keys(&store, &[2, 1]));
    let first = proceed(&before, "k", "b", &Policy::DEFAULT).await;
    let claims = store.begun(Op::Claim);
    let policy = with_wait(ms(5_000));
    let (admission, ()) = in_time(async {
        tokio::join!(begin(&after, "k", "b", &policy), async {
            while store.begun(Op::Claim) < claims + 4 {
                tokio::task::yield_now().await;
            }
            first.release().await;
        })
    })
    .await;
    let _attempt = expect_attempt(admission);
    // If new records were signed with the old key, that key could never be removed.
    assert_eq!(
        verdict_of(&runtime_with_keys(&store, &[2]), "k", "b", &Policy::DEFAULT).await,
        Verdict::Rejected(Rejection::InFlight {
            lease_left: Policy::DEFAULT.lease,
            reference: None
        })
    );
}

#[tokio::test]
async fn a_successor_that_signs_with_another_key_is_the_same_request() {
    let store = FaultyStore::default();
    let (before, after) = (runtime_with_keys(&store, &[1, 2]), runtime_with_keys(&store, &[2, 1]));
    let fenced = proceed(&before, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.ttl);
    let successor = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(successor.number(), 1, "the record is not new");
    successor.complete(&response("the successor's")).await;
    let ending = fenced.complete(&response("the fenced attempt's")).await;
    assert_eq!(
        ending,
        AttemptOutcome::Fenced(Verdict::Rejected(Rejection::Completed(response(
            "the successor's"
        ))))
    );
}

#[tokio::test]
async fn a_record_that_changes_between_the_two_claims_is_of_the_same_request() {
    let store = FaultyStore::default();
    let (before, after) = (runtime_with_keys(&store, &[1]), runtime_with_keys(&store, &[2, 1]));
    let first = proceed(&before, "k", "b", &Policy::DEFAULT).await;
    // The first claim of this request finds a record with the old signature.
    let claims = store.begun(Op::Claim);
    store.fail(Op::Claim, 1, Fault::HangAfter);
    let request = tokio::spawn({
        let after = after.clone();
        async move { verdict_of(&after, "k", "b", &Policy::DEFAULT).await }
    });
    until("the claim is sent", || store.begun(Op::Claim) > claims).await;
    // Before its second claim, another request gets the key and signs with the new key.
    first.release().await;
    let _attempt = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    store.resume();
    let verdict = in_time(request).await.unwrap();
    assert_eq!(
        verdict,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None })
    );
}
