//! Renewal of leases.

use crate::{
    conformance::fixture::{Fixture, granted, owner, recording},
    protocol::{ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
};

pub(in crate::conformance) async fn a_renewed_lease_lasts(fixture: Fixture) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        assert_eq!(key.renew(&lease, fixture.tick() * 3).await, Fence::Passed);
        fixture.expire_leases().await;
        let ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. }) =
            key.claim(&fixture.request()).await
        else {
            unreachable!("the lease was renewed");
        };
        assert!(
            lease_left <= fixture.tick() * 3 / 2 && lease_left >= fixture.tick(),
            "{lease_left:?}"
        );
    }
}

pub(in crate::conformance) async fn an_expired_lease_that_was_not_taken_over_is_renewed(
    fixture: Fixture,
) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        fixture.expire_leases().await;
        assert_eq!(key.renew(&lease, fixture.tick()).await, Fence::Passed);
        assert!(matches!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
    }
}

pub(in crate::conformance) async fn renewals_have_their_outcomes_in_order(fixture: Fixture) {
    let [mine, lost, completed, absent, last] =
        [fixture.key(), fixture.key(), fixture.key(), fixture.key(), fixture.key()];
    let owned = mine.claimed(fixture.request()).await;
    let stale = lost.claimed(fixture.request()).await;
    let own_last = last.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    assert_eq!(lost.claim(&fixture.request()).await, granted(2));
    let done = completed.completed(&recording("done")).await;

    let leases = [owned, stale, done, absent.lease(owner()), own_last];
    let extends = [4, 4, 4, 4, 2].map(|ticks| fixture.tick() * ticks);
    let renewals: Vec<_> =
        leases.into_iter().zip(extends).map(|(lease, extend)| Renewal { lease, extend }).collect();
    let fences = fixture.store().renew(&renewals).await.unwrap();
    use RenewOutcome::{Fenced, Renewed};
    assert_eq!(fences, [Renewed, Fenced, Fenced, Fenced, Renewed]);

    // Each lease is renewed for its own length, and the lost one is not renewed.
    let [mine, lost, last] =
        [mine.record().await, lost.record().await, last.record().await].map(Option::unwrap);
    let apart = mine.lease_until.duration_since(last.lease_until);
    assert!(apart >= fixture.tick() * 3 / 2 && apart <= fixture.tick() * 5 / 2, "{apart:?}");
    assert!(lost.lease_until < last.lease_until);
}

pub(in crate::conformance) async fn renewing_no_leases_has_no_outcomes(fixture: Fixture) {
    assert_eq!(fixture.store().renew(&[]).await.unwrap(), []);
}
