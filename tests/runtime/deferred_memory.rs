//! The memory that deferred ends use.

use idempotent_core::{
    EncodedRecording, Policy, Runtime,
    internals::gauges,
    protocol::Rejection,
    runtime::{AttemptOutcome, Verdict},
};
use idempotent_http::recording::RecordedBody;
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const ALWAYS: usize = usize::MAX;

/// A runtime with this limit for the bytes of deferred ends.
fn bounded(store: &FaultyStore, bytes: usize) -> Runtime {
    Runtime::new(store.clone(), options(|options| options.deferred_bytes = bytes))
}

/// A recording with a body of this size.
fn large(bytes: usize) -> EncodedRecording {
    with_location(&RecordedBody::Whole(vec![7; bytes].into()))
}

fn with_location(body: &RecordedBody) -> EncodedRecording {
    recording(&[(b"location", b"/payments/1")], body)
}

#[tokio::test]
async fn deferred_completions_take_no_more_memory_than_the_limit() {
    let store = FaultyStore::default();
    let runtime = bounded(&store, 4 << 20);
    let policy = with_lease(ms(60_000));
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    for batch in 0..30 {
        let mut endings = tokio::task::JoinSet::new();
        for key in batch * 10..(batch + 1) * 10 {
            let attempt = proceed(&runtime, &format!("k{key}"), "b", &policy).await;
            endings.spawn(async move { attempt.complete(&large(1 << 20)).await });
        }
        assert_eq!(endings.join_all().await, [const { AttemptOutcome::Deferred }; 10]);
    }
    let deferred = gauges(&runtime);
    assert!(deferred.deferred_ends == 300 && deferred.deferred_bytes <= 4 << 20, "{deferred:?}");
    // Three responses fit completely, and of the others only status and headers.
    let mut complete = 0;
    for key in 0..300 {
        let verdict = verdict_of(&runtime, &format!("k{key}"), "b", &policy).await;
        complete += usize::from(verdict == Verdict::Rejected(Rejection::Completed(large(1 << 20))));
        let omitted =
            Verdict::Rejected(Rejection::Completed(with_location(&RecordedBody::Omitted)));
        assert!(
            verdict == omitted
                || verdict == Verdict::Rejected(Rejection::Completed(large(1 << 20))),
            "k{key}"
        );
    }
    assert_eq!(complete, 3);
    store.heal();
    in_time(runtime.drain()).await;
    let gauges = gauges(&runtime);
    assert_eq!((gauges.deferred_ends, gauges.deferred_bytes), (0, 0));
}

#[tokio::test]
async fn an_end_that_exceeds_the_memory_limit_is_dropped_and_its_lease_expires() {
    let store = FaultyStore::default();
    let runtime = bounded(&store, 2_500);
    let policy = with_lease(ms(60_000));
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    for key in 0..3 {
        let attempt = proceed(&runtime, &format!("k{key}"), "b", &policy).await;
        assert_eq!(attempt.complete(&large(10_000)).await, AttemptOutcome::Deferred);
    }
    assert_eq!((gauges(&runtime).deferred_ends, gauges(&runtime).live_leases), (2, 2));
    assert!(matches!(
        verdict_of(&runtime, "k2", "b", &policy).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
    store.heal();
    in_time(runtime.drain()).await;
    store.advance(policy.lease);
    assert_eq!(proceed(&runtime, "k2", "b", &policy).await.number(), 2, "its lease did not expire");
    assert!(matches!(
        verdict_of(&runtime, "k1", "b", &policy).await,
        Verdict::Rejected(Rejection::Completed(_))
    ));
}

#[tokio::test]
async fn a_release_that_exceeds_the_memory_limit_is_dropped() {
    let store = FaultyStore::default();
    let runtime = bounded(&store, 0);
    store.set_fault(Op::Release, ALWAYS, Fault::Before);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.release().await, AttemptOutcome::Deferred);
    in_time(runtime.drain()).await;
    assert_eq!(store.begun(Op::Release), 1);
}
