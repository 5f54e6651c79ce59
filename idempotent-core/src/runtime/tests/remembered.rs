//! Ends that the store has not taken are in memory, and count there.

use std::task::{Context, Waker};

use bytes::Bytes;

use crate::{
    lease::Lease,
    policy::{Abandoned, Policy},
    protocol::ClaimOutcome,
    record::RecordState,
    recording::{RecordedBody, Recording},
    runtime::{
        AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        deferred::Load,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

const FOR_EVER: usize = usize::MAX;

/// A completion that the store has failed to take.
async fn deferred(store: &Faulty, runtime: &Runtime, policy: &Policy) {
    let attempt = run(runtime, "k", "b", policy).await;
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Deferred);
}

async fn state(store: &Faulty) -> Option<RecordState> {
    store.inner().look_up(&id("k")).await.unwrap().map(|found| found.record.state)
}

#[tokio::test]
async fn a_retry_gets_what_is_deferred_though_the_store_still_fails() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    deferred(&store, &runtime, &Policy::DEFAULT).await;
    let claims = store.calls(Op::Claim);
    for _ in 0..3 {
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
        assert_eq!(told(&runtime, "k", "other", &Policy::DEFAULT).await, Verdict::Mismatch);
    }
    assert_eq!((store.calls(Op::Claim), state(&store).await), (claims, Some(RecordState::InFlight)));
    store.heal();
    soon(runtime.settled()).await;
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
}

#[tokio::test]
async fn a_retry_completes_first_what_is_deferred() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60_000));
    // The background has come to its longest pause.
    deferred(&store, &runtime, &policy).await;
    let before = store.calls(Op::Complete);
    until("the background has tried", || store.calls(Op::Complete) >= before + 4).await;
    store.heal();
    assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(answer("a")));
    assert!(matches!(state(&store).await, Some(RecordState::Completed(_))), "it is in the store before the replay");
}

#[tokio::test]
async fn a_record_that_the_store_has_lost_is_claimed_again_and_completed() {
    for policy in [Policy::DEFAULT, HOLD] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        deferred(&store, &runtime, &policy).await;
        let owner = store.inner().look_up(&id("k")).await.unwrap().unwrap().record.owner;
        store.lose(id("k")).await;
        store.heal();
        let mut retries = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let runtime = runtime.clone();
            retries.spawn(async move { told(&runtime, "k", "b", &policy).await });
        }
        let verdicts = soon(retries.join_all()).await;
        assert_eq!(verdicts, vec![Verdict::Completed(answer("a")); 32]);
        let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
        assert_eq!((found.record.owner, found.record.attempt), (owner, 1), "under the same token");
        soon(runtime.settled()).await;
    }
}

#[tokio::test]
async fn the_background_claims_a_lost_record_again() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    deferred(&store, &runtime, &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    store.heal();
    soon(runtime.settled()).await;
    assert!(matches!(state(&store).await, Some(RecordState::Completed(_))));
    assert_eq!(runtime.shared.renewal.count(), 0);
}

#[tokio::test]
async fn an_attempt_whose_record_was_lost_while_it_ran_is_recorded() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    // Long enough not to be renewed, and so short that the loss is found by a renewal.
    for policy in [Policy::DEFAULT, leased(ms(60))] {
        let attempt = run(&runtime, "k", "b", &policy).await;
        store.lose(id("k")).await;
        if policy.lease < ms(1_000) {
            until("the renewal finds it lost", || runtime.shared.renewal.count() == 0).await;
        }
        assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
        assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(answer("a")));
        store.advance(Policy::DEFAULT.ttl);
    }
}

#[tokio::test]
async fn a_successor_s_verdict_counts_where_another_has_taken_over() {
    for ends in [false, true] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        deferred(&store, &runtime, &Policy::DEFAULT).await;
        store.advance(Policy::DEFAULT.lease);
        let (owner, outcome) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
        assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
        if ends {
            let recording = answer("the successor's").encode();
            store.inner().complete(&Lease { id: id("k"), owner }, &recording).await.unwrap();
        }
        store.heal();
        let verdict = told(&runtime, "k", "b", &Policy::DEFAULT).await;
        let expected = Verdict::InFlight { lease_left: Policy::DEFAULT.lease };
        assert_eq!(verdict, if ends { Verdict::Completed(answer("the successor's")) } else { expected });
        soon(runtime.settled()).await;
        let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
        assert_eq!(found.record.owner, owner);
    }
}

#[tokio::test]
async fn another_request_that_took_a_lost_key_keeps_it() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    deferred(&store, &runtime, &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    let (owner, _) = stranger(&store, "k", "other", &Policy::DEFAULT).await;
    store.heal();
    soon(runtime.settled()).await;
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Mismatch);
    let found = store.inner().look_up(&id("k")).await.unwrap().unwrap();
    assert_eq!((found.record.owner, found.record.state), (owner, RecordState::InFlight));
}

#[tokio::test]
async fn what_is_to_be_held_is_held_though_its_record_was_lost() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &HOLD).await;
    store.fail(Op::Abandon, Fault::Before, FOR_EVER);
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Deferred);
    let claims = store.calls(Op::Claim);
    assert_eq!(told(&runtime, "k", "b", &HOLD).await, Verdict::Held { newly: false }, "from memory");
    assert_eq!((store.calls(Op::Claim), state(&store).await), (claims, Some(RecordState::InFlight)));
    store.lose(id("k")).await;
    store.heal();
    assert_eq!(told(&runtime, "k", "b", &HOLD).await, Verdict::Held { newly: false });
    soon(runtime.settled()).await;
    assert_eq!(state(&store).await, Some(RecordState::Held));
}

#[tokio::test]
async fn a_record_that_was_completed_by_a_retry_is_not_brought_back_after_its_ttl() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60_000));
    deferred(&store, &runtime, &policy).await;
    let before = store.calls(Op::Complete);
    until("the background has tried", || store.calls(Op::Complete) >= before + 4).await;
    store.heal();
    assert_eq!(told(&runtime, "k", "b", &policy).await, Verdict::Completed(answer("a")));
    store.advance(policy.ttl);
    soon(runtime.settled()).await;
    assert_eq!(run(&runtime, "k", "b", &policy).await.number(), 1, "after the ttl the key is new");
}

/// A runtime with room for so many bytes of deferred ends.
fn bounded(store: &Faulty, bytes: usize) -> Runtime {
    Runtime::new(store.clone(), RuntimeOptions { deferred_bytes: bytes, ..quiet() })
}

fn large(bytes: usize) -> Recording {
    let header = (Bytes::from_static(b"location"), Bytes::from_static(b"/payments/1"));
    Recording { status: 201, headers: vec![header], body: RecordedBody::Whole(vec![7; bytes].into()) }
}

#[tokio::test]
async fn deferred_completions_take_no_more_memory_than_they_may() {
    let store = Faulty::new();
    let runtime = bounded(&store, 4 << 20);
    let policy = leased(ms(60_000));
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    for crowd in 0..30 {
        let mut endings = tokio::task::JoinSet::new();
        for key in crowd * 10..(crowd + 1) * 10 {
            let attempt = run(&runtime, &format!("k{key}"), "b", &policy).await;
            endings.spawn(async move { attempt.complete(&large(1 << 20)).await });
        }
        assert_eq!(endings.join_all().await, [const { AttemptOutcome::Deferred }; 10]);
    }
    let load = runtime.shared.deferrals.load();
    assert!(load.ends == 300 && load.bytes <= 4 << 20, "{load:?}");
    // Three whole responses fit, and the status and headers of the others.
    let mut whole = 0;
    for key in 0..300 {
        let verdict = told(&runtime, &format!("k{key}"), "b", &policy).await;
        whole += usize::from(verdict == Verdict::Completed(large(1 << 20)));
        let omitted = Verdict::Completed(Recording { body: RecordedBody::Omitted, ..large(0) });
        assert!(verdict == omitted || verdict == Verdict::Completed(large(1 << 20)), "k{key}");
    }
    assert_eq!(whole, 3);
    store.heal();
    soon(runtime.settled()).await;
    assert_eq!(runtime.shared.deferrals.load(), Load::default());
}

#[tokio::test]
async fn an_end_for_which_there_is_no_room_is_dropped_and_its_lease_expires() {
    let store = Faulty::new();
    let runtime = bounded(&store, 2_500);
    let policy = leased(ms(60_000));
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    for key in 0..3 {
        let attempt = run(&runtime, &format!("k{key}"), "b", &policy).await;
        assert_eq!(attempt.complete(&large(10_000)).await, AttemptOutcome::Deferred);
    }
    assert_eq!((runtime.shared.deferrals.load().ends, runtime.shared.renewal.count()), (2, 2));
    assert!(matches!(told(&runtime, "k2", "b", &policy).await, Verdict::InFlight { .. }));
    store.heal();
    soon(runtime.settled()).await;
    store.advance(policy.lease);
    assert_eq!(run(&runtime, "k2", "b", &policy).await.number(), 2, "its lease has expired");
    assert!(matches!(told(&runtime, "k1", "b", &policy).await, Verdict::Completed(_)));
}

#[tokio::test]
async fn a_release_for_which_there_is_no_room_is_dropped() {
    let store = Faulty::new();
    let runtime = bounded(&store, 0);
    store.fail(Op::Release, Fault::Before, FOR_EVER);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.release().await, AttemptOutcome::Deferred);
    soon(runtime.settled()).await;
    assert_eq!(store.calls(Op::Release), 1);
}

#[tokio::test]
async fn the_response_of_an_attempt_that_may_have_been_replaced_is_not_replayed_from_memory() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.lose(id("k")).await;
    store.fail(Op::LookUp, Fault::Before, FOR_EVER);
    let ending = attempt.complete(&answer("a")).await;
    assert_eq!(ending, AttemptOutcome::Fenced(Verdict::InFlight { lease_left: ms(0) }));
    let verdict = told(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, Verdict::InFlight { lease_left: ms(0) }, "it neither runs nor is it replayed");
    store.heal();
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("a")));
    soon(runtime.settled()).await;
}

#[tokio::test]
async fn a_fenced_completion_whose_future_is_dropped_is_not_replayed_from_memory() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (owner, _) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
    let recording = answer("the successor's").encode();
    store.inner().complete(&Lease { id: id("k"), owner }, &recording).await.unwrap();
    store.fail(Op::LookUp, Fault::HangBefore, FOR_EVER);
    let late = answer("the loser's");
    let mut ending = Box::pin(attempt.complete(&late));
    let hangs = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(hangs.is_pending() && store.calls(Op::LookUp) == 1, "it does not wait for the look");
    store.fail(Op::Complete, Fault::Before, FOR_EVER);
    drop(ending);
    assert_eq!(runtime.shared.deferrals.load().ends, 1);
    let verdict = told(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, Verdict::InFlight { lease_left: ms(0) });
    store.heal();
    store.let_go();
    soon(runtime.settled()).await;
    let verdict = told(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, Verdict::Completed(answer("the successor's")));
}

#[tokio::test]
async fn of_two_attempts_that_are_deferred_the_later_one_counts() {
    for earlier_ends_last in [false, true] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let earlier = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        store.advance(Policy::DEFAULT.lease);
        let later = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        assert_eq!(later.number(), 2);
        store.fail(Op::Complete, Fault::Before, FOR_EVER);
        let mut attempts = [(earlier, answer("the earlier's")), (later, answer("the later's"))];
        if earlier_ends_last {
            attempts.reverse();
        }
        for (attempt, response) in attempts {
            let (is_later, ending) = (attempt.number() == 2, attempt.complete(&response).await);
            // That the earlier one has lost the key is known here.
            assert!(
                if is_later { ending == AttemptOutcome::Deferred } else { matches!(ending, AttemptOutcome::Fenced(_)) },
                "{ending:?}"
            );
        }
        let replay = Verdict::Completed(answer("the later's"));
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, replay, "from memory");
        store.heal();
        soon(runtime.settled()).await;
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, replay, "from the store");
    }
}
