//! Leases while the store has not responded to the end of their attempt.

use idempotent_core::{
    Abandoned, Policy,
    internals::gauges,
    protocol::{ClaimOutcome, Rejection},
    runtime::{Attempt, AttemptOutcome},
};
use test_support::{Fault, FaultyStore, Op};
use tokio::task::JoinHandle;

use crate::support::*;

const POLICY: Policy = with_lease(ms(60));

/// Begins an attempt, and ends it by a call that hangs before it takes effect.
async fn hanging_end<F>(
    store: &FaultyStore,
    op: Op,
    end: impl FnOnce(Attempt) -> F,
) -> JoinHandle<AttemptOutcome>
where
    F: Future<Output = AttemptOutcome> + Send + 'static,
{
    let attempt = proceed(&runtime(store), "k", "b", &POLICY).await;
    store.set_fault(op, 1, Fault::HangBefore);
    let ending = tokio::spawn(end(attempt));
    until("the end is sent", || store.begun(op) == 1).await;
    ending
}

/// Lets several lengths of the lease pass, and claims the key in another process after each.
async fn assert_kept_alive(store: &FaultyStore) {
    for _ in 0..3 {
        let before = store.renewals(&id("k"));
        // The second one has begun after this call.
        until("the lease is renewed", || store.renewals(&id("k")) >= before + 2).await;
        store.advance(ms(59));
        let (_, outcome) = claim_in_another_process(store, "k", "b", &POLICY).await;
        assert!(
            matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_lease_is_renewed_while_its_end_is_sent() {
    for op in [Op::Complete, Op::Abandon] {
        let store = FaultyStore::default();
        let ending = hanging_end(&store, op, async move |attempt| {
            if op == Op::Complete {
                attempt.complete(&response("a")).await
            } else {
                attempt.abandon(Abandoned::Hold).await
            }
        })
        .await;
        assert_kept_alive(&store).await;
        store.resume();
        assert_eq!(in_time(ending).await.unwrap(), AttemptOutcome::Stored, "{op:?}");
    }
}

#[tokio::test]
async fn a_lease_that_is_given_up_is_not_renewed_while_its_end_is_sent() {
    for op in [Op::Release, Op::Abandon] {
        let store = FaultyStore::default();
        let ending = hanging_end(&store, op, async move |attempt| {
            if op == Op::Release {
                attempt.release().await
            } else {
                attempt.abandon(Abandoned::Retry).await
            }
        })
        .await;
        // One may have been in progress.
        let renewed = store.renewals(&id("k"));
        tokio::time::sleep(ms(120)).await;
        assert!(store.renewals(&id("k")) <= renewed + 1, "{op:?}: the lease is renewed");
        store.resume();
        assert_eq!(in_time(ending).await.unwrap(), AttemptOutcome::Stored, "{op:?}");
    }
}

#[tokio::test]
async fn no_lease_is_left_after_an_end_that_took_long() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    for (calls, fault) in [(1, Fault::HangBefore), (2, Fault::HangAfter)] {
        let attempt = proceed(&runtime, &format!("{fault:?}"), "b", &POLICY).await;
        store.set_fault(Op::Complete, 1, fault);
        let ending = tokio::spawn(async move { attempt.complete(&response("a")).await });
        until("the completion is sent", || store.begun(Op::Complete) == calls).await;
        assert_eq!(gauges(&runtime).live_leases, 1, "{fault:?}");
        store.resume();
        assert_eq!(in_time(ending).await.unwrap(), AttemptOutcome::Stored);
        assert_eq!(gauges(&runtime).live_leases, 0, "{fault:?}");
    }
}
