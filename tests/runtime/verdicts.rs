//! The verdict on a request, for each state of its key.

use idempotent_core::{
    Abandoned, Lease, Policy, Runtime,
    protocol::{Actor, Rejection, Resolution, ResolveOutcome},
    runtime::{AttemptOutcome, RuntimeOptions, Verdict},
    store::Store,
};
use test_support::FaultyStore;

use crate::support::*;

#[tokio::test]
async fn a_completed_operation_is_replayed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!((attempt.id(), attempt.number()), (&id("k"), 1));
    assert_eq!(attempt.complete(&response("first")).await, AttemptOutcome::Stored);
    for _ in 0..2 {
        assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of("first"));
    }
    store.advance(Policy::DEFAULT.ttl);
    assert_eq!(
        proceed(&runtime, "k", "b", &Policy::DEFAULT).await.number(),
        1,
        "the key is not new after the ttl"
    );
}

#[tokio::test]
async fn another_payload_is_a_mismatch_in_every_state() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &HOLD).await;
    assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &HOLD).await), "in flight");
    store.advance(HOLD.lease);
    assert_eq!(
        verdict_of(&runtime, "k", "b", &HOLD).await,
        Verdict::Rejected(Rejection::Held { newly: true, reference: None })
    );
    assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &HOLD).await), "held");
    assert_eq!(
        attempt.complete(&response("late")).await,
        AttemptOutcome::Stored,
        "the attempt is fenced although no other owns the key"
    );
    assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &HOLD).await), "completed");
}

#[tokio::test]
async fn a_duplicate_in_flight_gets_the_rest_of_the_lease() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let _attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(ms(10_000));
    assert_eq!(
        verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await,
        Verdict::Rejected(Rejection::InFlight { lease_left: ms(20_000), reference: None })
    );
}

#[tokio::test]
async fn a_recording_that_cannot_be_read_is_never_run_again() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let (owner, _) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    let lease = Lease { id: id("k"), owner };
    store.inner().complete(&lease, &b"no recording"[..].into()).await.unwrap();
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Unreadable);
}

#[tokio::test]
async fn an_operator_resolves_a_held_key() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    for (key, resolution) in
        [("c", Resolution::Complete(response("resolved").into())), ("r", Resolution::Release)]
    {
        let attempt = proceed(&runtime, key, "b", &HOLD).await;
        assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Stored);
        let seen = runtime.look_up(&id(key)).await.unwrap().expect("a held record").record.owner;
        let id = id(key);
        let (administrator, actor) = (runtime.administrator(), Actor::default());
        let resolve = || administrator.resolve(&id, &seen, &resolution, &actor);
        assert_eq!(resolve().await.unwrap(), ResolveOutcome::Resolved);
        assert_eq!(resolve().await.unwrap(), ResolveOutcome::Conflict);
    }
    assert_eq!(verdict_of(&runtime, "c", "b", &HOLD).await, replay_of("resolved"));
    assert_eq!(proceed(&runtime, "r", "b", &HOLD).await.number(), 1);
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    let longest = std::time::Duration::MAX;
    let store = FaultyStore::default();
    let runtime = Runtime::new(
        store.clone(),
        options(|options| {
            options.store_timeout = longest;
            options.purge_every = RuntimeOptions::default().purge_every;
        }),
    );
    let policy = with_lease(longest).with_ttl(longest).with_wait(longest);
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    let (waiter, ending) = in_time(async {
        tokio::join!(verdict_of(&runtime, "k", "b", &policy), async {
            tokio::task::yield_now().await;
            attempt.complete(&response("a")).await
        })
    })
    .await;
    assert_eq!((waiter, ending), (replay_of("a"), AttemptOutcome::Stored));
}
