//! Keys whose outcome nobody knows.

use crate::{
    conformance::bench::{Bench, answer, granted, owner},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Resolution, ResolveOutcome},
    record::{Record, RecordState},
};

pub(in crate::conformance) async fn an_abandoned_key_is_held(bench: Bench) {
    // By the policy of the claim, by that of the call, and by both.
    for (request, policy) in [
        (bench.hold_request(), Abandoned::Retry),
        (bench.request(), Abandoned::Hold),
        (bench.hold_request(), Abandoned::Hold),
    ] {
        let key = bench.key();
        let lease = key.claimed(request).await;
        let before = key.record().await.unwrap();
        assert_eq!(key.abandon(&lease, policy).await, Fence::Passed);
        assert_eq!(key.record().await, Some(Record { state: RecordState::Held, ..before }));
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Held { newly: false });
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
    }
}

pub(in crate::conformance) async fn a_lapsed_key_is_held_when_either_claim_wants_it(bench: Bench) {
    for (first, second) in [
        (bench.hold_request(), bench.request()),
        (bench.request(), bench.hold_request()),
        (bench.hold_request(), bench.hold_request()),
    ] {
        let key = bench.key();
        let lease = key.claimed(first).await;
        bench.lapse().await;
        assert_eq!(key.claim(&second).await, ClaimOutcome::Held { newly: true });
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Held { newly: false });
    }
}

pub(in crate::conformance) async fn a_held_key_never_runs_again_even_after_its_ttl(bench: Bench) {
    let (abandoned, lapsed) = (bench.key(), bench.key());
    abandoned.held().await;
    lapsed.claimed(bench.hold_request()).await;
    bench.expire().await;
    bench.purge_all().await;
    for (key, lapsed) in [(abandoned, false), (lapsed, true)] {
        assert!(key.record().await.is_some());
        for (request, newly) in [(bench.request(), lapsed), (bench.hold_request(), false)] {
            assert_eq!(key.claim(&request).await, ClaimOutcome::Held { newly });
        }
    }
}

pub(in crate::conformance) async fn a_late_owner_completes_a_held_key(bench: Bench) {
    let (abandoned, lapsed) = (bench.key(), bench.key());
    let one = abandoned.held().await;
    let two = lapsed.claimed(bench.hold_request()).await;
    bench.lapse().await;
    assert_eq!(lapsed.claim(&bench.request()).await, ClaimOutcome::Held { newly: true });
    for (key, lease) in [(abandoned, one), (lapsed, two)] {
        assert_eq!(key.complete(&lease, &answer("late")).await, Fence::Passed);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("late")));
    }
}

pub(in crate::conformance) async fn the_owner_of_a_held_key_can_neither_renew_nor_release_it(bench: Bench) {
    let key = bench.key();
    let lease = key.held().await;
    let before = key.record().await;
    assert_eq!(key.renew(&lease, bench.tick()).await, Fence::Fenced);
    assert_eq!(key.release(&lease).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Fenced);
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_held_key_is_resolved_by_an_answer(bench: Bench) {
    let key = bench.key();
    let seen = key.held().await.owner;
    let expires_at = key.record().await.unwrap().expires_at;
    assert_eq!(key.resolve(&seen, Resolution::Complete(answer("known"))).await, ResolveOutcome::Resolved);
    assert_eq!(key.record().await.unwrap().expires_at, expires_at);
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("known")));
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Conflict);
}

pub(in crate::conformance) async fn a_held_key_is_resolved_by_a_release(bench: Bench) {
    let key = bench.key();
    let seen = key.held().await.owner;
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Resolved);
    assert_eq!(key.record().await, None);
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Conflict);
    assert_eq!(key.claim(&bench.other_request()).await, granted(1));
    key.assert_fenced(seen).await;
}

pub(in crate::conformance) async fn a_lapsed_key_is_resolved_before_anyone_asks_for_it(bench: Bench) {
    let (one, two) = (bench.key(), bench.key());
    let (first, second) = (one.claimed(bench.hold_request()).await, two.claimed(bench.hold_request()).await);
    bench.lapse().await;
    let known = Resolution::Complete(answer("known"));
    assert_eq!(one.resolve(&first.owner, known).await, ResolveOutcome::Resolved);
    assert_eq!(one.claim(&bench.request()).await, ClaimOutcome::Completed(answer("known")));
    assert_eq!(two.resolve(&second.owner, Resolution::Release).await, ResolveOutcome::Resolved);
    assert_eq!(two.claim(&bench.request()).await, granted(1));
}

pub(in crate::conformance) async fn a_key_that_is_not_held_is_not_resolved(bench: Bench) {
    let [absent, live, lapsed, completed] = [bench.key(), bench.key(), bench.key(), bench.key()];
    let answered = bench.key();
    let abandoned = lapsed.claimed(bench.request()).await;
    let careful = answered.claimed(bench.hold_request()).await;
    assert_eq!(answered.complete(&careful, &answer("done")).await, Fence::Passed);
    bench.lapse().await;
    let working = live.claimed(bench.hold_request()).await;
    let done = completed.completed(&answer("done")).await;
    for (key, seen) in [
        (absent, owner()),
        (live, working.owner),
        (lapsed, abandoned.owner),
        (completed, done.owner),
        (answered, careful.owner),
    ] {
        let before = key.record().await;
        for resolution in [Resolution::Release, Resolution::Complete(answer("wrong"))] {
            assert_eq!(key.resolve(&seen, resolution).await, ResolveOutcome::Conflict);
        }
        assert_eq!(key.record().await, before);
    }
}

pub(in crate::conformance) async fn a_resolution_needs_the_owner_that_was_seen(bench: Bench) {
    let key = bench.key();
    key.held().await;
    let before = key.record().await;
    for resolution in [Resolution::Release, Resolution::Complete(answer("wrong"))] {
        assert_eq!(key.resolve(&owner(), resolution).await, ResolveOutcome::Conflict);
    }
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_late_owner_is_fenced_by_a_resolution(bench: Bench) {
    let key = bench.key();
    let lease = key.held().await;
    key.resolve(&lease.owner, Resolution::Complete(answer("known"))).await;
    assert_eq!(key.record().await.unwrap().owner, crate::transition::NOBODY);
    key.assert_fenced(lease.owner).await;
}
