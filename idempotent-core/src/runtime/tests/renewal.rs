//! Leases that are kept alive.

use crate::{
    policy::Policy,
    runtime::{
        AttemptOutcome, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
};

/// Waits until a renewal that starts after this call has been answered.
async fn renewed(store: &Faulty) {
    let before = store.batches().len();
    until("it is renewed", || store.batches().len() >= before + 2).await;
}

#[tokio::test]
async fn a_lease_outlives_its_length_many_times() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    // Long enough that a busy machine does not matter: it is the store's clock that counts, and that one stands still.
    let policy = leased(ms(60));
    let attempt = run(&runtime, "k", "b", &policy).await;
    for _ in 0..5 {
        renewed(&store).await;
        store.advance(ms(59));
        assert!(matches!(told(&runtime, "k", "b", &policy).await, Verdict::InFlight { .. }));
    }
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    until("nothing is kept alive", || runtime.shared.renewal.count() == 0).await;
}

#[tokio::test]
async fn all_leases_are_renewed_in_one_call() {
    // On a busy machine it may take longer to begin them than the window of one call.
    once_in_five(async || {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let mut attempts = Vec::new();
        for key in 0..100 {
            attempts.push(run(&runtime, &format!("k{key}"), "b", &leased(ms(1_500))).await);
        }
        until("they are renewed", || store.batches().iter().sum::<usize>() >= 100).await;
        let batches = store.batches();
        if batches == [100] { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn leases_begun_one_after_the_other_are_renewed_together() {
    // A call that takes longer than a twelfth of a lease is sent again in parts.
    once_in_five(async || {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let policy = leased(ms(1_200));
        let mut attempts = Vec::new();
        let started = std::time::Instant::now();
        for key in 0..100 {
            attempts.push(run(&runtime, &format!("k{key}"), "b", &policy).await);
            tokio::time::sleep(ms(3)).await;
        }
        until("all are renewed", || store.batches().iter().sum::<usize>() >= 200).await;
        // However many there are, a window of a twelfth of the lease goes into one call.
        let windows = started.elapsed().as_millis() / 100 + 1;
        let batches = store.batches();
        if batches.len() <= usize::try_from(windows).unwrap() { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_leases_cost_a_few_calls() {
    once_in_five(async || {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let policy = leased(ms(6_000));
        let mut attempts = Vec::new();
        let started = std::time::Instant::now();
        for key in 0..10_000 {
            attempts.push(run(&runtime, &format!("k{key}"), "b", &policy).await);
        }
        until("all are renewed", || store.batches().iter().sum::<usize>() >= 10_000).await;
        // A busy machine may take longer than a third of a lease to begin them all.
        let windows = started.elapsed().as_millis() / 500 + 1;
        let batches = store.batches();
        store.advance(ms(5_999));
        for attempt in attempts {
            assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
        }
        assert_eq!(runtime.shared.renewal.count(), 0);
        if batches.len() <= usize::try_from(windows).unwrap() { Ok(()) } else { Err(batches) }
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_fails_is_no_loss() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(90));
    let attempt = run(&runtime, "k", "b", &policy).await;
    for fault in [Fault::Before, Fault::After, Fault::Panic] {
        let before = store.calls(Op::Renew);
        store.fail(Op::Renew, fault, 2);
        until("it has failed twice", || store.calls(Op::Renew) >= before + 2).await;
        renewed(&store).await;
        assert_eq!(runtime.shared.renewal.count(), 1, "{fault:?}");
    }
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_lease_that_was_lost_is_not_renewed_any_more() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let policy = leased(ms(60));
    store.fail(Op::Renew, Fault::Before, usize::MAX);
    let lost = run(&runtime, "lost", "b", &policy).await;
    store.advance(policy.lease);
    stranger(&store, "lost", "b", &policy).await;
    let kept = run(&runtime, "kept", "b", &policy).await;
    store.heal();
    until("only one is renewed", || store.batches().last() == Some(&1)).await;
    assert_eq!(runtime.shared.renewal.count(), 1);
    assert!(matches!(lost.complete(&answer("its own")).await, AttemptOutcome::Fenced(_)));
    assert_eq!(kept.complete(&answer("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_lease_shorter_than_a_pause_does_not_spin() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let _attempt = run(&runtime, "k", "b", &leased(ms(0))).await;
    let started = std::time::Instant::now();
    until("it is renewed", || store.calls(Op::Renew) >= 5).await;
    assert!(started.elapsed() >= ms(4), "five renewals in {:?}", started.elapsed());
}

#[tokio::test]
async fn short_and_long_leases_live_side_by_side() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let _long = run(&runtime, "long", "b", &Policy { ttl: ms(u64::MAX), ..leased(ms(86_400_000)) }).await;
    let short = run(&runtime, "short", "b", &leased(ms(30))).await;
    renewed(&store).await;
    assert!(store.batches().iter().all(|leases| *leases == 1), "{:?}", store.batches());
    assert_eq!(short.complete(&answer("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_claim_that_took_long_is_renewed_at_once() {
    once_in_five(async || {
        let store = Faulty::new();
        let runtime = runtime(&store);
        store.fail(Op::Claim, Fault::HangAfter, 1);
        let policy = leased(ms(2_400));
        let (attempt, ()) = tokio::join!(run(&runtime, "k", "b", &policy), async {
            tokio::time::sleep(ms(900)).await;
            store.let_go();
        });
        let granted = std::time::Instant::now();
        until("it is renewed", || !store.batches().is_empty()).await;
        let took = granted.elapsed();
        assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
        // The lease began when the store granted it, not when it said so.
        if took < ms(500) { Ok(()) } else { Err(took) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_application_that_moves_its_own_time_does_not_keep_the_thread_from_renewing() {
    tokio::time::advance(ms(3_600_000)).await;
    let store = Faulty::new();
    let _attempt = run(&runtime(&store), "k", "b", &leased(ms(60))).await;
    until("it is renewed", || !store.batches().is_empty()).await;
}
