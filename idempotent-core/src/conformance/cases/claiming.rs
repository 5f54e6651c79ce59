//! Who gets a key.

use crate::{
    conformance::bench::{Bench, answer, granted, many},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome},
    record::RecordState,
};

pub(in crate::conformance) async fn the_first_claim_of_a_key_is_granted(bench: Bench) {
    assert_eq!(bench.key().claim(&bench.request()).await, granted(1));
    assert_eq!(bench.key().claim(&bench.hold_request()).await, granted(1));
}

pub(in crate::conformance) async fn a_key_that_is_at_work_is_in_flight_for_others(bench: Bench) {
    for first in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        key.claimed(first).await;
        for second in [bench.request(), bench.hold_request()] {
            let outcome = key.claim(&second).await;
            let ClaimOutcome::InFlight { lease_left } = outcome else {
                unreachable!("{outcome:?}");
            };
            assert!(lease_left <= bench.tick() && lease_left >= bench.tick() / 2, "{lease_left:?}");
        }
    }
}

pub(in crate::conformance) async fn a_claim_that_is_sent_again_is_granted_again_with_a_whole_lease(bench: Bench) {
    for request in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        let lease = key.claimed(request).await;
        bench.lapse().await;
        assert_eq!(key.claim(&request).await, granted(1));
        bench.advance_half_a_tick().await;
        assert!(matches!(key.claim(&bench.request()).await, ClaimOutcome::InFlight { .. }));
        assert_eq!(key.record().await.unwrap().owner, lease.owner);
    }
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_while_in_flight(bench: Bench) {
    for request in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        key.claimed(request).await;
        key.assert_mismatch().await;
    }
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_after_the_lease(bench: Bench) {
    let (retry, hold) = (bench.key(), bench.key());
    retry.claimed(bench.request()).await;
    hold.claimed(bench.hold_request()).await;
    bench.lapse().await;
    retry.assert_mismatch().await;
    hold.assert_mismatch().await;
    assert_eq!(retry.record().await.unwrap().state, RecordState::InFlight);
    assert_eq!(hold.record().await.unwrap().state, RecordState::InFlight);
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_while_held(bench: Bench) {
    let key = bench.key();
    key.held().await;
    key.assert_mismatch().await;
    bench.expire().await;
    key.assert_mismatch().await;
}

pub(in crate::conformance) async fn another_fingerprint_is_a_mismatch_once_completed(bench: Bench) {
    let key = bench.key();
    let lease = key.completed(&answer("done")).await;
    key.assert_mismatch().await;
    // Not even for the owner of the answer.
    let owners = Claim { owner: lease.owner, ..bench.other_request() };
    assert!(matches!(key.claim(&owners).await, ClaimOutcome::Mismatch { .. }));
}

pub(in crate::conformance) async fn a_lapsed_claim_is_taken_over_as_the_next_attempt(bench: Bench) {
    let key = bench.key();
    key.claimed(bench.request()).await;
    for attempt in [2, 3] {
        bench.lapse().await;
        let next = bench.request();
        assert_eq!(key.claim(&next).await, granted(attempt));
        assert!(matches!(key.claim(&bench.request()).await, ClaimOutcome::InFlight { .. }));
        assert_eq!(key.claim(&next).await, granted(attempt));
    }
}

pub(in crate::conformance) async fn a_takeover_keeps_what_the_first_claim_fixed(bench: Bench) {
    let key = bench.key();
    key.claimed(bench.request()).await;
    bench.lapse().await;
    let before = key.record().await.unwrap();
    let next = Claim { ttl: bench.tick() * 100, ..bench.request() };
    assert_eq!(key.claim(&next).await, granted(2));
    let after = key.record().await.unwrap();
    assert!(after.lease_until > before.lease_until);
    let expected = crate::Record { owner: next.owner, attempt: 2, lease_until: after.lease_until, ..before };
    assert_eq!(after, expected);
}

pub(in crate::conformance) async fn what_happens_to_one_key_does_not_touch_another(bench: Bench) {
    let (one, two) = (bench.key(), bench.key());
    let request = bench.request();
    let lease = one.claimed(request).await;
    two.claimed(request).await;
    let before = two.record().await;
    one.complete(&lease, &answer("one")).await;
    assert_eq!(two.record().await, before);
    two.release(&two.lease(request.owner)).await;
    assert_eq!(one.claim(&bench.request()).await, ClaimOutcome::Completed(answer("one")));
}

pub(in crate::conformance) async fn a_look_up_shows_the_record_and_changes_nothing(bench: Bench) {
    let key = bench.key();
    assert_eq!(key.record().await, None);
    let request = bench.hold_request();
    key.claimed(request).await;
    let found = bench.store().look_up(&key.id).await.unwrap().unwrap();
    let record = &found.record;
    assert_eq!((record.fingerprint, record.owner), (request.fingerprint, request.owner));
    assert_eq!(record.lease, request.lease);
    assert_eq!((record.attempt, record.abandoned, &record.state), (1, Abandoned::Hold, &RecordState::InFlight));
    assert_eq!(record.lease_until.since(record.first_seen), request.lease);
    assert_eq!(record.expires_at.since(record.first_seen), request.ttl);
    assert!(found.at >= record.first_seen && found.at.since(record.first_seen) < bench.tick() / 2);
    bench.lapse().await;
    // Nothing that a look-up sees is decided by it: the lapsed claim is still its owner's.
    assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    assert_eq!(key.claim(&request).await, granted(1));
}

pub(in crate::conformance) async fn migrations_side_by_side_all_pass(bench: Bench) {
    let key = bench.key();
    key.completed(&answer("kept")).await;
    many(|| {
        let bench = bench.clone();
        async move { bench.store().migrate().await.unwrap() }
    })
    .await;
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("kept")));
}
