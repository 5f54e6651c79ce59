//! Expiry of records, and purging.

use crate::{
    conformance::fixture::{Fixture, granted, recording, replay_of},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Rejection, Resolution},
};

pub(in crate::conformance) async fn an_expired_record_makes_room_for_a_new_request(
    fixture: Fixture,
) {
    let key = fixture.key();
    key.completed(&recording("past")).await;
    fixture.expire_records().await;
    assert_eq!(key.record().await, None);
    let lease = key.claimed(fixture.other_request()).await;
    assert_eq!(key.complete(&lease, &recording("present")).await, Fence::Passed);
    assert_eq!(key.claim(&fixture.other_request()).await, replay_of(recording("present")));
}

pub(in crate::conformance) async fn a_claim_in_flight_outlives_its_ttl(fixture: Fixture) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        assert_eq!(key.renew(&lease, fixture.tick() * 6).await, Fence::Passed);
        fixture.expire_records().await;
        fixture.purge_all().await;
        assert!(matches!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        key.assert_mismatch().await;
        assert_eq!(key.renew(&lease, fixture.tick()).await, Fence::Passed);
    }
}

pub(in crate::conformance) async fn a_completion_after_the_ttl_is_replayed(fixture: Fixture) {
    let (working, held) = (fixture.key(), fixture.key());
    let at_work = working.claimed(fixture.request()).await;
    // Once its lease has expired too, any caller may purge it.
    assert_eq!(working.renew(&at_work, fixture.tick() * 6).await, Fence::Passed);
    let abandoned = held.held().await;
    fixture.expire_records().await;
    for (key, lease) in [(working, at_work), (held, abandoned)] {
        assert_eq!(key.complete(&lease, &recording("late")).await, Fence::Passed);
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("late")));
        fixture.expire_leases().await;
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("late")));
    }
}

pub(in crate::conformance) async fn a_resolution_after_the_ttl_is_replayed(fixture: Fixture) {
    let key = fixture.key();
    let seen = key.held().await.owner;
    fixture.expire_records().await;
    key.resolve(&seen, Resolution::Complete(recording("known"))).await;
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("known")));
    fixture.expire_records().await;
    assert_eq!(key.claim(&fixture.other_request()).await, granted(1));
}

pub(in crate::conformance) async fn a_claim_with_an_expired_lease_expires_with_its_ttl(
    fixture: Fixture,
) {
    let key = fixture.key();
    let past = key.claimed(fixture.request()).await;
    fixture.expire_records().await;
    assert_eq!(key.record().await, None);
    assert_eq!(key.claim(&fixture.other_request()).await, granted(1));
    key.assert_fenced(past.owner).await;
}

pub(in crate::conformance) async fn a_purge_spares_live_records(fixture: Fixture) {
    let [renewed, held, given_up, expired_hold] =
        [fixture.key(), fixture.key(), fixture.key(), fixture.key()];
    let lease = renewed.claimed(fixture.request()).await;
    renewed.renew(&lease, fixture.tick() * 7).await;
    held.held().await;
    let lease = given_up.claimed(fixture.request()).await;
    given_up.abandon(&lease, Abandoned::Hold).await;
    expired_hold.claimed(fixture.hold_request()).await;
    fixture.expire_records().await;
    let [live, completed, expired] = [fixture.key(), fixture.key(), fixture.key()];
    expired.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    live.claimed(fixture.request()).await;
    completed.completed(&recording("done")).await;

    let mut before = Vec::new();
    for key in [&renewed, &held, &given_up, &expired_hold, &live, &completed, &expired] {
        before.push(key.record().await.unwrap());
    }
    fixture.purge_all().await;
    for (key, before) in
        [renewed, held, given_up, expired_hold, live, completed, expired].iter().zip(before)
    {
        assert_eq!(key.record().await, Some(before));
    }
}

pub(in crate::conformance) async fn a_purge_removes_expired_records(fixture: Fixture) {
    let (completed, expired) = (fixture.key(), fixture.key());
    let leases =
        [completed.completed(&recording("done")).await, expired.claimed(fixture.request()).await];
    fixture.expire_records().await;
    fixture.purge_all().await;
    // If the expired record were still stored, its owner could complete it.
    for (key, lease) in [completed, expired].iter().zip(leases) {
        assert_eq!(key.complete(&lease, &recording("late")).await, Fence::Fenced);
        assert_eq!(key.record().await, None);
    }
}

pub(in crate::conformance) async fn a_purge_removes_what_an_earlier_one_has_spared(
    fixture: Fixture,
) {
    let (working, held) = (fixture.key(), fixture.key());
    let at_work = working.claimed(fixture.request()).await;
    working.renew(&at_work, fixture.tick() * 6).await;
    let seen = held.held().await.owner;
    let [given_up, unnoticed, renewed] = [fixture.key(), fixture.key(), fixture.key()];
    let mut late = [given_up.held().await, unnoticed.claimed(fixture.hold_request()).await, {
        let lease = renewed.claimed(fixture.hold_request()).await;
        renewed.renew(&lease, fixture.tick() * 6).await;
        lease
    }]
    .to_vec();
    fixture.expire_records().await;
    fixture.purge_all().await;
    for (key, lease) in [&given_up, &unnoticed, &renewed].into_iter().zip(&late) {
        assert_eq!(key.complete(lease, &recording("late")).await, Fence::Passed);
    }
    held.resolve(&seen, Resolution::Complete(recording("known"))).await;
    late.push(held.lease(held.record().await.unwrap().owner));
    late.push(at_work);
    fixture.expire_leases().await;
    fixture.expire_records().await;
    fixture.purge_all().await;
    // If a record were still stored, its owner could complete it.
    for (key, lease) in [given_up, unnoticed, renewed, held, working].iter().zip(late) {
        assert_eq!(key.complete(&lease, &recording("later")).await, Fence::Fenced);
    }
}

pub(in crate::conformance) async fn a_purge_removes_at_most_its_limit(fixture: Fixture) {
    for _ in 0..5 {
        fixture.key().completed(&recording("done")).await;
    }
    fixture.expire_records().await;
    for limit in [0, 1, 2] {
        assert!(fixture.store().purge(limit).await.unwrap() <= u64::from(limit));
    }
}
