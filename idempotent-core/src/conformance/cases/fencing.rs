//! The fence: calls with another owner token.

use crate::{
    conformance::fixture::{Fixture, granted, owner, recording, replay_of},
    protocol::{ClaimOutcome, Fence, Rejection, Resolution, ResolveOutcome},
};

pub(in crate::conformance) async fn a_stranger_can_do_nothing(fixture: Fixture) {
    let [live, held, completed] = [fixture.key(), fixture.key(), fixture.key()];
    live.claimed(fixture.request()).await;
    held.held().await;
    completed.completed(&recording("done")).await;
    for key in [&live, &held, &completed] {
        key.assert_fenced(owner()).await;
    }
    fixture.expire_leases().await;
    for key in [&live, &held, &completed] {
        key.assert_fenced(owner()).await;
    }
}

pub(in crate::conformance) async fn a_replaced_owner_can_do_nothing(fixture: Fixture) {
    let key = fixture.key();
    let stale = key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    let next = fixture.request();
    assert_eq!(key.claim(&next).await, granted(2));
    key.assert_fenced(stale.owner).await;
    assert_eq!(key.complete(&key.lease(next.owner), &recording("second")).await, Fence::Passed);
    key.assert_fenced(stale.owner).await;
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("second")));
}

pub(in crate::conformance) async fn an_absent_key_has_no_owner(fixture: Fixture) {
    let key = fixture.key();
    key.assert_fenced(owner()).await;
    assert_eq!(key.record().await, None);
}

pub(in crate::conformance) async fn an_owner_of_one_key_does_not_own_another(fixture: Fixture) {
    let (mine, other) = (fixture.key(), fixture.key());
    let lease = mine.claimed(fixture.request()).await;
    other.claimed(fixture.request()).await;
    other.assert_fenced(lease.owner).await;
}

pub(in crate::conformance) async fn changes_to_one_key_of_an_owner_do_not_touch_another(
    fixture: Fixture,
) {
    let (request, known) = (fixture.request(), Resolution::Complete(recording("known")));
    for (next, resolution) in [
        (fixture.request(), None),
        (fixture.hold_request(), Some(known)),
        (fixture.hold_request(), Some(Resolution::Release)),
    ] {
        let (one, other) = (fixture.key(), fixture.key());
        one.claimed(&request).await;
        other.claimed(&request).await;
        fixture.expire_leases().await;
        let before = other.record().await;
        one.claim(&next).await;
        assert_eq!(other.record().await, before);
        if let Some(resolution) = resolution {
            assert_eq!(
                other.claim(&next).await,
                ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
            );
            let before = other.record().await;
            assert_eq!(one.resolve(&request.owner, resolution).await, ResolveOutcome::Resolved);
            assert_eq!(other.record().await, before);
        }
    }
    let (one, other) = (fixture.key(), fixture.key());
    one.claimed(&request).await;
    other.claimed(&request).await;
    fixture.expire_records().await;
    one.claimed(fixture.other_request()).await;
    other.claimed(fixture.other_request()).await;
}

pub(in crate::conformance) async fn the_owner_of_an_expired_record_cannot_touch_the_next_one(
    fixture: Fixture,
) {
    let key = fixture.key();
    let past = key.completed(&recording("past")).await;
    fixture.expire_records().await;
    let present = key.claimed(fixture.other_request()).await;
    key.assert_fenced(past.owner).await;
    assert_eq!(key.complete(&present, &recording("present")).await, Fence::Passed);
    key.assert_fenced(past.owner).await;
}
