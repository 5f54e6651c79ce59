//! What holds when many come at once.

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use crate::{
    conformance::bench::{Bench, Key, MANY, answer, assert_one_winner, granted, many},
    protocol::{Claim, ClaimOutcome, Fence},
};

async fn claims(key: &Key, request: impl Fn() -> Claim) -> Vec<ClaimOutcome> {
    many(|| {
        let (key, request) = (key.clone(), request());
        async move { key.claim(&request).await }
    })
    .await
}

pub(in crate::conformance) async fn one_of_many_concurrent_claims_wins(bench: Bench) {
    for _ in 0..4 {
        assert_one_winner(&claims(&bench.key(), || bench.request()).await, 1);
    }
}

pub(in crate::conformance) async fn one_of_many_concurrent_takeovers_wins(bench: Bench) {
    let key = bench.key();
    let stale = key.claimed(bench.request()).await;
    for attempt in [2, 3] {
        bench.lapse().await;
        assert_one_winner(&claims(&key, || bench.request()).await, attempt);
        key.assert_fenced(stale.owner).await;
    }
}

pub(in crate::conformance) async fn one_of_many_concurrent_claims_of_an_expired_key_wins(bench: Bench) {
    let key = bench.key();
    key.completed(&answer("past")).await;
    bench.expire().await;
    assert_one_winner(&claims(&key, || bench.other_request()).await, 1);
}

pub(in crate::conformance) async fn a_claim_sent_many_times_at_once_is_granted_to_its_owner(bench: Bench) {
    let key = bench.key();
    for attempt in [1, 2] {
        let request = bench.request();
        let outcomes = claims(&key, || request).await;
        // A store does not wait without end for the commit of another sending of the same claim, and cannot see its lease until then. A
        // lease that it can see is the claim's own.
        let unseen = ClaimOutcome::InFlight { lease_left: Duration::ZERO };
        assert!(outcomes.iter().all(|outcome| [&granted(attempt), &unseen].contains(&outcome)), "{outcomes:?}");
        assert!(outcomes.contains(&granted(attempt)), "{outcomes:?}");
        for _ in 0..3 {
            assert_eq!(key.claim(&request).await, granted(attempt));
        }
        bench.lapse().await;
    }
}

pub(in crate::conformance) async fn concurrent_takeovers_by_hold_never_run(bench: Bench) {
    let key = bench.key();
    key.claimed(bench.hold_request()).await;
    bench.lapse().await;
    let outcomes = claims(&key, || bench.request()).await;
    let held = |newly| outcomes.iter().filter(|outcome| **outcome == ClaimOutcome::Held { newly }).count();
    assert_eq!((held(true), held(false)), (1, MANY - 1), "{outcomes:?}");
}

pub(in crate::conformance) async fn one_of_takeover_and_completion_wins(bench: Bench) {
    for _ in 0..16 {
        let (key, next) = (bench.key(), bench.request());
        let late = key.claimed(bench.request()).await;
        key.abandon(&late, crate::Abandoned::Retry).await;
        let (completing, taking) = (key.clone(), key.clone());
        let completion = tokio::spawn(async move { completing.complete(&late, &answer("late")).await });
        let takeover = tokio::spawn(async move { taking.claim(&next).await });
        match (completion.await.unwrap(), takeover.await.unwrap()) {
            (Fence::Passed, outcome) => assert_eq!(outcome, ClaimOutcome::Completed(answer("late"))),
            (Fence::Fenced, outcome) => assert_eq!(outcome, granted(2)),
        }
    }
}

pub(in crate::conformance) async fn an_answer_is_not_lost_to_a_hold(bench: Bench) {
    let mut keys = Vec::new();
    for _ in 0..MANY {
        let key = bench.key();
        keys.push((key.claimed(bench.request()).await, key));
    }
    bench.lapse().await;
    for (late, key) in keys {
        let (completing, taking, next) = (key.clone(), key.clone(), bench.hold_request());
        let takeover = tokio::spawn(async move { taking.claim(&next).await });
        let completion = tokio::spawn(async move { completing.complete(&late, &answer("late")).await });
        assert_eq!(completion.await.unwrap(), Fence::Passed);
        let outcome = takeover.await.unwrap();
        assert!(
            outcome == ClaimOutcome::Held { newly: true } || outcome == ClaimOutcome::Completed(answer("late")),
            "{outcome:?}"
        );
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("late")));
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_abandonment_wins(bench: Bench) {
    // A takeover, and a new request under a key that has expired.
    for (next, past_ttl) in [(bench.request(), false), (bench.other_request(), true)] {
        let mut keys = Vec::new();
        for _ in 0..MANY {
            let key = bench.key();
            keys.push((key.claimed(bench.request()).await, key));
        }
        bench.lapse().await;
        if past_ttl {
            bench.expire().await;
        }
        for (late, key) in keys {
            let (abandoning, taking) = (key.clone(), key.clone());
            let takeover = tokio::spawn(async move { taking.claim(&next).await });
            let abandonment = tokio::spawn(async move { abandoning.abandon(&late, crate::Abandoned::Hold).await });
            let (abandonment, outcome) = (abandonment.await.unwrap(), takeover.await.unwrap());
            let refused = matches!(outcome, ClaimOutcome::Held { .. } | ClaimOutcome::Mismatch { .. });
            assert_eq!(abandonment == Fence::Passed, refused, "the abandonment {abandonment:?}, the claim {outcome:?}");
        }
    }
}

pub(in crate::conformance) async fn one_of_late_answer_and_new_request_wins(bench: Bench) {
    let mut keys = Vec::new();
    for _ in 0..MANY {
        let key = bench.key();
        keys.push((key.claimed(bench.request()).await, key));
    }
    bench.expire().await;
    for (late, key) in keys {
        let (completing, taking, next) = (key.clone(), key.clone(), bench.other_request());
        let takeover = tokio::spawn(async move { taking.claim(&next).await });
        let completion = tokio::spawn(async move { completing.complete(&late, &answer("late")).await });
        let (completion, outcome) = (completion.await.unwrap(), takeover.await.unwrap());
        let refused = matches!(outcome, ClaimOutcome::Mismatch { .. });
        assert_eq!(completion == Fence::Passed, refused, "the completion {completion:?}, the claim {outcome:?}");
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_release_wins(bench: Bench) {
    for _ in 0..16 {
        let (key, next) = (bench.key(), bench.request());
        let late = key.claimed(bench.request()).await;
        key.abandon(&late, crate::Abandoned::Retry).await;
        let (releasing, taking) = (key.clone(), key.clone());
        let release = tokio::spawn(async move { releasing.release(&late).await });
        let takeover = tokio::spawn(async move { taking.claim(&next).await });
        // Released first, the key is new; taken first, it is the second attempt's, and the release removes nothing.
        match (release.await.unwrap(), takeover.await.unwrap()) {
            (Fence::Passed, outcome) => assert_eq!(outcome, granted(1)),
            (Fence::Fenced, outcome) => assert_eq!(outcome, granted(2)),
        }
        assert_eq!(key.record().await.unwrap().owner, next.owner);
    }
}

pub(in crate::conformance) async fn one_of_takeover_and_renewal_wins(bench: Bench) {
    // A takeover, a hold, and a new request under a key that has expired.
    for (first, next, past_ttl) in [
        (bench.request(), bench.request(), false),
        (bench.request(), bench.hold_request(), false),
        (bench.request(), bench.other_request(), true),
    ] {
        let keys: Vec<_> = (0..MANY).map(|_| bench.key()).collect();
        for key in &keys {
            key.claimed(first).await;
        }
        bench.lapse().await;
        if past_ttl {
            bench.expire().await;
        }
        for key in keys {
            let (renewing, taking, tick) = (key.clone(), key.clone(), bench.tick());
            let takeover = tokio::spawn(async move { taking.claim(&next).await });
            let renewal = tokio::spawn(async move { renewing.renew(&renewing.lease(first.owner), tick).await });
            let (renewal, outcome) = (renewal.await.unwrap(), takeover.await.unwrap());
            let refused = matches!(outcome, ClaimOutcome::InFlight { .. } | ClaimOutcome::Mismatch { .. });
            assert_eq!(renewal == Fence::Passed, refused, "the renewal {renewal:?}, the claim {outcome:?}");
        }
    }
}

pub(in crate::conformance) async fn a_dropped_call_leaves_nothing_locked(bench: Bench) {
    let (key, released) = (bench.key(), bench.key());
    let lease = key.lease(bench.request().owner);
    let request = Claim { owner: lease.owner, ..bench.request() };
    let recording = answer("dropped");
    for _ in 0..4 {
        poll_once(bench.store().claim(&key.id, &request));
        poll_once(bench.store().look_up(&key.id));
        poll_once(bench.store().complete(&lease, &recording));
        poll_once(bench.store().release(&released.lease(lease.owner)));
        poll_once(bench.store().purge(1));
        poll_once(bench.store().migrate());
    }
    // Each of them has happened, will happen, or never does; the same owner and everyone else can go on.
    let outcome = key.claim(&request).await;
    if outcome == granted(1) {
        assert_eq!(key.complete(&lease, &recording).await, Fence::Passed);
    } else {
        assert_eq!(outcome, ClaimOutcome::Completed(recording.clone()));
    }
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(recording));
    bench.key().completed(&answer("other")).await;
}

fn poll_once(call: impl Future) {
    let _ = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
}
