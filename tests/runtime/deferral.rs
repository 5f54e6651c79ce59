//! Ends of attempts that are stored later because the store failed.

use idempotent_core::{
    Abandoned, Policy, RecordState,
    internals::gauges,
    protocol::{ClaimOutcome, Rejection},
    runtime::{AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const ALWAYS: usize = usize::MAX;

#[tokio::test]
async fn a_completion_that_fails_once_is_sent_again_before_the_response() {
    for fault in [Fault::Before, Fault::After] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.set_fault(Op::Complete, 1, fault);
        assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored, "{fault:?}");
        assert_eq!(store.begun(Op::Complete), 2);
    }
}

#[tokio::test]
async fn a_completion_is_stored_once_the_store_is_available_again() {
    for fault in [Fault::Before, Fault::After, Fault::Permanent] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.set_fault(Op::Complete, 3, fault);
        assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred, "{fault:?}");
        in_time(runtime.drain()).await;
        assert!(store.begun(Op::Complete) >= 3);
        assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
        assert_eq!(gauges(&runtime).live_leases, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_a_completion_in_the_background() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = tokio::spawn({
        let runtime = runtime.clone();
        async move { verdict_of(&runtime, "k", "b", &with_wait(ms(60_000))).await }
    });
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    until("the duplicate waits", || gauges(&runtime).waiters == 1).await;
    let paused = tokio::time::Instant::now();
    store.heal();
    until("the waiter has its verdict", || waiter.is_finished()).await;
    // The paused clock advances only while all tasks are idle. It did not, so the waiter was woken
    // instead of polling.
    assert_eq!((waiter.await.unwrap(), paused.elapsed()), (replay_of("a"), ms(0)));
}

#[tokio::test]
async fn the_lease_is_kept_alive_until_the_completion_is_stored() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(900));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    until("the lease is renewed", || !store.batches().is_empty()).await;
    store.heal();
    in_time(runtime.drain()).await;
    assert!(matches!(
        verdict_of(&runtime, "k", "b", &policy).await,
        Verdict::Rejected(Rejection::Completed(_))
    ));
}

#[tokio::test]
async fn a_deferred_completion_is_fenced_when_another_has_taken_over() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    store.advance(Policy::DEFAULT.lease);
    let (owner, _) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    store.heal();
    in_time(runtime.drain()).await;
    let found =
        store.inner().look_up(&id("k")).await.unwrap().expect("the record of the other attempt");
    assert_eq!((found.record.owner, found.record.state), (owner, RecordState::InFlight));
    assert_eq!(gauges(&runtime).live_leases, 0);
}

#[tokio::test]
async fn a_completion_is_retried_for_longer_than_its_lease() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(20));
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    // The pauses between these calls take several leases.
    until("the completion is retried", || store.begun(Op::Complete) >= 6).await;
    store.heal();
    in_time(runtime.drain()).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &policy).await, replay_of("a"));
}

#[tokio::test]
async fn a_deferred_end_is_given_up_after_the_ttl() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(100)).with_ttl(ms(200));
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    stop_renewals(&store).await;
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    in_time(runtime.drain()).await;
    assert_eq!(gauges(&runtime).live_leases, 0);
    store.heal();
    store.advance(policy.lease);
    assert_eq!(proceed(&runtime, "k", "b", &policy).await.number(), 2, "the lease did not expire");
    assert_eq!(store.handles(), 2, "only this handle and the runtime's are left");
}

#[tokio::test]
async fn a_release_and_an_abandonment_are_sent_again_and_not_renewed() {
    for abandon in [false, true] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let policy = with_lease(ms(1_000));
        let attempt = proceed(&runtime, "k", "b", &policy).await;
        store.set_fault(Op::Release, 2, Fault::After);
        store.set_fault(Op::Abandon, 2, Fault::After);
        let ending =
            if abandon { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert_eq!(ending, AttemptOutcome::Deferred);
        assert_eq!(gauges(&runtime).live_leases, 0, "a renewal could revive the lease");
        in_time(runtime.drain()).await;
        proceed(&runtime, "k", "b", &policy).await;
    }
}

#[tokio::test]
async fn a_deferred_completion_is_stored_even_if_its_runtime_was_dropped() {
    for _ in 0..20 {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.set_fault(Op::Complete, 2, Fault::Before);
        assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
        drop(runtime);
        until("the runtime is gone", || store.handles() == 1).await;
        let found = store.inner().look_up(&id("k")).await.unwrap().expect("the record is kept");
        assert!(matches!(found.record.state, RecordState::Completed(_)));
    }
}

#[tokio::test]
async fn a_store_that_panics_does_not_prevent_a_shutdown() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    store.set_fault(Op::Complete, ALWAYS, Fault::Panic);
    in_time(runtime.drain()).await;
    assert_eq!(gauges(&runtime).live_leases, 0);
}

#[tokio::test]
async fn the_lease_is_renewed_until_the_hold_is_stored() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(300));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    store.set_fault(Op::Abandon, 2, Fault::Before);
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Deferred);
    assert_eq!(gauges(&runtime).live_leases, 1, "the lease is not renewed");
    in_time(runtime.drain()).await;
    store.advance(policy.lease * 2);
    assert_eq!(
        verdict_of(&runtime, "k", "b", &policy).await,
        Verdict::Rejected(Rejection::Held { newly: false, reference: None })
    );
    assert_eq!(gauges(&runtime).live_leases, 0);
}

#[tokio::test]
async fn an_attempt_known_to_be_fenced_returns_no_response_while_the_store_fails() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    stop_renewals(&store).await;
    store.advance(ms(1000));
    let (_, outcome) = claim_in_another_process(&store, "k", "b", &policy).await;
    assert!(matches!(outcome, ClaimOutcome::Granted { attempt: 2 }), "{outcome:?}");
    store.heal();
    until("the renewal finds the attempt fenced", || gauges(&runtime).live_leases == 0).await;
    store.set_fault(Op::Complete, 2, Fault::Before);
    let ending = attempt.complete(&response("stale")).await;
    assert!(
        matches!(ending, AttemptOutcome::Fenced(Verdict::Rejected(Rejection::InFlight { .. }))),
        "{ending:?}"
    );
}
