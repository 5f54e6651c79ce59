//! What ends with time, and what does not.

use crate::{
    conformance::bench::{Bench, answer, granted},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Resolution},
};

pub(in crate::conformance) async fn an_expired_answer_makes_room_for_a_new_request(bench: Bench) {
    let key = bench.key();
    key.completed(&answer("past")).await;
    bench.expire().await;
    assert_eq!(key.record().await, None);
    let lease = key.claimed(bench.other_request()).await;
    assert_eq!(key.complete(&lease, &answer("present")).await, Fence::Passed);
    assert_eq!(key.claim(&bench.other_request()).await, ClaimOutcome::Completed(answer("present")));
}

pub(in crate::conformance) async fn a_claim_at_work_outlives_its_ttl(bench: Bench) {
    for request in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        let lease = key.claimed(request).await;
        assert_eq!(key.renew(&lease, bench.tick() * 6).await, Fence::Passed);
        bench.expire().await;
        bench.purge_all().await;
        assert!(matches!(key.claim(&bench.request()).await, ClaimOutcome::InFlight { .. }));
        key.assert_mismatch().await;
        assert_eq!(key.renew(&lease, bench.tick()).await, Fence::Passed);
    }
}

pub(in crate::conformance) async fn an_answer_that_comes_after_the_ttl_is_replayed(bench: Bench) {
    let (working, held) = (bench.key(), bench.key());
    let at_work = working.claimed(bench.request()).await;
    // Once its lease is over too, anyone may purge it.
    assert_eq!(working.renew(&at_work, bench.tick() * 6).await, Fence::Passed);
    let abandoned = held.held().await;
    bench.expire().await;
    for (key, lease) in [(working, at_work), (held, abandoned)] {
        assert_eq!(key.complete(&lease, &answer("late")).await, Fence::Passed);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("late")));
        bench.lapse().await;
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("late")));
    }
}

pub(in crate::conformance) async fn a_resolution_that_comes_after_the_ttl_is_replayed(bench: Bench) {
    let key = bench.key();
    let seen = key.held().await.owner;
    bench.expire().await;
    key.resolve(&seen, Resolution::Complete(answer("known"))).await;
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("known")));
    bench.expire().await;
    assert_eq!(key.claim(&bench.other_request()).await, granted(1));
}

pub(in crate::conformance) async fn a_lapsed_claim_expires_with_its_ttl(bench: Bench) {
    let key = bench.key();
    let past = key.claimed(bench.request()).await;
    bench.expire().await;
    assert_eq!(key.record().await, None);
    assert_eq!(key.claim(&bench.other_request()).await, granted(1));
    key.assert_fenced(past.owner).await;
}

pub(in crate::conformance) async fn a_purge_spares_what_is_alive(bench: Bench) {
    let [renewed, held, given_up, lapsed_hold] = [bench.key(), bench.key(), bench.key(), bench.key()];
    let lease = renewed.claimed(bench.request()).await;
    renewed.renew(&lease, bench.tick() * 7).await;
    held.held().await;
    let lease = given_up.claimed(bench.request()).await;
    given_up.abandon(&lease, Abandoned::Hold).await;
    lapsed_hold.claimed(bench.hold_request()).await;
    bench.expire().await;
    let [live, completed, lapsed] = [bench.key(), bench.key(), bench.key()];
    lapsed.claimed(bench.request()).await;
    bench.lapse().await;
    live.claimed(bench.request()).await;
    completed.completed(&answer("done")).await;

    let mut before = Vec::new();
    for key in [&renewed, &held, &given_up, &lapsed_hold, &live, &completed, &lapsed] {
        before.push(key.record().await.unwrap());
    }
    bench.purge_all().await;
    for (key, before) in [renewed, held, given_up, lapsed_hold, live, completed, lapsed].iter().zip(before) {
        assert_eq!(key.record().await, Some(before));
    }
}

pub(in crate::conformance) async fn a_purge_removes_what_has_expired(bench: Bench) {
    let (completed, lapsed) = (bench.key(), bench.key());
    let leases = [completed.completed(&answer("done")).await, lapsed.claimed(bench.request()).await];
    bench.expire().await;
    bench.purge_all().await;
    // An expired record that was still there would let its owner complete it.
    for (key, lease) in [completed, lapsed].iter().zip(leases) {
        assert_eq!(key.complete(&lease, &answer("late")).await, Fence::Fenced);
        assert_eq!(key.record().await, None);
    }
}

pub(in crate::conformance) async fn a_purge_removes_no_more_than_it_may(bench: Bench) {
    for _ in 0..5 {
        bench.key().completed(&answer("done")).await;
    }
    bench.expire().await;
    for limit in [0, 1, 2] {
        assert!(bench.store().purge(limit).await.unwrap() <= u64::from(limit));
    }
}
