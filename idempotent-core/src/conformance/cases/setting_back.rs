//! What holds when the store's clock is set back. A subject whose clock cannot be set back passes each of these.

use crate::{
    clock::Timestamp,
    conformance::bench::{Bench, Key, answer, granted, many, owner},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Resolution, ResolveOutcome},
    record::{Record, RecordState},
    store::TransactionClaim,
};

/// Keys whose owner is gone and whose lease ends eight ticks from now, though it is one tick long; `None` where the clock cannot be
/// set back.
async fn stranded<const N: usize>(bench: &Bench, claims: [Claim; N]) -> Option<[Key; N]> {
    let keys = [(); N].map(|()| bench.key());
    for (key, claim) in keys.iter().zip(claims) {
        key.claimed(claim).await;
    }
    bench.set_back(7).await.then_some(keys)
}

fn assert_in_flight(outcome: &ClaimOutcome, bench: &Bench) {
    let in_flight = matches!(outcome, ClaimOutcome::InFlight { lease_left } if *lease_left <= bench.tick());
    assert!(in_flight, "{outcome:?}");
}

pub(in crate::conformance) async fn a_lease_lasts_no_longer_than_its_length(bench: Bench) {
    let Some([retried, held]) = stranded(&bench, [bench.request(), bench.hold_request()]).await else { return };
    for key in [&retried, &held] {
        let before = key.record().await.unwrap();
        assert_in_flight(&key.claim(&bench.request()).await, &bench);
        let after = key.record().await.unwrap();
        assert!(after.lease_until < before.lease_until);
        // A second one does not prolong it.
        assert_in_flight(&key.claim(&bench.hold_request()).await, &bench);
        assert_eq!(key.record().await, Some(after.clone()));
        assert_eq!(after, Record { lease_until: after.lease_until, ..before });
    }
    bench.lapse().await;
    assert_eq!(retried.claim(&bench.request()).await, granted(2));
    assert_eq!(held.claim(&bench.request()).await, ClaimOutcome::Held { newly: true });
}

pub(in crate::conformance) async fn an_owner_keeps_its_key_when_the_clock_is_set_back(bench: Bench) {
    let (renewed, completed) = (bench.key(), bench.key());
    let (lease, done) = (renewed.claimed(bench.request()).await, completed.claimed(bench.request()).await);
    if !bench.set_back(7).await {
        return;
    }
    assert_in_flight(&renewed.claim(&bench.request()).await, &bench);
    bench.advance_half_a_tick().await;
    assert_in_flight(&renewed.claim(&bench.request()).await, &bench);
    assert_eq!(renewed.renew(&lease, bench.tick() * 3).await, Fence::Passed);
    bench.lapse().await;
    let ClaimOutcome::InFlight { lease_left } = renewed.claim(&bench.request()).await else {
        unreachable!("the lease was renewed");
    };
    assert!(lease_left > bench.tick(), "it has the length with which it was renewed: {lease_left:?}");
    assert_eq!(completed.complete(&done, &answer("done")).await, Fence::Passed);
    assert_eq!(completed.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}

pub(in crate::conformance) async fn the_length_of_a_lease_is_that_of_its_last_grant(bench: Bench) {
    let key = bench.key();
    let length = async || key.record().await.unwrap().lease;
    let claim = bench.request();
    let lease = key.claimed(claim).await;
    assert_eq!(length().await, bench.tick());
    assert_eq!(key.renew(&lease, bench.tick() * 3).await, Fence::Passed);
    assert_eq!(length().await, bench.tick() * 3);
    assert_eq!(key.claim(&Claim { lease: bench.tick() * 2, ..claim }).await, granted(1));
    assert_eq!(length().await, bench.tick() * 2);
    key.abandon(&lease, Abandoned::Retry).await;
    assert_eq!(key.claim(&Claim { lease: bench.tick() / 2, ..bench.request() }).await, granted(2));
    assert_eq!(length().await, bench.tick() / 2);
    bench.expire().await;
    assert_eq!(key.claim(&Claim { lease: bench.tick() * 3, ..bench.request() }).await, granted(1));
    assert_eq!(length().await, bench.tick() * 3);
}

pub(in crate::conformance) async fn an_abandoned_key_is_free_at_once_wherever_the_clock_is(bench: Bench) {
    let (before, after) = (bench.key(), bench.key());
    let leases = [before.claimed(bench.request()).await, after.claimed(bench.request()).await];
    assert_eq!(before.abandon(&leases[0], Abandoned::Retry).await, Fence::Passed);
    if !bench.set_back(7).await {
        return;
    }
    assert_eq!(after.abandon(&leases[1], Abandoned::Retry).await, Fence::Passed);
    for key in [before, after] {
        assert_eq!(key.record().await.unwrap().lease_until, Timestamp::EPOCH);
        assert_eq!(key.claim(&bench.request()).await, granted(2));
    }
}

pub(in crate::conformance) async fn a_shortening_touches_no_other_record(bench: Bench) {
    let claim = bench.request();
    let Some([one, other]) = stranded(&bench, [claim, claim]).await else { return };
    let before = other.record().await;
    assert_in_flight(&one.claim(&bench.request()).await, &bench);
    assert_eq!(other.record().await, before);
    assert_in_flight(&other.claim(&bench.request()).await, &bench);
}

pub(in crate::conformance) async fn a_key_past_its_ttl_is_absent_a_lease_later(bench: Bench) {
    let [claimed, purged, held, young] = [(); 4].map(|()| bench.key());
    let claim = bench.request();
    for key in [&claimed, &purged, &held] {
        key.claimed(claim).await;
    }
    for _ in 0..2 {
        bench.expire().await;
    }
    for key in [&claimed, &purged, &held] {
        assert_eq!(key.renew(&key.lease(claim.owner), bench.tick()).await, Fence::Passed);
    }
    assert_eq!(held.abandon(&held.lease(claim.owner), Abandoned::Hold).await, Fence::Passed);
    young.claimed(bench.request()).await;
    if !bench.set_back(3).await {
        return;
    }
    let untouched = [held.record().await, young.record().await];
    assert!(matches!(claimed.claim(&bench.other_request()).await, ClaimOutcome::Mismatch { .. }));
    bench.purge_all().await;
    assert!(purged.record().await.is_some());
    assert_eq!([held.record().await, young.record().await], untouched);
    bench.lapse().await;
    claimed.claimed(bench.other_request()).await;
    bench.purge_all().await;
    assert_eq!(purged.complete(&purged.lease(claim.owner), &answer("late")).await, Fence::Fenced);
}

pub(in crate::conformance) async fn a_stranded_key_is_resolved_a_lease_later(bench: Bench) {
    let claims = [bench.hold_request(), bench.hold_request()];
    let (completed, held) = (bench.key(), bench.key());
    let done = completed.completed(&answer("done")).await;
    held.held().await;
    let Some(keys) = stranded(&bench, claims).await else { return };
    let known = Resolution::Complete(answer("known"));
    for (key, claim) in keys.iter().zip(claims) {
        let before = key.record().await;
        assert_eq!(key.resolve(&owner(), known.clone()).await, ResolveOutcome::Conflict);
        assert_eq!(key.record().await, before);
        assert_eq!(key.resolve(&claim.owner, known.clone()).await, ResolveOutcome::Conflict);
        assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    }
    let before = [completed.record().await, held.record().await];
    assert_eq!(completed.resolve(&done.owner, known.clone()).await, ResolveOutcome::Conflict);
    for request in [bench.request(), bench.hold_request()] {
        assert_eq!(completed.claim(&request).await, ClaimOutcome::Completed(answer("done")));
        assert_eq!(held.claim(&request).await, ClaimOutcome::Held { newly: false });
    }
    assert_eq!([completed.record().await, held.record().await], before);
    bench.lapse().await;
    for ((key, claim), resolution) in keys.iter().zip(claims).zip([known, Resolution::Release]) {
        assert_eq!(key.resolve(&claim.owner, resolution).await, ResolveOutcome::Resolved);
    }
}

pub(in crate::conformance) async fn a_shortening_does_not_undo_an_abandonment(bench: Bench) {
    for _ in 0..8 {
        let key = bench.key();
        let lease = key.claimed(bench.request()).await;
        if !bench.set_back(1).await {
            return;
        }
        let abandonment = key.clone();
        let abandonment = tokio::spawn(async move { abandonment.abandon(&lease, Abandoned::Retry).await });
        let claims = many(|| {
            let (key, claim) = (key.clone(), bench.request());
            async move { key.claim(&claim).await }
        })
        .await;
        assert_eq!(abandonment.await.unwrap(), Fence::Passed);
        let granted_once = claims.iter().filter(|outcome| **outcome == granted(2)).count();
        let next = key.claim(&bench.request()).await;
        assert_eq!(granted_once + usize::from(next == granted(2)), 1, "{claims:?}, then {next:?}");
    }
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_shortens_a_lease(bench: Bench) {
    if bench.store().transactions().is_none() {
        return;
    }
    let claims = [bench.request(), bench.request(), bench.hold_request()];
    let Some([retried, other, held]) = stranded(&bench, claims).await else { return };
    let claim = async |key: &Key, claim: Claim| {
        let transactions = bench.store().transactions().unwrap();
        match transactions.claim(&key.id, &claim, bench.tick()).await.unwrap() {
            TransactionClaim::Granted { attempt, transaction } => {
                transaction.roll_back().await;
                granted(attempt)
            }
            TransactionClaim::Rejected(outcome) => outcome,
        }
    };
    assert_in_flight(&claim(&retried, bench.request()).await, &bench);
    assert_in_flight(&claim(&held, bench.request()).await, &bench);
    assert!(matches!(claim(&other, bench.other_request()).await, ClaimOutcome::Mismatch { .. }));
    bench.lapse().await;
    assert_eq!(claim(&retried, bench.request()).await, granted(2));
    assert_eq!(claim(&other, bench.request()).await, granted(2));
    assert_eq!(claim(&held, bench.request()).await, ClaimOutcome::Held { newly: true });
}
