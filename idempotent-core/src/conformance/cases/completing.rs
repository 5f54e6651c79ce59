//! How a claim ends.

use bytes::Bytes;

use crate::{
    conformance::bench::{Bench, answer, granted},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence},
};

pub(in crate::conformance) async fn an_answer_is_replayed(bench: Bench) {
    let key = bench.key();
    key.completed(&answer("done")).await;
    for request in [bench.request(), bench.hold_request()] {
        assert_eq!(key.claim(&request).await, ClaimOutcome::Completed(answer("done")));
    }
    bench.lapse().await;
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}

pub(in crate::conformance) async fn recordings_come_back_byte_for_byte(bench: Bench) {
    let mebibyte: Bytes = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    for recording in [Bytes::new(), answer("\0"), answer("'\"\\%{}\r\n\u{feff}"), mebibyte.slice(..256), mebibyte] {
        let key = bench.key();
        key.completed(&recording).await;
        // Compared apart from the assertion, which would print a mebibyte.
        assert!(key.claim(&bench.request()).await == ClaimOutcome::Completed(recording.clone()));
        assert!(key.record().await.unwrap().state == crate::RecordState::Completed(recording));
    }
}

pub(in crate::conformance) async fn completing_again_passes_and_keeps_the_first_answer(bench: Bench) {
    let key = bench.key();
    let lease = key.completed(&answer("first")).await;
    let before = key.record().await;
    for again in ["first", "second"] {
        assert_eq!(key.complete(&lease, &answer(again)).await, Fence::Passed);
        assert_eq!(key.record().await, before);
    }
}

pub(in crate::conformance) async fn a_late_owner_that_nobody_replaced_completes(bench: Bench) {
    let key = bench.key();
    let lease = key.claimed(bench.request()).await;
    bench.lapse().await;
    assert_eq!(key.complete(&lease, &answer("late")).await, Fence::Passed);
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("late")));
}

pub(in crate::conformance) async fn a_released_key_is_as_if_it_had_never_been_claimed(bench: Bench) {
    let key = bench.key();
    for request in [bench.request(), bench.hold_request(), bench.other_request()] {
        let lease = key.claimed(request).await;
        assert_eq!(key.release(&lease).await, Fence::Passed);
        assert_eq!(key.record().await, None);
        key.assert_fenced(lease.owner).await;
    }
    let lease = key.claimed(bench.request()).await;
    bench.lapse().await;
    assert_eq!(key.release(&lease).await, Fence::Passed);
    assert_eq!(key.record().await, None);
}

pub(in crate::conformance) async fn an_abandoned_key_can_be_taken_over_at_once(bench: Bench) {
    let key = bench.key();
    let lease = key.claimed(bench.request()).await;
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Passed);
    key.assert_mismatch().await;
    assert_eq!(key.claim(&bench.request()).await, granted(2));
    key.assert_fenced(lease.owner).await;
}

pub(in crate::conformance) async fn a_completed_key_is_neither_renewed_nor_released_nor_abandoned(bench: Bench) {
    let key = bench.key();
    let lease = key.completed(&answer("done")).await;
    let before = key.record().await;
    assert_eq!(key.renew(&lease, bench.tick()).await, Fence::Fenced);
    assert_eq!(key.release(&lease).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Fenced);
    assert_eq!(key.abandon(&lease, Abandoned::Hold).await, Fence::Fenced);
    assert_eq!(key.record().await, before);
}
