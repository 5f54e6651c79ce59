//! What a request is told.

use crate::{
    policy::Policy,
    protocol::{Resolution, ResolveOutcome},
    runtime::{
        AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        tests::{faulty::Faulty, support::*},
    },
    store::Store,
};

#[tokio::test]
async fn a_completed_operation_is_replayed() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!((attempt.id(), attempt.number()), (&id("k"), 1));
    assert_eq!(attempt.complete(&answer("first")).await, AttemptOutcome::Stored);
    for _ in 0..2 {
        assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Completed(answer("first")));
    }
    store.advance(Policy::DEFAULT.ttl);
    assert_eq!(run(&runtime, "k", "b", &Policy::DEFAULT).await.number(), 1, "after the ttl the key is new");
}

#[tokio::test]
async fn another_payload_is_a_mismatch_in_every_state() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &HOLD).await;
    assert_eq!(told(&runtime, "k", "other", &HOLD).await, Verdict::Mismatch, "in flight");
    store.advance(HOLD.lease);
    assert_eq!(told(&runtime, "k", "b", &HOLD).await, Verdict::Held { newly: true });
    assert_eq!(told(&runtime, "k", "other", &HOLD).await, Verdict::Mismatch, "held");
    assert_eq!(attempt.complete(&answer("late")).await, AttemptOutcome::Stored, "nobody had replaced it");
    assert_eq!(told(&runtime, "k", "other", &HOLD).await, Verdict::Mismatch, "completed");
}

#[tokio::test]
async fn a_duplicate_in_flight_is_told_how_long_the_lease_lasts() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let _attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(ms(10_000));
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::InFlight { lease_left: ms(20_000) });
}

#[tokio::test]
async fn a_recording_that_cannot_be_read_is_never_run_again() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let (owner, _) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
    let lease = crate::lease::Lease { id: id("k"), owner };
    store.inner().complete(&lease, &b"no recording"[..].into()).await.unwrap();
    assert_eq!(told(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Unreadable);
}

#[tokio::test]
async fn a_held_key_is_resolved_as_the_operator_says() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    for (key, resolution) in [("c", Resolution::Complete(answer("said").encode())), ("r", Resolution::Release)] {
        let attempt = run(&runtime, key, "b", &HOLD).await;
        assert_eq!(attempt.abandon(HOLD.abandoned).await, AttemptOutcome::Stored);
        let seen = runtime.look_up(&id(key)).await.unwrap().expect("it is held").record.owner;
        let id = id(key);
        let resolve = || runtime.resolve(&id, &seen, &resolution);
        assert_eq!(resolve().await.unwrap(), ResolveOutcome::Resolved);
        assert_eq!(resolve().await.unwrap(), ResolveOutcome::Conflict);
    }
    assert_eq!(told(&runtime, "c", "b", &HOLD).await, Verdict::Completed(answer("said")));
    assert_eq!(run(&runtime, "r", "b", &HOLD).await.number(), 1);
}

#[tokio::test]
async fn durations_of_any_length_are_taken() {
    let longest = std::time::Duration::MAX;
    let store = Faulty::new();
    let runtime = Runtime::new(store.clone(), RuntimeOptions { store_timeout: longest, ..RuntimeOptions::default() });
    let policy = Policy { lease: longest, ttl: longest, wait: longest, ..Policy::DEFAULT };
    let attempt = run(&runtime, "k", "b", &policy).await;
    let (waiter, ending) = soon(async {
        tokio::join!(told(&runtime, "k", "b", &policy), async {
            tokio::task::yield_now().await;
            attempt.complete(&answer("a")).await
        })
    })
    .await;
    assert_eq!((waiter, ending), (Verdict::Completed(answer("a")), AttemptOutcome::Stored));
}
