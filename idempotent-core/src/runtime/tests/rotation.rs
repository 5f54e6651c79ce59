//! Fingerprints signed with a key that was rotated since.

use crate::{
    fingerprint::FingerprintKeys,
    policy::Policy,
    runtime::{
        AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        tests::{
            faulty::{Faulty, Op},
            support::*,
        },
    },
};

fn signing(store: &Faulty, ids: &[u32]) -> Runtime {
    let secret = |id: u32| [u8::try_from(id).unwrap(); 32];
    let keys = ids.iter().fold(FingerprintKeys::none(), |keys, id| keys.with(*id, &secret(*id)).unwrap());
    Runtime::new(store.clone(), RuntimeOptions { fingerprint_keys: keys, ..quiet() })
}

#[tokio::test]
async fn a_record_signed_with_the_old_key_is_replayed_with_two_claims() {
    let store = Faulty::new();
    let (before, after) = (signing(&store, &[1]), signing(&store, &[2, 1]));
    run(&before, "k", "b", &Policy::DEFAULT).await.complete(&answer("a")).await;
    let claims = store.calls(Op::Claim);
    assert_eq!(told(&after, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
    assert_eq!(store.calls(Op::Claim) - claims, 2);
    assert_eq!(told(&after, "k", "other", &Policy::DEFAULT).await, Verdict::Mismatch);
    assert_eq!(store.calls(Op::Claim) - claims, 3, "another payload needs no second look");
    assert_eq!(told(&signing(&store, &[2]), "k", "b", &Policy::DEFAULT).await, Verdict::Mismatch, "the key is gone");
}

#[tokio::test]
async fn a_plain_record_is_recognised_once_there_are_keys() {
    let store = Faulty::new();
    run(&runtime(&store), "k", "b", &Policy::DEFAULT).await.complete(&answer("a")).await;
    assert_eq!(told(&signing(&store, &[1]), "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
}

#[tokio::test]
async fn an_old_signature_is_taken_over_and_completed() {
    let store = Faulty::new();
    let (before, after) = (signing(&store, &[1]), signing(&store, &[2, 1]));
    drop(run(&before, "k", "b", &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    let attempt = run(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.number(), 2);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    assert_eq!(told(&before, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
}

#[tokio::test]
async fn one_who_waited_for_an_old_signature_signs_with_the_new_key() {
    let store = Faulty::new();
    let (before, after) = (signing(&store, &[1]), signing(&store, &[2, 1]));
    let first = run(&before, "k", "b", &Policy::DEFAULT).await;
    let claims = store.calls(Op::Claim);
    let policy = waiting(ms(5_000));
    let (begun, ()) = soon(async {
        tokio::join!(begin(&after, "k", "b", &policy), async {
            while store.calls(Op::Claim) < claims + 4 {
                tokio::task::yield_now().await;
            }
            first.release().await;
        })
    })
    .await;
    let _attempt = ran(begun);
    // Else the old key would have to be kept for as long as records signed by it go on being made.
    assert_eq!(
        told(&signing(&store, &[2]), "k", "b", &Policy::DEFAULT).await,
        Verdict::InFlight { lease_left: Policy::DEFAULT.lease }
    );
}

#[tokio::test]
async fn a_successor_that_signs_with_another_key_is_the_same_request() {
    let store = Faulty::new();
    let (before, after) = (signing(&store, &[1, 2]), signing(&store, &[2, 1]));
    let fenced = run(&before, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.ttl);
    let successor = run(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(successor.number(), 1, "the record is a new one");
    successor.complete(&answer("the successor's")).await;
    let ending = fenced.complete(&answer("its own")).await;
    assert_eq!(ending, AttemptOutcome::Fenced(Verdict::Completed(answer("the successor's"))));
}
