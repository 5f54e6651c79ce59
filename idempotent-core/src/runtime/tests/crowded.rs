//! Leases beside one whose record cannot be reached.

use std::time::Instant;

use crate::{
    policy::Policy,
    runtime::{
        Attempt, AttemptOutcome, Runtime,
        tests::{
            faulty::{Faulty, Op},
            support::*,
        },
    },
};

/// A crowd of attempts, the first of which has a record that no renewal gets past.
async fn crowd(store: &Faulty, runtime: &Runtime, count: usize, policy: &Policy) -> Vec<Attempt> {
    store.stick(id("k0"));
    let mut attempts = Vec::new();
    for key in 0..count {
        attempts.push(run(runtime, &format!("k{key}"), "b", policy).await);
    }
    attempts
}

fn least_renewed(store: &Faulty, count: usize) -> usize {
    (1..count).map(|key| store.renewals(&id(&format!("k{key}")))).min().unwrap_or_default()
}

#[tokio::test]
async fn one_record_that_cannot_be_reached_does_not_cost_its_neighbours_their_leases() {
    once_in_five(async || {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let policy = leased(ms(9_000));
        let started = Instant::now();
        let attempts = crowd(&store, &runtime, 200, &policy).await;
        until("all neighbours are renewed", || least_renewed(&store, 200) >= 1).await;
        let took = started.elapsed();
        assert_eq!(store.renewals(&id("k0")), 0);
        store.advance(policy.lease);
        for attempt in attempts {
            assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
        }
        // Later than that, their leases would have expired before.
        if took < policy.lease { Ok(()) } else { Err(took) }
    })
    .await;
}

#[tokio::test]
async fn neighbours_of_a_record_that_cannot_be_reached_are_renewed_again_and_again() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempts = crowd(&store, &runtime, 40, &leased(ms(1_200))).await;
    until("all neighbours are renewed", || least_renewed(&store, 40) >= 4).await;
    assert_eq!(store.renewals(&id("k0")), 0);
    // Those that are due within 100 ms of each other go together, every 400 ms: in four groups at most, however far apart a busy
    // machine has spread them. While they are divided, two go together.
    until("the neighbours go together again", || store.batches().into_iter().max() >= Some(39_usize.div_ceil(4))).await;
    store.unstick();
    until("the record is renewed once it can be reached", || store.renewals(&id("k0")) >= 2).await;
    drop(attempts);
}

#[tokio::test]
async fn a_store_that_fails_as_a_whole_is_not_asked_for_each_lease() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    store.fail(Op::Renew, crate::runtime::tests::faulty::Fault::Before, usize::MAX);
    let mut attempts = Vec::new();
    for key in 0..500 {
        attempts.push(run(&runtime, &format!("k{key}"), "b", &leased(ms(3_000))).await);
    }
    until("the renewals fail", || store.calls(Op::Renew) > 1).await;
    let (started, before) = (Instant::now(), store.calls(Op::Renew));
    until("it has failed for a while", || started.elapsed() > ms(1_500)).await;
    let rounds = started.elapsed().as_millis() / 500 + 2;
    let calls = store.calls(Op::Renew) - before;
    assert!(calls <= usize::try_from(rounds).unwrap() * 40, "{calls} calls in {rounds} rounds");
    store.heal();
    until("all are renewed", || least_renewed(&store, 500) >= 1).await;
}
