//! A completion that is not stored yet, and claims of its key in a transaction.

use bytes::Bytes;
use idempotent_core::{
    Digester, Policy, RecordId, RequestDigest,
    runtime::{Admission, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::{Store, sqlite::SqliteStore},
};
use idempotent_http::recording::{RecordedBody, Recording};
use test_support::{Fault, FaultyStore, Op};

use crate::support::File;

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
    for (path, expected) in
        [("/a", Verdict::Completed(recording.clone())), ("/b", Verdict::Mismatch)]
    {
        let begun = runtime.begin_in_transaction(id, digest(path), &Policy::DEFAULT).await.unwrap();
        assert!(matches!(begun, Admission::Rejected(verdict) if verdict == expected), "{path}");
    }
    store.heal();
    let begun = runtime.begin_in_transaction(id, digest("/a"), &Policy::DEFAULT).await.unwrap();
    assert!(
        matches!(begun, Admission::Rejected(Verdict::Completed(replayed)) if replayed == recording)
    );
    runtime.drain().await;
}
