//! Who is kept out.

use crate::{
    conformance::bench::{Bench, answer, granted, owner},
    protocol::{ClaimOutcome, Fence, Resolution, ResolveOutcome},
};

pub(in crate::conformance) async fn a_stranger_can_do_nothing(bench: Bench) {
    let [live, held, completed] = [bench.key(), bench.key(), bench.key()];
    live.claimed(bench.request()).await;
    held.held().await;
    completed.completed(&answer("done")).await;
    for key in [&live, &held, &completed] {
        key.assert_fenced(owner()).await;
    }
    bench.lapse().await;
    for key in [&live, &held, &completed] {
        key.assert_fenced(owner()).await;
    }
}

pub(in crate::conformance) async fn a_replaced_owner_can_do_nothing(bench: Bench) {
    let key = bench.key();
    let stale = key.claimed(bench.request()).await;
    bench.lapse().await;
    let next = bench.request();
    assert_eq!(key.claim(&next).await, granted(2));
    key.assert_fenced(stale.owner).await;
    assert_eq!(key.complete(&key.lease(next.owner), &answer("second")).await, Fence::Passed);
    key.assert_fenced(stale.owner).await;
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("second")));
}

pub(in crate::conformance) async fn nobody_owns_an_absent_key(bench: Bench) {
    let key = bench.key();
    key.assert_fenced(owner()).await;
    assert_eq!(key.record().await, None);
}

pub(in crate::conformance) async fn an_owner_of_one_key_does_not_own_another(bench: Bench) {
    let (mine, other) = (bench.key(), bench.key());
    let lease = mine.claimed(bench.request()).await;
    other.claimed(bench.request()).await;
    other.assert_fenced(lease.owner).await;
}

pub(in crate::conformance) async fn what_is_done_to_one_key_of_an_owner_is_not_done_to_another(bench: Bench) {
    let (request, known) = (bench.request(), Resolution::Complete(answer("known")));
    for (next, resolution) in [
        (bench.request(), None),
        (bench.hold_request(), Some(known)),
        (bench.hold_request(), Some(Resolution::Release)),
    ] {
        let (one, other) = (bench.key(), bench.key());
        one.claimed(request).await;
        other.claimed(request).await;
        bench.lapse().await;
        let before = other.record().await;
        one.claim(&next).await;
        assert_eq!(other.record().await, before);
        if let Some(resolution) = resolution {
            assert_eq!(other.claim(&next).await, ClaimOutcome::Held { newly: true });
            let before = other.record().await;
            assert_eq!(one.resolve(&request.owner, resolution).await, ResolveOutcome::Resolved);
            assert_eq!(other.record().await, before);
        }
    }
    let (one, other) = (bench.key(), bench.key());
    one.claimed(request).await;
    other.claimed(request).await;
    bench.expire().await;
    one.claimed(bench.other_request()).await;
    other.claimed(bench.other_request()).await;
}

pub(in crate::conformance) async fn the_owner_of_an_expired_answer_cannot_touch_the_next_one(bench: Bench) {
    let key = bench.key();
    let past = key.completed(&answer("past")).await;
    bench.expire().await;
    let present = key.claimed(bench.other_request()).await;
    key.assert_fenced(past.owner).await;
    assert_eq!(key.complete(&present, &answer("present")).await, Fence::Passed);
    key.assert_fenced(past.owner).await;
}
