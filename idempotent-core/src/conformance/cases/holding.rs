//! Held keys: keys whose outcome is unknown.

use crate::{
    conformance::fixture::{Fixture, granted, owner, recording, replay_of},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Rejection, Resolution, ResolveOutcome},
    record::{Record, RecordState},
};

pub(in crate::conformance) async fn an_abandoned_key_is_held(fixture: Fixture) {
    // By the policy of the claim, by that of the call, and by both.
    for (request, policy) in [
        (fixture.hold_request(), Abandoned::Retry),
        (fixture.request(), Abandoned::Hold),
        (fixture.hold_request(), Abandoned::Hold),
    ] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        let before = key.record().await.unwrap();
        assert_eq!(key.abandon(&lease, policy).await, Fence::Passed);
        let after = key.record().await.unwrap();
        let history = after.history;
        assert_eq!(after, Record { state: RecordState::Held, history, ..before });
        assert_eq!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
        );
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
    }
}

pub(in crate::conformance) async fn an_expired_lease_is_held_if_either_claim_says_hold(
    fixture: Fixture,
) {
    for (first, second) in [
        (fixture.hold_request(), fixture.request()),
        (fixture.request(), fixture.hold_request()),
        (fixture.hold_request(), fixture.hold_request()),
    ] {
        let key = fixture.key();
        let lease = key.claimed(&first).await;
        fixture.expire_leases().await;
        assert_eq!(
            key.claim(&second).await,
            ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
        );
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
        assert_eq!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
        );
    }
}

pub(in crate::conformance) async fn a_held_key_never_runs_again_even_after_its_ttl(
    fixture: Fixture,
) {
    let (abandoned, expired) = (fixture.key(), fixture.key());
    abandoned.held().await;
    expired.claimed(fixture.hold_request()).await;
    fixture.expire_records().await;
    fixture.purge_all().await;
    for (key, expired) in [(abandoned, false), (expired, true)] {
        assert!(key.record().await.is_some());
        for (request, newly) in [(fixture.request(), expired), (fixture.hold_request(), false)] {
            assert_eq!(
                key.claim(&request).await,
                ClaimOutcome::Rejected(Rejection::Held { newly, reference: None })
            );
        }
    }
}

pub(in crate::conformance) async fn a_late_owner_completes_a_held_key(fixture: Fixture) {
    let (abandoned, expired) = (fixture.key(), fixture.key());
    let one = abandoned.held().await;
    let two = expired.claimed(fixture.hold_request()).await;
    fixture.expire_leases().await;
    assert_eq!(
        expired.claim(&fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
    );
    for (key, lease) in [(abandoned, one), (expired, two)] {
        assert_eq!(key.complete(&lease, &recording("late")).await, Fence::Passed);
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("late")));
    }
}

pub(in crate::conformance) async fn the_owner_of_a_held_key_can_neither_renew_nor_release_it(
    fixture: Fixture,
) {
    let key = fixture.key();
    let lease = key.held().await;
    let before = key.record().await;
    assert_eq!(key.renew(&lease, fixture.tick()).await, Fence::Fenced);
    assert_eq!(key.release(&lease).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Fenced);
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_held_key_is_resolved_by_a_recording(fixture: Fixture) {
    let key = fixture.key();
    let seen = key.held().await.owner;
    let expires_at = key.record().await.unwrap().expires_at;
    assert_eq!(
        key.resolve(&seen, Resolution::Complete(recording("known"))).await,
        ResolveOutcome::Resolved
    );
    assert_eq!(key.record().await.unwrap().expires_at, expires_at);
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("known")));
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Conflict);
}

pub(in crate::conformance) async fn a_held_key_is_resolved_by_a_release(fixture: Fixture) {
    let key = fixture.key();
    let seen = key.held().await.owner;
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Resolved);
    assert_eq!(key.record().await, None);
    assert_eq!(key.resolve(&seen, Resolution::Release).await, ResolveOutcome::Conflict);
    assert_eq!(key.claim(&fixture.other_request()).await, granted(1));
    key.assert_fenced(seen).await;
}

pub(in crate::conformance) async fn an_expired_lease_is_resolved_before_the_next_claim(
    fixture: Fixture,
) {
    let (one, two) = (fixture.key(), fixture.key());
    let (first, second) =
        (one.claimed(fixture.hold_request()).await, two.claimed(fixture.hold_request()).await);
    fixture.expire_leases().await;
    let known = Resolution::Complete(recording("known"));
    assert_eq!(one.resolve(&first.owner, known).await, ResolveOutcome::Resolved);
    assert_eq!(one.claim(&fixture.request()).await, replay_of(recording("known")));
    assert_eq!(two.resolve(&second.owner, Resolution::Release).await, ResolveOutcome::Resolved);
    assert_eq!(two.claim(&fixture.request()).await, granted(1));
}

pub(in crate::conformance) async fn a_key_that_is_not_held_is_not_resolved(fixture: Fixture) {
    let [absent, live, expired, completed] =
        [fixture.key(), fixture.key(), fixture.key(), fixture.key()];
    let completed_by_hold = fixture.key();
    let abandoned = expired.claimed(fixture.request()).await;
    let careful = completed_by_hold.claimed(fixture.hold_request()).await;
    assert_eq!(completed_by_hold.complete(&careful, &recording("done")).await, Fence::Passed);
    fixture.expire_leases().await;
    let working = live.claimed(fixture.hold_request()).await;
    let done = completed.completed(&recording("done")).await;
    for (key, seen) in [
        (absent, owner()),
        (live, working.owner),
        (expired, abandoned.owner),
        (completed, done.owner),
        (completed_by_hold, careful.owner),
    ] {
        let before = key.record().await;
        for resolution in [Resolution::Release, Resolution::Complete(recording("wrong"))] {
            assert_eq!(key.resolve(&seen, resolution).await, ResolveOutcome::Conflict);
        }
        assert_eq!(key.record().await, before);
    }
}

pub(in crate::conformance) async fn a_resolution_needs_the_owner_that_was_seen(fixture: Fixture) {
    let key = fixture.key();
    key.held().await;
    let before = key.record().await;
    for resolution in [Resolution::Release, Resolution::Complete(recording("wrong"))] {
        assert_eq!(key.resolve(&owner(), resolution).await, ResolveOutcome::Conflict);
    }
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_late_owner_is_fenced_by_a_resolution(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.held().await;
    key.resolve(&lease.owner, Resolution::Complete(recording("known"))).await;
    assert_eq!(key.record().await.unwrap().owner, crate::transition::OPERATOR);
    key.assert_fenced(lease.owner).await;
}
