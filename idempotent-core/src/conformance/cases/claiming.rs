//! Claims: which of them is granted.

use crate::{
    conformance::fixture::{Fixture, granted, many, recording, replay_of},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Rejection},
    record::RecordState,
};

pub(in crate::conformance) async fn the_first_claim_of_a_key_is_granted(fixture: Fixture) {
    assert_eq!(fixture.key().claim(&fixture.request()).await, granted(1));
    assert_eq!(fixture.key().claim(&fixture.hold_request()).await, granted(1));
}

pub(in crate::conformance) async fn a_claimed_key_is_in_flight_for_others(fixture: Fixture) {
    for first in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        key.claimed(&first).await;
        for second in [fixture.request(), fixture.hold_request()] {
            let outcome = key.claim(&second).await;
            let ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. }) = outcome else {
                unreachable!("{outcome:?}");
            };
            assert!(
                lease_left <= fixture.tick() && lease_left >= fixture.tick() / 2,
                "{lease_left:?}"
            );
        }
    }
}

pub(in crate::conformance) async fn a_claim_that_is_sent_again_is_granted_again_with_a_whole_lease(
    fixture: Fixture,
) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        fixture.expire_leases().await;
        assert_eq!(key.claim(&request).await, granted(1));
        fixture.advance_half_a_tick().await;
        assert!(matches!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
    }
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_while_in_flight(
    fixture: Fixture,
) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        key.claimed(&request).await;
        key.assert_mismatch().await;
    }
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_after_the_lease(
    fixture: Fixture,
) {
    let (retry, hold) = (fixture.key(), fixture.key());
    retry.claimed(fixture.request()).await;
    hold.claimed(fixture.hold_request()).await;
    fixture.expire_leases().await;
    retry.assert_mismatch().await;
    hold.assert_mismatch().await;
    assert_eq!(retry.record().await.unwrap().state, RecordState::InFlight);
    assert_eq!(hold.record().await.unwrap().state, RecordState::InFlight);
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_while_held(fixture: Fixture) {
    let key = fixture.key();
    key.held().await;
    key.assert_mismatch().await;
    fixture.expire_records().await;
    key.assert_mismatch().await;
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_once_completed(
    fixture: Fixture,
) {
    let key = fixture.key();
    let lease = key.completed(&recording("done")).await;
    key.assert_mismatch().await;
    // A mismatch even for the owner of the recording.
    let owners = Claim { owner: lease.owner, ..fixture.other_request() };
    assert!(matches!(key.claim(&owners).await, ClaimOutcome::Rejected(Rejection::Mismatch { .. })));
}

pub(in crate::conformance) async fn an_expired_lease_is_taken_over_as_the_next_attempt(
    fixture: Fixture,
) {
    let key = fixture.key();
    key.claimed(fixture.request()).await;
    for attempt in [2, 3] {
        fixture.expire_leases().await;
        let next = fixture.request();
        assert_eq!(key.claim(&next).await, granted(attempt));
        assert!(matches!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        assert_eq!(key.claim(&next).await, granted(attempt));
    }
}

pub(in crate::conformance) async fn a_takeover_keeps_what_the_first_claim_fixed(fixture: Fixture) {
    let key = fixture.key();
    key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    let before = key.record().await.unwrap();
    let next = Claim { ttl: fixture.tick() * 100, ..fixture.request() };
    assert_eq!(key.claim(&next).await, granted(2));
    let after = key.record().await.unwrap();
    assert!(after.lease_until > before.lease_until);
    let expected = crate::Record {
        owner: next.owner,
        attempt: 2,
        lease_until: after.lease_until,
        history: after.history,
        ..before
    };
    assert_eq!(after, expected);
}

pub(in crate::conformance) async fn changes_to_one_key_do_not_touch_another(fixture: Fixture) {
    let (one, two) = (fixture.key(), fixture.key());
    let request = fixture.request();
    let lease = one.claimed(&request).await;
    two.claimed(&request).await;
    let before = two.record().await;
    one.complete(&lease, &recording("one")).await;
    assert_eq!(two.record().await, before);
    two.release(&two.lease(request.owner)).await;
    assert_eq!(one.claim(&fixture.request()).await, replay_of(recording("one")));
}

pub(in crate::conformance) async fn a_look_up_shows_the_record_and_changes_nothing(
    fixture: Fixture,
) {
    let key = fixture.key();
    assert_eq!(key.record().await, None);
    let request = fixture.hold_request();
    key.claimed(&request).await;
    let found = fixture.store().look_up(&key.id).await.unwrap().unwrap();
    let record = &found.record;
    assert_eq!((record.fingerprint, record.owner), (request.fingerprint, request.owner));
    assert_eq!(record.lease, request.lease);
    assert_eq!(
        (record.attempt, record.abandoned, &record.state),
        (1, Abandoned::Hold, &RecordState::InFlight)
    );
    assert_eq!(record.lease_until.duration_since(record.first_seen), request.lease);
    assert_eq!(record.expires_at.duration_since(record.first_seen), request.ttl);
    assert!(
        found.at >= record.first_seen
            && found.at.duration_since(record.first_seen) < fixture.tick() / 2
    );
    fixture.expire_leases().await;
    // A lookup decides nothing: the owner of the expired claim still owns it.
    assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    assert_eq!(key.claim(&request).await, granted(1));
}

pub(in crate::conformance) async fn migrations_side_by_side_all_pass(fixture: Fixture) {
    let key = fixture.key();
    key.completed(&recording("kept")).await;
    many(|| {
        let fixture = fixture.clone();
        async move { fixture.store().migrate().await.unwrap() }
    })
    .await;
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("kept")));
}
