//! A deferred end in memory determines the outcome of later requests with its key.

use std::task::{Context, Waker};

use idempotent_core::{
    Abandoned, Lease, Policy, RecordState, Runtime,
    internals::gauges,
    protocol::{ClaimOutcome, Rejection},
    runtime::{AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const ALWAYS: usize = usize::MAX;

/// Completes an attempt while the store fails, so that the completion is deferred.
async fn defer_completion(store: &FaultyStore, runtime: &Runtime, policy: &Policy) {
    let attempt = proceed(runtime, "k", "b", policy).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
}

async fn state(store: &FaultyStore) -> Option<RecordState> {
    store.inner().look_up(&id("k")).await.unwrap().map(|found| found.record.state)
}

#[tokio::test]
async fn a_retry_gets_a_deferred_completion_while_the_store_fails() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    defer_completion(&store, &runtime, &Policy::DEFAULT).await;
    let claims = store.begun(Op::Claim);
    for _ in 0..3 {
        assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
        assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &Policy::DEFAULT).await));
    }
    assert_eq!(
        (store.begun(Op::Claim), state(&store).await),
        (claims, Some(RecordState::InFlight))
    );
    store.heal();
    in_time(runtime.drain()).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
}

/// The first client has its response; the retry gets it too, whatever the store does.
#[tokio::test(start_paused = true)]
async fn a_retry_does_not_wait_for_a_store_that_hangs() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    defer_completion(&store, &runtime, &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, ALWAYS, Fault::HangBefore);
    let started = tokio::time::Instant::now();
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, replay_of("a"));
    let took = started.elapsed();
    assert!(took < ms(500), "{took:?}");
    store.heal();
    store.resume();
    until("the completion is stored", || gauges(&runtime).deferred_ends == 0).await;
    assert!(matches!(state(&store).await, Some(RecordState::Completed(_))));
}

#[tokio::test]
async fn a_retry_stores_a_deferred_completion_first() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60_000));
    // Wait until the background thread makes its longest pause between retries.
    defer_completion(&store, &runtime, &policy).await;
    let before = store.begun(Op::Complete);
    until("the background has tried", || store.begun(Op::Complete) >= before + 4).await;
    store.heal();
    assert_eq!(verdict_of(&runtime, "k", "b", &policy).await, replay_of("a"));
    assert!(
        matches!(state(&store).await, Some(RecordState::Completed(_))),
        "the response was replayed before its completion was stored"
    );
}

#[tokio::test]
async fn a_record_that_the_store_has_lost_is_claimed_again_and_completed() {
    for policy in [Policy::DEFAULT, HOLD] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        defer_completion(&store, &runtime, &policy).await;
        let owner = store.inner().look_up(&id("k")).await.unwrap().unwrap().record.owner;
        store.lose(id("k")).await;
        store.heal();
        let mut retries = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let runtime = runtime.clone();
            retries.spawn(async move { verdict_of(&runtime, "k", "b", &policy).await });
        }
        let verdicts = in_time(retries.join_all()).await;
        assert_eq!(verdicts, vec![replay_of("a"); 32]);
        let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
        assert_eq!(
            (found.record.owner, found.record.attempt),
            (owner, 1),
            "the record was not claimed with the same token"
        );
        in_time(runtime.drain()).await;
    }
}

#[tokio::test]
async fn the_background_claims_a_lost_record_again() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    defer_completion(&store, &runtime, &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    store.heal();
    in_time(runtime.drain()).await;
    assert!(matches!(state(&store).await, Some(RecordState::Completed(_))));
    assert_eq!(gauges(&runtime).live_leases, 0);
}

#[tokio::test]
async fn an_attempt_whose_record_was_lost_while_it_ran_is_recorded() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    // The first lease is too long to be renewed here. The second is short, so that a renewal finds
    // the record lost.
    for policy in [Policy::DEFAULT, with_lease(ms(60))] {
        let attempt = proceed(&runtime, "k", "b", &policy).await;
        store.lose(id("k")).await;
        if policy.lease < ms(1_000) {
            until("the renewal finds the record lost", || gauges(&runtime).live_leases == 0).await;
        }
        assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
        assert_eq!(verdict_of(&runtime, "k", "b", &policy).await, replay_of("a"));
        store.advance(Policy::DEFAULT.ttl);
    }
}

#[tokio::test]
async fn after_a_takeover_the_verdict_of_the_successor_applies() {
    for ends in [false, true] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        defer_completion(&store, &runtime, &Policy::DEFAULT).await;
        store.advance(Policy::DEFAULT.lease);
        let (owner, outcome) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
        assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
        if ends {
            let successor = bytes::Bytes::from(response("the successor's"));
            store.inner().complete(&Lease { id: id("k"), owner }, &successor).await.unwrap();
        }
        store.heal();
        let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
        let expected = Verdict::Rejected(Rejection::InFlight {
            lease_left: Policy::DEFAULT.lease,
            reference: None,
        });
        assert_eq!(verdict, if ends { replay_of("the successor's") } else { expected });
        in_time(runtime.drain()).await;
        let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
        assert_eq!(found.record.owner, owner);
    }
}

#[tokio::test]
async fn another_request_that_took_a_lost_key_keeps_it() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    defer_completion(&store, &runtime, &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    let (owner, _) = claim_in_another_process(&store, "k", "other", &Policy::DEFAULT).await;
    store.heal();
    in_time(runtime.drain()).await;
    assert!(is_mismatch(&verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await));
    let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
    assert_eq!((found.record.owner, found.record.state), (owner, RecordState::InFlight));
}

#[tokio::test]
async fn a_hold_is_stored_even_if_its_record_was_lost() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &HOLD).await;
    store.set_fault(Op::Abandon, ALWAYS, Fault::Before);
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Deferred);
    let claims = store.begun(Op::Claim);
    assert_eq!(
        verdict_of(&runtime, "k", "b", &HOLD).await,
        Verdict::Rejected(Rejection::Held { newly: false, reference: None }),
        "from memory"
    );
    assert_eq!(
        (store.begun(Op::Claim), state(&store).await),
        (claims, Some(RecordState::InFlight))
    );
    store.lose(id("k")).await;
    store.heal();
    assert_eq!(
        verdict_of(&runtime, "k", "b", &HOLD).await,
        Verdict::Rejected(Rejection::Held { newly: false, reference: None })
    );
    in_time(runtime.drain()).await;
    assert_eq!(state(&store).await, Some(RecordState::Held));
}

#[tokio::test]
async fn a_record_that_was_completed_by_a_retry_is_not_stored_again_after_its_ttl() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60_000));
    defer_completion(&store, &runtime, &policy).await;
    let before = store.begun(Op::Complete);
    until("the background has tried", || store.begun(Op::Complete) >= before + 4).await;
    store.heal();
    assert_eq!(verdict_of(&runtime, "k", "b", &policy).await, replay_of("a"));
    store.advance(policy.ttl);
    in_time(runtime.drain()).await;
    assert_eq!(
        proceed(&runtime, "k", "b", &policy).await.number(),
        1,
        "the key is not new after the ttl"
    );
}

#[tokio::test]
async fn the_response_of_an_attempt_that_may_have_been_taken_over_is_not_replayed_from_memory() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    store.set_fault(Op::LookUp, ALWAYS, Fault::Before);
    let ending = attempt.complete(&response("a")).await;
    assert_eq!(
        ending,
        AttemptOutcome::Fenced(Verdict::Rejected(Rejection::InFlight {
            lease_left: ms(0),
            reference: None
        }))
    );
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(
        verdict,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None }),
        "the request ran or was replayed"
    );
    store.heal();
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("a"));
    in_time(runtime.drain()).await;
}

#[tokio::test]
async fn a_deferred_completion_that_is_found_fenced_is_not_replayed_from_memory() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    defer_completion(&store, &runtime, &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (_, outcome) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(outcome, ClaimOutcome::Granted { attempt: 2 }), "{outcome:?}");
    // The store fences the completion, but does not return the record of the other attempt.
    store.set_fault(Op::LookUp, ALWAYS, Fault::Before);
    store.set_fault(Op::Complete, 0, Fault::Before);
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(
        verdict,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None })
    );
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(
        verdict,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None })
    );
}

#[tokio::test]
async fn a_fenced_completion_whose_future_is_dropped_is_not_replayed_from_memory() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (owner, _) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    let successor = bytes::Bytes::from(response("the successor's"));
    store.inner().complete(&Lease { id: id("k"), owner }, &successor).await.unwrap();
    store.set_fault(Op::LookUp, ALWAYS, Fault::HangBefore);
    let late = response("the loser's");
    let mut ending = Box::pin(attempt.complete(&late));
    let hangs = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        hangs.is_pending() && store.begun(Op::LookUp) == 1,
        "the completion does not wait for the lookup"
    );
    store.set_fault(Op::Complete, ALWAYS, Fault::Before);
    drop(ending);
    assert_eq!(gauges(&runtime).deferred_ends, 1);
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(
        verdict,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(0), reference: None })
    );
    store.heal();
    store.resume();
    in_time(runtime.drain()).await;
    let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, replay_of("the successor's"));
}

#[tokio::test]
async fn of_two_attempts_that_are_deferred_the_later_one_counts() {
    for earlier_ends_last in [false, true] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let earlier = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.advance(Policy::DEFAULT.lease);
        let later = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        assert_eq!(later.number(), 2);
        store.set_fault(Op::Complete, ALWAYS, Fault::Before);
        let mut attempts = [(earlier, response("the earlier's")), (later, response("the later's"))];
        if earlier_ends_last {
            attempts.reverse();
        }
        for (attempt, recorded) in attempts {
            let (is_later, ending) = (attempt.number() == 2, attempt.complete(&recorded).await);
            // The earlier attempt is known to be fenced.
            assert!(
                if is_later {
                    ending == AttemptOutcome::Deferred
                } else {
                    matches!(ending, AttemptOutcome::Fenced(_))
                },
                "{ending:?}"
            );
        }
        let replay = replay_of("the later's");
        assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay, "from memory");
        store.heal();
        in_time(runtime.drain()).await;
        assert_eq!(
            verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await,
            replay,
            "from the store"
        );
    }
}
