//! How a claim lasts.

use crate::{
    conformance::bench::{Bench, answer, granted, owner},
    protocol::{ClaimOutcome, Fence, RenewOutcome, Renewal},
};

pub(in crate::conformance) async fn a_renewed_lease_lasts(bench: Bench) {
    for request in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        let lease = key.claimed(request).await;
        assert_eq!(key.renew(&lease, bench.tick() * 3).await, Fence::Passed);
        bench.lapse().await;
        let ClaimOutcome::InFlight { lease_left } = key.claim(&bench.request()).await else {
            unreachable!("the lease was renewed");
        };
        assert!(lease_left <= bench.tick() * 3 / 2 && lease_left >= bench.tick(), "{lease_left:?}");
    }
}

pub(in crate::conformance) async fn a_lapsed_lease_that_nobody_took_is_renewed(bench: Bench) {
    for request in [bench.request(), bench.hold_request()] {
        let key = bench.key();
        let lease = key.claimed(request).await;
        bench.lapse().await;
        assert_eq!(key.renew(&lease, bench.tick()).await, Fence::Passed);
        assert!(matches!(key.claim(&bench.request()).await, ClaimOutcome::InFlight { .. }));
    }
}

pub(in crate::conformance) async fn renewals_are_answered_in_order(bench: Bench) {
    let [mine, lost, completed, absent, last] = [bench.key(), bench.key(), bench.key(), bench.key(), bench.key()];
    let owned = mine.claimed(bench.request()).await;
    let stale = lost.claimed(bench.request()).await;
    let own_last = last.claimed(bench.request()).await;
    bench.lapse().await;
    assert_eq!(lost.claim(&bench.request()).await, granted(2));
    let done = completed.completed(&answer("done")).await;

    let leases = [owned, stale, done, absent.lease(owner()), own_last];
    let extends = [4, 4, 4, 4, 2].map(|ticks| bench.tick() * ticks);
    let renewals: Vec<_> = leases.into_iter().zip(extends).map(|(lease, extend)| Renewal { lease, extend }).collect();
    let fences = bench.store().renew(&renewals).await.unwrap();
    use RenewOutcome::{Fenced, Renewed};
    assert_eq!(fences, [Renewed, Fenced, Fenced, Fenced, Renewed]);

    // Each for its own time, and the lost one not at all.
    let [mine, lost, last] = [mine.record().await, lost.record().await, last.record().await].map(Option::unwrap);
    let apart = mine.lease_until.since(last.lease_until);
    assert!(apart >= bench.tick() * 3 / 2 && apart <= bench.tick() * 5 / 2, "{apart:?}");
    assert!(lost.lease_until < last.lease_until);
}

pub(in crate::conformance) async fn renewing_nothing_is_answered_with_nothing(bench: Bench) {
    assert_eq!(bench.store().renew(&[]).await.unwrap(), []);
}
