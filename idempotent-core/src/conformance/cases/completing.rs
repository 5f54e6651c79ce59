//! The ends of a claim.

use bytes::Bytes;

use crate::{
    conformance::fixture::{Fixture, granted, recording, replay_of},
    policy::Abandoned,
    protocol::Fence,
};

pub(in crate::conformance) async fn a_recording_is_replayed(fixture: Fixture) {
    let key = fixture.key();
    key.completed(&recording("done")).await;
    for request in [fixture.request(), fixture.hold_request()] {
        assert_eq!(key.claim(&request).await, replay_of(recording("done")));
    }
    fixture.expire_leases().await;
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
}

pub(in crate::conformance) async fn recordings_come_back_byte_for_byte(fixture: Fixture) {
    let mebibyte: Bytes = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    for recording in [
        Bytes::new(),
        recording("\0"),
        recording("'\"\\%{}\r\n\u{feff}"),
        mebibyte.slice(..256),
        mebibyte,
    ] {
        let key = fixture.key();
        key.completed(&recording).await;
        // Not compared by `assert_eq!`, which would print a mebibyte.
        assert!(key.claim(&fixture.request()).await == replay_of(recording.clone()));
        assert!(key.record().await.unwrap().state == crate::RecordState::Completed(recording));
    }
}

pub(in crate::conformance) async fn completing_again_passes_and_keeps_the_first_recording(
    fixture: Fixture,
) {
    let key = fixture.key();
    let lease = key.completed(&recording("first")).await;
    let before = key.record().await;
    for again in ["first", "second"] {
        assert_eq!(key.complete(&lease, &recording(again)).await, Fence::Passed);
        assert_eq!(key.record().await, before);
    }
}

pub(in crate::conformance) async fn a_late_owner_that_was_not_replaced_completes(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    assert_eq!(key.complete(&lease, &recording("late")).await, Fence::Passed);
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("late")));
}

pub(in crate::conformance) async fn a_released_key_is_as_if_it_had_never_been_claimed(
    fixture: Fixture,
) {
    let key = fixture.key();
    for request in [fixture.request(), fixture.hold_request(), fixture.other_request()] {
        let lease = key.claimed(&request).await;
        assert_eq!(key.release(&lease).await, Fence::Passed);
        assert_eq!(key.record().await, None);
        key.assert_fenced(lease.owner).await;
    }
    let lease = key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    assert_eq!(key.release(&lease).await, Fence::Passed);
    assert_eq!(key.record().await, None);
}

pub(in crate::conformance) async fn an_abandoned_key_can_be_taken_over_at_once(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Passed);
    key.assert_mismatch().await;
    assert_eq!(key.claim(&fixture.request()).await, granted(2));
    key.assert_fenced(lease.owner).await;
}

pub(in crate::conformance) async fn a_completed_key_is_neither_renewed_nor_released_nor_abandoned(
    fixture: Fixture,
) {
    let key = fixture.key();
    let lease = key.completed(&recording("done")).await;
    let before = key.record().await;
    assert_eq!(key.renew(&lease, fixture.tick()).await, Fence::Fenced);
    assert_eq!(key.release(&lease).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Hold).await, Fence::Fenced);
    assert_eq!(key.record().await, before);
}
