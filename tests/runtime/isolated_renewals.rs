//! Renewals while that of one record hangs, or all fail.

use std::time::Instant;

use idempotent_core::{
    Policy, Runtime,
    runtime::{Attempt, AttemptOutcome},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

/// Begins attempts. Every renewal that contains the record of the first one hangs.
async fn begin_with_one_hanging(
    store: &FaultyStore,
    runtime: &Runtime,
    count: usize,
    policy: &Policy,
) -> Vec<Attempt> {
    store.hang_renewals_of(id("k0"));
    let mut attempts = Vec::new();
    for key in 0..count {
        attempts.push(proceed(runtime, &format!("k{key}"), "b", policy).await);
    }
    attempts
}

fn least_renewed(store: &FaultyStore, count: usize) -> usize {
    (1..count).map(|key| store.renewals(&id(&format!("k{key}")))).min().unwrap_or_default()
}

#[tokio::test]
async fn one_record_whose_renewal_hangs_costs_no_other_lease() {
    once_in_five(async || {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let policy = with_lease(ms(9_000));
        let started = Instant::now();
        let attempts = begin_with_one_hanging(&store, &runtime, 200, &policy).await;
        until("all other leases are renewed", || least_renewed(&store, 200) >= 1).await;
        let took = started.elapsed();
        assert_eq!(store.renewals(&id("k0")), 0);
        store.advance(policy.lease);
        for attempt in attempts {
            assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
        }
        // Otherwise leases expired before their first renewal.
        if took < policy.lease { Ok(()) } else { Err(took) }
    })
    .await;
}

#[tokio::test]
async fn other_leases_are_renewed_repeatedly_while_the_renewal_of_one_record_hangs() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempts = begin_with_one_hanging(&store, &runtime, 40, &with_lease(ms(1_200))).await;
    until("all other leases are renewed", || least_renewed(&store, 40) >= 4).await;
    assert_eq!(store.renewals(&id("k0")), 0);
    // Leases that are due within 100 ms of each other are renewed together, every 400 ms, so there
    // are at most four batches. While a batch is split to find the record that hangs, at most two
    // leases are renewed together.
    until("the other leases are renewed together again", || {
        store.batches().into_iter().max() >= Some(39_usize.div_ceil(4))
    })
    .await;
    store.allow_renewals();
    until("the record is renewed once its renewals no longer hang", || {
        store.renewals(&id("k0")) >= 2
    })
    .await;
    drop(attempts);
}

/// Fails if the calls that hang pile up, each with a connection of the store: a lease is due again
/// after a sixth of its length, and its call hangs for a second.
#[tokio::test]
async fn a_renewal_that_hangs_is_not_repeated_before_it_ends() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempts = begin_with_one_hanging(&store, &runtime, 8, &with_lease(ms(300))).await;
    until("the others are renewed for longer than a call hangs", || least_renewed(&store, 8) >= 20)
        .await;
    assert_eq!(store.most_hanging_alone(), 1);
    drop(attempts);
}

#[tokio::test]
async fn while_every_renewal_fails_the_store_is_not_called_for_each_lease() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Renew, usize::MAX, Fault::Before);
    let mut attempts = Vec::new();
    for key in 0..500 {
        attempts.push(proceed(&runtime, &format!("k{key}"), "b", &with_lease(ms(3_000))).await);
    }
    until("the renewals fail", || store.begun(Op::Renew) > 1).await;
    let (started, before) = (Instant::now(), store.begun(Op::Renew));
    until("the store has failed for a while", || started.elapsed() > ms(1_500)).await;
    let rounds = started.elapsed().as_millis() / 500 + 2;
    let calls = store.begun(Op::Renew) - before;
    assert!(calls <= usize::try_from(rounds).unwrap() * 40, "{calls} calls in {rounds} rounds");
    store.heal();
    until("all are renewed", || least_renewed(&store, 500) >= 1).await;
}
