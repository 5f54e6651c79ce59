//! Ends that the store failed to take.

use crate::{
    policy::{Abandoned, Policy},
    protocol::ClaimOutcome,
    runtime::{
        AttemptOutcome, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

const FOR_EVER: usize = usize::MAX;

#[tokio::test]
async fn a_completion_that_fails_at_first_is_sent_again_before_the_answer_goes() {
    for fault in [Fault::Before, Fault::After] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.fail(Op::Complete, fault, 1);
        assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored, "{fault:?}");
        assert_eq!(store.calls(Op::Complete), 2);
    }
}

#[tokio::test]
async fn a_completion_is_stored_once_the_store_is_back() {
    for fault in [Fault::Before, Fault::After, Fault::Permanent] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.fail(Op::Complete, fault, 3);
        assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred, "{fault:?}");
        soon(runtime.settled()).await;
        assert!(store.calls(Op::Complete) >= 3);
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
        assert_eq!(runtime.shared.renewal.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_is_woken_by_a_completion_in_the_background() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = tokio::spawn({
        let runtime = runtime.clone();
        async move { told(&runtime, "k", "b", &waiting(ms(60_000))).await }
    });
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    until("it waits", || runtime.shared.waiting.count() == 1).await;
    let paused = tokio::time::Instant::now();
    store.heal();
    until("it is told", || waiter.is_finished()).await;
    // Nobody was idle, so the clock stood still: it was woken and did not poll.
    assert_eq!((waiter.await.unwrap(), paused.elapsed()), (Verdict::Completed(answer("a")), ms(0)));
}

#[tokio::test]
async fn the_lease_is_kept_alive_until_the_completion_is_stored() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(900));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    until("it is renewed", || !store.batches().is_empty()).await;
    store.heal();
    soon(runtime.settled()).await;
    assert!(matches!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(_)));
}

#[tokio::test]
async fn a_deferred_completion_is_fenced_when_another_has_taken_over() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    store.advance(Policy::DEFAULT.lease);
    let (owner, _) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
    store.heal();
    soon(runtime.settled()).await;
    let found = store.inner().look_up(&id("k")).await.unwrap().expect("it is the other's");
    assert_eq!((found.record.owner, found.record.state), (owner, crate::record::RecordState::InFlight));
    assert_eq!(runtime.shared.renewal.count(), 0);
}

#[tokio::test]
async fn a_completion_is_retried_for_longer_than_its_lease() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(20));
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    let attempt = run(&runtime, "k", "b", &policy).await;
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    // The pauses between these take several leases.
    until("it is retried", || store.calls(Op::Complete) >= 6).await;
    store.heal();
    soon(runtime.settled()).await;
    assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(answer("a")));
}

#[tokio::test]
async fn a_deferral_gives_up_after_the_ttl_and_leaves_nothing_behind() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = Policy { ttl: ms(200), ..leased(ms(100)) };
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    let attempt = run(&runtime, "k", "b", &policy).await;
    stop_renewals(&store).await;
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    soon(runtime.settled()).await;
    assert_eq!(runtime.shared.renewal.count(), 0);
    store.heal();
    store.advance(policy.lease);
    assert_eq!(run(&runtime, "k", "b", &policy).await.number(), 2, "it lapses");
    assert_eq!(store.holders(), 2, "this handle and the runtime's");
}

#[tokio::test]
async fn a_release_and_an_abandonment_are_told_again_and_not_kept_alive() {
    for abandon in [false, true] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let policy = leased(ms(1_000));
        let attempt = run(&runtime, "k", "b", &policy).await;
        store.fail(Op::Release, Fault::After, 2);
        store.fail(Op::Abandon, Fault::After, 2);
        let ending = if abandon { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert_eq!(ending, AttemptOutcome::Deferred);
        assert_eq!(runtime.shared.renewal.count(), 0, "a renewal would revive what is given up");
        soon(runtime.settled()).await;
        run(&runtime, "k", "b", &policy).await;
    }
}

#[tokio::test]
async fn a_deferred_completion_is_stored_though_its_runtime_was_dropped() {
    for _ in 0..20 {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.fail(Op::Complete, Fault::Before, 2);
        assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
        drop(runtime);
        until("the runtime is gone", || store.holders() == 1).await;
        let found = store.inner().look_up(&id("k")).await.unwrap().expect("it is kept");
        assert!(matches!(found.record.state, crate::record::RecordState::Completed(_)));
    }
}

#[tokio::test]
async fn a_store_that_panics_does_not_keep_anyone_from_shutting_down() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
    store.fail(Op::Complete, Fault::Panic, FOR_EVER);
    soon(runtime.settled()).await;
    assert_eq!(runtime.shared.renewal.count(), 0);
}

#[tokio::test]
async fn what_is_to_be_held_is_kept_until_the_store_has_it() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(300));
    let attempt = run(&runtime, "k", "b", &policy).await;
    store.fail(Op::Abandon, Fault::Before, 2);
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Deferred);
    assert_eq!(runtime.shared.renewal.count(), 1, "the lease lives on");
    soon(runtime.settled()).await;
    store.advance(policy.lease * 2);
    assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Held { newly: false });
    assert_eq!(runtime.shared.renewal.count(), 0);
}

#[tokio::test]
async fn an_attempt_that_is_known_to_be_fenced_does_not_answer_though_the_store_fails() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60));
    let attempt = run(&runtime, "k", "b", &policy).await;
    stop_renewals(&store).await;
    store.advance(ms(1000));
    let (_, outcome) = stranger(&store, "k", "b", &policy).await;
    assert!(matches!(outcome, ClaimOutcome::Granted { attempt: 2 }), "{outcome:?}");
    store.heal();
    until("the renewal says that it is fenced", || runtime.shared.renewal.count() == 0).await;
    store.fail(Op::Complete, Fault::Before, 2);
    let ending = attempt.complete(&answer("stale")).await;
    assert!(matches!(ending, AttemptOutcome::Fenced(Verdict::InFlight { .. })), "{ending:?}");
}
