//! A store's clock that is set back. A subject whose clock cannot be set back passes every case.

use crate::{
    clock::Timestamp,
    conformance::fixture::{Fixture, KeyUnderTest, granted, many, owner, recording, replay_of},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, Resolution, ResolveOutcome},
    record::{Record, RecordState},
    store::TransactionClaim,
};

/// Keys whose owner is gone and whose lease ends eight ticks from now, though it is one tick long;
/// `None` where the clock cannot be set back.
async fn stranded<const N: usize>(
    fixture: &Fixture,
    claims: [Claim; N],
) -> Option<[KeyUnderTest; N]> {
    let keys = [(); N].map(|()| fixture.key());
    for (key, claim) in keys.iter().zip(&claims) {
        key.claimed(claim).await;
    }
    fixture.set_back(7).await.then_some(keys)
}

fn assert_in_flight(outcome: &ClaimOutcome, fixture: &Fixture) {
    let in_flight = matches!(
        outcome,
        ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. })
            if *lease_left <= fixture.tick()
    );
    assert!(in_flight, "{outcome:?}");
}

pub(in crate::conformance) async fn a_lease_lasts_no_longer_than_its_length(fixture: Fixture) {
    let Some([retried, held]) =
        stranded(&fixture, [fixture.request(), fixture.hold_request()]).await
    else {
        return;
    };
    for key in [&retried, &held] {
        let before = key.record().await.unwrap();
        assert_in_flight(&key.claim(&fixture.request()).await, &fixture);
        let after = key.record().await.unwrap();
        assert!(after.lease_until < before.lease_until);
        // A second claim does not prolong the lease.
        assert_in_flight(&key.claim(&fixture.hold_request()).await, &fixture);
        assert_eq!(key.record().await, Some(after.clone()));
        assert_eq!(after, Record { lease_until: after.lease_until, ..before });
    }
    fixture.expire_leases().await;
    assert_eq!(retried.claim(&fixture.request()).await, granted(2));
    assert_eq!(
        held.claim(&fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
    );
}

pub(in crate::conformance) async fn an_owner_keeps_its_key_when_the_clock_is_set_back(
    fixture: Fixture,
) {
    let (renewed, completed) = (fixture.key(), fixture.key());
    let (lease, done) =
        (renewed.claimed(fixture.request()).await, completed.claimed(fixture.request()).await);
    if !fixture.set_back(7).await {
        return;
    }
    assert_in_flight(&renewed.claim(&fixture.request()).await, &fixture);
    fixture.advance_half_a_tick().await;
    assert_in_flight(&renewed.claim(&fixture.request()).await, &fixture);
    assert_eq!(renewed.renew(&lease, fixture.tick() * 3).await, Fence::Passed);
    fixture.expire_leases().await;
    let ClaimOutcome::Rejected(Rejection::InFlight { lease_left, .. }) =
        renewed.claim(&fixture.request()).await
    else {
        unreachable!("the lease was renewed");
    };
    assert!(
        lease_left > fixture.tick(),
        "it has the length with which it was renewed: {lease_left:?}"
    );
    assert_eq!(completed.complete(&done, &recording("done")).await, Fence::Passed);
    assert_eq!(completed.claim(&fixture.request()).await, replay_of(recording("done")));
}

pub(in crate::conformance) async fn the_length_of_a_lease_is_that_of_its_last_grant(
    fixture: Fixture,
) {
    let key = fixture.key();
    let length = async || key.record().await.unwrap().lease;
    let claim = fixture.request();
    let lease = key.claimed(&claim).await;
    assert_eq!(length().await, fixture.tick());
    assert_eq!(key.renew(&lease, fixture.tick() * 3).await, Fence::Passed);
    assert_eq!(length().await, fixture.tick() * 3);
    assert_eq!(key.claim(&Claim { lease: fixture.tick() * 2, ..claim.clone() }).await, granted(1));
    assert_eq!(length().await, fixture.tick() * 2);
    key.abandon(&lease, Abandoned::Retry).await;
    assert_eq!(
        key.claim(&Claim { lease: fixture.tick() / 2, ..fixture.request() }).await,
        granted(2)
    );
    assert_eq!(length().await, fixture.tick() / 2);
    fixture.expire_records().await;
    assert_eq!(
        key.claim(&Claim { lease: fixture.tick() * 3, ..fixture.request() }).await,
        granted(1)
    );
    assert_eq!(length().await, fixture.tick() * 3);
}

pub(in crate::conformance) async fn an_abandoned_key_is_free_at_once_wherever_the_clock_is(
    fixture: Fixture,
) {
    let (before, after) = (fixture.key(), fixture.key());
    let leases = [before.claimed(fixture.request()).await, after.claimed(fixture.request()).await];
    assert_eq!(before.abandon(&leases[0], Abandoned::Retry).await, Fence::Passed);
    if !fixture.set_back(7).await {
        return;
    }
    assert_eq!(after.abandon(&leases[1], Abandoned::Retry).await, Fence::Passed);
    for key in [before, after] {
        assert_eq!(key.record().await.unwrap().lease_until, Timestamp::EPOCH);
        assert_eq!(key.claim(&fixture.request()).await, granted(2));
    }
}

pub(in crate::conformance) async fn a_shortening_touches_no_other_record(fixture: Fixture) {
    let claim = fixture.request();
    let Some([one, other]) = stranded(&fixture, [claim.clone(), claim]).await else { return };
    let before = other.record().await;
    assert_in_flight(&one.claim(&fixture.request()).await, &fixture);
    assert_eq!(other.record().await, before);
    assert_in_flight(&other.claim(&fixture.request()).await, &fixture);
}

pub(in crate::conformance) async fn a_key_past_its_ttl_is_absent_a_lease_later(fixture: Fixture) {
    let [claimed, purged, held, young, to_hold] = [(); 5].map(|()| fixture.key());
    let claim = fixture.request();
    for key in [&claimed, &purged, &held] {
        key.claimed(&claim).await;
    }
    to_hold.claimed(claim.with_abandoned(Abandoned::Hold)).await;
    for _ in 0..2 {
        fixture.expire_records().await;
    }
    for key in [&claimed, &purged, &held, &to_hold] {
        assert_eq!(key.renew(&key.lease(claim.owner), fixture.tick()).await, Fence::Passed);
    }
    assert_eq!(held.abandon(&held.lease(claim.owner), Abandoned::Hold).await, Fence::Passed);
    young.claimed(fixture.request()).await;
    if !fixture.set_back(3).await {
        return;
    }
    let untouched = [held.record().await, young.record().await, to_hold.record().await];
    assert!(matches!(
        claimed.claim(&fixture.other_request()).await,
        ClaimOutcome::Rejected(Rejection::Mismatch { .. })
    ));
    fixture.purge_all().await;
    assert!(purged.record().await.is_some());
    assert_eq!([held.record().await, young.record().await, to_hold.record().await], untouched);
    fixture.expire_leases().await;
    claimed.claimed(fixture.other_request()).await;
    fixture.purge_all().await;
    assert_eq!(
        purged.complete(&purged.lease(claim.owner), &recording("late")).await,
        Fence::Fenced
    );
}

pub(in crate::conformance) async fn a_stranded_key_is_resolved_a_lease_later(fixture: Fixture) {
    let claims = [fixture.hold_request(), fixture.hold_request()];
    let (completed, held) = (fixture.key(), fixture.key());
    let done = completed.completed(&recording("done")).await;
    held.held().await;
    let Some(keys) = stranded(&fixture, claims.clone()).await else { return };
    let known = Resolution::Complete(recording("known"));
    for (key, claim) in keys.iter().zip(&claims) {
        let before = key.record().await;
        assert_eq!(key.resolve(&owner(), known.clone()).await, ResolveOutcome::Conflict);
        assert_eq!(key.record().await, before);
        assert_eq!(key.resolve(&claim.owner, known.clone()).await, ResolveOutcome::Conflict);
        assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    }
    let before = [completed.record().await, held.record().await];
    assert_eq!(completed.resolve(&done.owner, known.clone()).await, ResolveOutcome::Conflict);
    for request in [fixture.request(), fixture.hold_request()] {
        assert_eq!(completed.claim(&request).await, replay_of(recording("done")));
        assert_eq!(
            held.claim(&request).await,
            ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
        );
    }
    assert_eq!([completed.record().await, held.record().await], before);
    fixture.expire_leases().await;
    for ((key, claim), resolution) in keys.iter().zip(claims).zip([known, Resolution::Release]) {
        assert_eq!(key.resolve(&claim.owner, resolution).await, ResolveOutcome::Resolved);
    }
}

pub(in crate::conformance) async fn a_shortening_does_not_undo_an_abandonment(fixture: Fixture) {
    for _ in 0..8 {
        let key = fixture.key();
        let lease = key.claimed(fixture.request()).await;
        if !fixture.set_back(1).await {
            return;
        }
        let abandonment = key.clone();
        let abandonment =
            tokio::spawn(async move { abandonment.abandon(&lease, Abandoned::Retry).await });
        let claims = many(|| {
            let (key, claim) = (key.clone(), fixture.request());
            async move { key.claim(&claim).await }
        })
        .await;
        assert_eq!(abandonment.await.unwrap(), Fence::Passed);
        let granted_once = claims.iter().filter(|outcome| **outcome == granted(2)).count();
        let next = key.claim(&fixture.request()).await;
        assert_eq!(granted_once + usize::from(next == granted(2)), 1, "{claims:?}, then {next:?}");
    }
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_shortens_a_lease(fixture: Fixture) {
    if fixture.store().transactions().is_none() {
        return;
    }
    let claims = [fixture.request(), fixture.request(), fixture.hold_request()];
    let Some([retried, other, held]) = stranded(&fixture, claims.clone()).await else { return };
    let claim = async |key: &KeyUnderTest, claim: Claim| {
        let transactions = fixture.store().transactions().unwrap();
        match transactions.claim(&key.id, &claim, fixture.tick()).await.unwrap() {
            TransactionClaim::Granted { attempt, transaction } => {
                transaction.roll_back().await;
                granted(attempt)
            }
            TransactionClaim::Rejected(rejection) => ClaimOutcome::Rejected(rejection),
        }
    };
    assert_in_flight(&claim(&retried, fixture.request()).await, &fixture);
    assert_in_flight(&claim(&held, fixture.request()).await, &fixture);
    assert!(matches!(
        claim(&other, fixture.other_request()).await,
        ClaimOutcome::Rejected(Rejection::Mismatch { .. })
    ));
    fixture.expire_leases().await;
    assert_eq!(claim(&retried, fixture.request()).await, granted(2));
    assert_eq!(claim(&other, fixture.request()).await, granted(2));
    assert_eq!(
        claim(&held, fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
    );
}
