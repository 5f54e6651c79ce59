//! A completion that is not stored yet, and claims of its key in a transaction.

use bytes::Bytes;
use idempotent_core::{
    Digester, Policy, RecordId, RequestDigest,
    protocol::Rejection,
    runtime::{Admission, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::Store,
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_sqlite::SqliteStore;

use test_support::{Fault, FaultyStore, Op, subjects::sqlite::File};

fn digest(path: &str) -> RequestDigest {
    Digester::new(["POST", path]).finish()
}

#[tokio::test]
async fn a_claim_in_a_transaction_gets_the_deferred_response() {
    let file = File::new();
    let store = FaultyStore::around(SqliteStore::connect(&file.url()).await.unwrap());
    store.migrate().await.unwrap();
    let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
    let (id, recording) = (
        RecordId::from_bytes([7; 32]),
        Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done"))).encode(),
    );
    let Admission::Proceed(attempt) =
        runtime.begin(id, digest("/a"), &Policy::DEFAULT).await.unwrap()
    else {
        panic!("the claim of a new key was rejected")
    };
    store.fail(Op::Complete, usize::MAX, Fault::Before);
    assert_eq!(attempt.complete(&recording).await, AttemptOutcome::Deferred);
    for (path, is_same) in [("/a", true), ("/b", false)] {
        let begun = runtime.begin_in_transaction(id, digest(path), &Policy::DEFAULT).await.unwrap();
        let Admission::Rejected(Verdict::Rejected(rejection)) = begun else { panic!("{begun:?}") };
        let is_expected = match rejection {
            Rejection::Completed(replayed) => is_same && replayed == recording,
            Rejection::Mismatch { .. } => !is_same,
            Rejection::InFlight { .. } | Rejection::Held { .. } => false,
        };
        assert!(is_expected, "{path}");
    }
    store.heal();
    let begun = runtime.begin_in_transaction(id, digest("/a"), &Policy::DEFAULT).await.unwrap();
    let Admission::Rejected(Verdict::Rejected(Rejection::Completed(replayed))) = begun else {
        panic!("the request is not replayed");
    };
    assert_eq!(replayed, recording);
    runtime.drain().await;
}
