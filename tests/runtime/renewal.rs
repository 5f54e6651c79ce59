//! Renewal of leases.

use idempotent_core::{
    internals::gauges,
    protocol::Rejection,
    runtime::{AttemptOutcome, Verdict},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// Waits for the outcome of a renewal that starts after this call.
async fn await_renewal(store: &FaultyStore) {
    let before = store.batches().len();
    until("the lease is renewed", || store.batches().len() >= before + 2).await;
}

#[tokio::test]
async fn a_lease_is_renewed_many_times() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    // The test passes on a busy machine, too: the lease expires by the clock of the store, which
    // only the test advances.
    let policy = with_lease(ms(60));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    for _ in 0..5 {
        await_renewal(&store).await;
        store.advance(ms(59));
        assert!(matches!(
            verdict_of(&runtime, "k", "b", &policy).await,
            Verdict::Rejected(Rejection::InFlight { .. })
        ));
    }
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    until("no lease is renewed", || gauges(&runtime).live_leases == 0).await;
}

#[tokio::test]
async fn all_leases_are_renewed_in_one_call() {
    // On a busy machine the attempts may begin at times too far apart for one call.
    once_in_five(async || {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let mut attempts = Vec::new();
        for key in 0..100 {
            attempts.push(proceed(&runtime, &format!("k{key}"), "b", &with_lease(ms(1_500))).await);
        }
        until("they are renewed", || store.batches().iter().sum::<usize>() >= 100).await;
        let batches = store.batches();
        if batches == [100] { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn leases_begun_one_after_the_other_are_renewed_together() {
    // On a busy machine a call may take longer than a twelfth of a lease; then it is split and sent
    // again.
    once_in_five(async || {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let policy = with_lease(ms(1_200));
        let mut attempts = Vec::new();
        let started = std::time::Instant::now();
        for key in 0..100 {
            attempts.push(proceed(&runtime, &format!("k{key}"), "b", &policy).await);
            tokio::time::sleep(ms(3)).await;
        }
        until("all are renewed", || store.batches().iter().sum::<usize>() >= 200).await;
        // Leases that are due within a twelfth of their length are renewed in one call.
        let windows = started.elapsed().as_millis() / 100 + 1;
        let batches = store.batches();
        if batches.len() <= usize::try_from(windows).unwrap() { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_leases_are_renewed_in_a_few_calls() {
    once_in_five(async || {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let policy = with_lease(ms(6_000));
        let mut attempts = Vec::new();
        let started = std::time::Instant::now();
        for key in 0..10_000 {
            attempts.push(proceed(&runtime, &format!("k{key}"), "b", &policy).await);
        }
        until("all are renewed", || store.batches().iter().sum::<usize>() >= 10_000).await;
        // On a busy machine the attempts may take longer than a third of a lease to begin.
        let windows = started.elapsed().as_millis() / 500 + 1;
        let batches = store.batches();
        store.advance(ms(5_999));
        for attempt in attempts {
            assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
        }
        assert_eq!(gauges(&runtime).live_leases, 0);
        if batches.len() <= usize::try_from(windows).unwrap() { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_fails_is_retried() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(90));
    let attempt = proceed(&runtime, "k", "b", &policy).await;
    for fault in [Fault::Before, Fault::After, Fault::Panic] {
        let before = store.begun(Op::Renew);
        store.set_fault(Op::Renew, 2, fault);
        until("the renewal has failed twice", || store.begun(Op::Renew) >= before + 2).await;
        await_renewal(&store).await;
        assert_eq!(gauges(&runtime).live_leases, 1, "{fault:?}");
    }
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_lease_that_was_lost_is_not_renewed_any_more() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let policy = with_lease(ms(60));
    store.set_fault(Op::Renew, usize::MAX, Fault::Before);
    let lost = proceed(&runtime, "lost", "b", &policy).await;
    store.advance(policy.lease);
    claim_in_another_process(&store, "lost", "b", &policy).await;
    let kept = proceed(&runtime, "kept", "b", &policy).await;
    store.heal();
    until("only one is renewed", || store.batches().last() == Some(&1)).await;
    assert_eq!(gauges(&runtime).live_leases, 1);
    assert!(matches!(
        lost.complete(&response("the fenced attempt's")).await,
        AttemptOutcome::Fenced(_)
    ));
    assert_eq!(kept.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_lease_of_zero_length_does_not_cause_a_busy_loop() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let _attempt = proceed(&runtime, "k", "b", &with_lease(ms(0))).await;
    let started = std::time::Instant::now();
    until("the lease is renewed", || store.begun(Op::Renew) >= 5).await;
    assert!(started.elapsed() >= ms(4), "five renewals in {:?}", started.elapsed());
}

#[tokio::test]
async fn a_short_lease_is_renewed_separately_from_a_long_one() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let _long =
        proceed(&runtime, "long", "b", &with_lease(ms(86_400_000)).with_ttl(ms(u64::MAX))).await;
    let short = proceed(&runtime, "short", "b", &with_lease(ms(30))).await;
    await_renewal(&store).await;
    assert!(store.batches().iter().all(|leases| *leases == 1), "{:?}", store.batches());
    assert_eq!(short.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_claim_that_took_long_is_renewed_at_once() {
    once_in_five(async || {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        store.set_fault(Op::Claim, 1, Fault::HangAfter);
        let policy = with_lease(ms(2_400));
        let (attempt, ()) = tokio::join!(proceed(&runtime, "k", "b", &policy), async {
            tokio::time::sleep(ms(900)).await;
            store.resume();
        });
        let granted = std::time::Instant::now();
        until("the lease is renewed", || !store.batches().is_empty()).await;
        let took = granted.elapsed();
        assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
        // The lease began when the claim was sent, not when its response arrived.
        if took < ms(500) { Ok(()) } else { Err(took) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn advancing_the_paused_clock_of_tokio_does_not_stop_renewals() {
    tokio::time::advance(ms(3_600_000)).await;
    let store = FaultyStore::default();
    let _attempt = proceed(&runtime(&store), "k", "b", &with_lease(ms(60))).await;
    until("the lease is renewed", || !store.batches().is_empty()).await;
}
