//! Races between concurrent callers.

use std::{
    pin::pin,
    task::{Context, Waker},
};

use crate::{
    conformance::fixture::{
        Fixture, KeyUnderTest, MANY, assert_one_winner, granted, many, recording, replay_of,
    },
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
};

async fn claims(key: &KeyUnderTest, request: impl Fn() -> Claim) -> Vec<ClaimOutcome> {
    many(|| {
        let (key, request) = (key.clone(), request());
        async move { key.claim(&request).await }
    })
    .await
}

pub(in crate::conformance) async fn one_of_many_concurrent_claims_wins(fixture: Fixture) {
    for _ in 0..4 {
        assert_one_winner(&claims(&fixture.key(), || fixture.request()).await, 1);
    }
}

pub(in crate::conformance) async fn one_of_many_concurrent_takeovers_wins(fixture: Fixture) {
    let key = fixture.key();
    let stale = key.claimed(fixture.request()).await;
    for attempt in [2, 3] {
        fixture.expire_leases().await;
        assert_one_winner(&claims(&key, || fixture.request()).await, attempt);
        key.assert_fenced(stale.owner).await;
    }
}

pub(in crate::conformance) async fn one_of_many_concurrent_claims_of_an_expired_key_wins(
    fixture: Fixture,
) {
    let key = fixture.key();
    key.completed(&recording("past")).await;
    fixture.expire_records().await;
    assert_one_winner(&claims(&key, || fixture.other_request()).await, 1);
}

pub(in crate::conformance) async fn a_claim_sent_many_times_at_once_is_granted_to_its_owner(
    fixture: Fixture,
) {
    let key = fixture.key();
    for attempt in [1, 2] {
        let request = fixture.request();
        let outcomes = claims(&key, || request.clone()).await;
        // A store waits only briefly for the commit of another sending of the same claim, and
        // cannot read its lease until then. A lease that it can read belongs to the claim itself.
        let unseen = ClaimOutcome::IN_FLIGHT;
        assert!(
            outcomes.iter().all(|outcome| [&granted(attempt), &unseen].contains(&outcome)),
            "{outcomes:?}"
        );
        assert!(outcomes.contains(&granted(attempt)), "{outcomes:?}");
        for _ in 0..3 {
            assert_eq!(key.claim(&request).await, granted(attempt));
        }
        fixture.expire_leases().await;
    }
}

pub(in crate::conformance) async fn concurrent_takeovers_by_hold_never_run(fixture: Fixture) {
    let key = fixture.key();
    key.claimed(fixture.hold_request()).await;
    fixture.expire_leases().await;
    let outcomes = claims(&key, || fixture.request()).await;
    let held = |newly| {
        outcomes
            .iter()
            .filter(|outcome| {
                **outcome == ClaimOutcome::Rejected(Rejection::Held { newly, reference: None })
            })
            .count()
    };
    assert_eq!((held(true), held(false)), (1, MANY - 1), "{outcomes:?}");
}

pub(in crate::conformance) async fn one_of_takeover_and_completion_wins(fixture: Fixture) {
    for _ in 0..16 {
        let (key, next) = (fixture.key(), fixture.request());
        let late = key.claimed(fixture.request()).await;
        key.abandon(&late, crate::Abandoned::Retry).await;
        let (completing, taking) = (key.clone(), key.clone());
        let completion =
            tokio::spawn(async move { completing.complete(&late, &recording("late")).await });
        let takeover = tokio::spawn({
            let next = next.clone();
            async move { taking.claim(&next).await }
        });
        match (completion.await.unwrap(), takeover.await.unwrap()) {
            (Fence::Passed, outcome) => {
                assert_eq!(outcome, replay_of(recording("late")))
            }
            (Fence::Fenced, outcome) => assert_eq!(outcome, granted(2)),
        }
    }
}

pub(in crate::conformance) async fn a_completion_is_not_lost_to_a_hold(fixture: Fixture) {
    let mut keys = Vec::new();
    for _ in 0..MANY {
        let key = fixture.key();
        keys.push((key.claimed(fixture.request()).await, key));
    }
    fixture.expire_leases().await;
    for (late, key) in keys {
        let (completing, taking, next) = (key.clone(), key.clone(), fixture.hold_request());
        let takeover = tokio::spawn({
            let next = next.clone();
            async move { taking.claim(&next).await }
        });
        let completion =
            tokio::spawn(async move { completing.complete(&late, &recording("late")).await });
        assert_eq!(completion.await.unwrap(), Fence::Passed);
        let outcome = takeover.await.unwrap();
        assert!(
            outcome == ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
                || outcome == replay_of(recording("late")),
            "{outcome:?}"
        );
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("late")));
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_abandonment_wins(fixture: Fixture) {
    // A takeover, and a new request under a key that has expired.
    for (next, past_ttl) in [(fixture.request(), false), (fixture.other_request(), true)] {
        let mut keys = Vec::new();
        for _ in 0..MANY {
            let key = fixture.key();
            keys.push((key.claimed(fixture.request()).await, key));
        }
        fixture.expire_leases().await;
        if past_ttl {
            fixture.expire_records().await;
        }
        for (late, key) in keys {
            let (abandoning, taking) = (key.clone(), key.clone());
            let takeover = tokio::spawn({
                let next = next.clone();
                async move { taking.claim(&next).await }
            });
            let abandonment =
                tokio::spawn(
                    async move { abandoning.abandon(&late, crate::Abandoned::Hold).await },
                );
            let (abandonment, outcome) = (abandonment.await.unwrap(), takeover.await.unwrap());
            let refused = matches!(
                outcome,
                ClaimOutcome::Rejected(Rejection::Held { .. } | Rejection::Mismatch { .. })
            );
            assert_eq!(
                abandonment == Fence::Passed,
                refused,
                "the abandonment {abandonment:?}, the claim {outcome:?}"
            );
        }
    }
}

pub(in crate::conformance) async fn one_of_late_completion_and_new_request_wins(fixture: Fixture) {
    let mut keys = Vec::new();
    for _ in 0..MANY {
        let key = fixture.key();
        keys.push((key.claimed(fixture.request()).await, key));
    }
    fixture.expire_records().await;
    for (late, key) in keys {
        let (completing, taking, next) = (key.clone(), key.clone(), fixture.other_request());
        let takeover = tokio::spawn({
            let next = next.clone();
            async move { taking.claim(&next).await }
        });
        let completion =
            tokio::spawn(async move { completing.complete(&late, &recording("late")).await });
        let (completion, outcome) = (completion.await.unwrap(), takeover.await.unwrap());
        let refused = matches!(outcome, ClaimOutcome::Rejected(Rejection::Mismatch { .. }));
        assert_eq!(
            completion == Fence::Passed,
            refused,
            "the completion {completion:?}, the claim {outcome:?}"
        );
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_release_wins(fixture: Fixture) {
    for _ in 0..16 {
        let (key, next) = (fixture.key(), fixture.request());
        let late = key.claimed(fixture.request()).await;
        key.abandon(&late, crate::Abandoned::Retry).await;
        let (releasing, taking) = (key.clone(), key.clone());
        let release = tokio::spawn(async move { releasing.release(&late).await });
        let takeover = tokio::spawn({
            let next = next.clone();
            async move { taking.claim(&next).await }
        });
        // If the release is first, the key is new. If the takeover is first, the second attempt
        // owns the key, and the release removes nothing.
        match (release.await.unwrap(), takeover.await.unwrap()) {
            (Fence::Passed, outcome) => assert_eq!(outcome, granted(1)),
            (Fence::Fenced, outcome) => assert_eq!(outcome, granted(2)),
        }
        assert_eq!(key.record().await.unwrap().owner, next.owner);
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_renewal_wins(fixture: Fixture) {
    // A takeover, a hold, and a new request under a key that has expired.
    for (first, next, past_ttl) in [
        (fixture.request(), fixture.request(), false),
        (fixture.request(), fixture.hold_request(), false),
        (fixture.request(), fixture.other_request(), true),
    ] {
        let keys: Vec<_> = (0..MANY).map(|_| fixture.key()).collect();
        for key in &keys {
            key.claimed(&first).await;
        }
        fixture.expire_leases().await;
        if past_ttl {
            fixture.expire_records().await;
        }
        for key in keys {
            let (renewing, taking, tick) = (key.clone(), key.clone(), fixture.tick());
            let takeover = tokio::spawn({
                let next = next.clone();
                async move { taking.claim(&next).await }
            });
            let renewal =
                tokio::spawn(
                    async move { renewing.renew(&renewing.lease(first.owner), tick).await },
                );
            let (renewal, outcome) = (renewal.await.unwrap(), takeover.await.unwrap());
            let refused = matches!(
                outcome,
                ClaimOutcome::Rejected(Rejection::InFlight { .. } | Rejection::Mismatch { .. })
            );
            assert_eq!(
                renewal == Fence::Passed,
                refused,
                "the renewal {renewal:?}, the claim {outcome:?}"
            );
        }
    }
}

pub(in crate::conformance) async fn a_dropped_call_leaves_nothing_locked(fixture: Fixture) {
    let (key, released) = (fixture.key(), fixture.key());
    let lease = key.lease(fixture.request().owner);
    let request = Claim { owner: lease.owner, ..fixture.request() };
    let dropped = recording("dropped");
    for _ in 0..4 {
        poll_once(fixture.store().claim(&key.id, &request));
        poll_once(fixture.store().look_up(&key.id));
        poll_once(fixture.store().complete(&lease, &dropped));
        poll_once(fixture.store().release(&released.lease(lease.owner)));
        poll_once(fixture.store().purge(1));
        poll_once(fixture.store().migrate());
    }
    // Each call may have taken effect, may take effect later, or never does. The same owner and
    // other callers can continue.
    let outcome = key.claim(&request).await;
    if outcome == granted(1) {
        assert_eq!(key.complete(&lease, &dropped).await, Fence::Passed);
    } else {
        assert_eq!(outcome, replay_of(dropped.clone()));
    }
    assert_eq!(
        key.claim(&fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Completed(dropped))
    );
    fixture.key().completed(&recording("other")).await;
}

fn poll_once(call: impl Future) {
    let _ = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
}
