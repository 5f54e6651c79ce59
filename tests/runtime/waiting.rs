//! Duplicates that wait.

use std::time::Duration;

use tokio::task::JoinSet;

use idempotent_core::{
    Abandoned, Lease, Policy, Runtime, StoreError,
    internals::gauges,
    protocol::{ClaimOutcome, Rejection},
    runtime::{Admission, AttemptOutcome, Verdict},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

const LONG: Policy = with_wait(ms(60_000));

fn spawn_waiter(
    runtime: &Runtime,
    policy: Policy,
) -> tokio::task::JoinHandle<Result<Admission, StoreError>> {
    let runtime = runtime.clone();
    tokio::spawn(async move { runtime.begin(id("k"), request("b"), &policy).await })
}

/// The number of duplicates that wait.
fn waiters(runtime: &Runtime) -> usize {
    gauges(runtime).waiters
}

async fn until_waiting(runtime: &Runtime, count: usize) {
    until("the duplicates wait", || waiters(runtime) == count).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_attempt_wakes_waiters_at_once() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, LONG);
    until_waiting(&runtime, 1).await;
    let paused = tokio::time::Instant::now();
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    assert!(matches!(
        in_time(waiter).await.unwrap(),
        Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(_))))
    ));
    // The paused clock advances only while every task is idle. It did not, so the waiter did not
    // poll.
    assert_eq!(paused.elapsed(), Duration::ZERO);
    assert_eq!(waiters(&runtime), 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_during_a_claim_is_not_missed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, LONG);
    // The first claim finds the key in flight; after the second, the waiter pauses.
    until("the waiter has claimed once", || store.begun(Op::Claim) == 2 || waiters(&runtime) == 1)
        .await;
    store.set_fault(Op::Claim, 1, Fault::HangAfter);
    let claims = store.begun(Op::Claim);
    tokio::time::sleep(ms(700)).await;
    until("its next claim is in progress", || store.begun(Op::Claim) > claims).await;
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    let paused = tokio::time::Instant::now();
    store.resume();
    until("the waiter has its verdict", || waiter.is_finished()).await;
    assert_eq!(
        paused.elapsed(),
        Duration::ZERO,
        "the waiter relied on a claim from before the end of the attempt"
    );
}

#[tokio::test]
async fn a_released_key_is_granted_to_one_waiter() {
    for abandoned in [false, true] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        // They are joined in the order in which they end, because the others wait for the one that
        // runs.
        let mut waiters: JoinSet<_> = (0..16).map(|_| spawn_waiter(&runtime, LONG)).collect();
        until_waiting(&runtime, 16).await;
        let ending = if abandoned {
            attempt.abandon(Abandoned::Retry).await
        } else {
            attempt.release().await
        };
        assert_eq!(ending, AttemptOutcome::Stored);
        let (mut ran, mut replayed) = (0, 0);
        while let Some(ended) = in_time(waiters.join_next()).await {
            match ended.unwrap().unwrap().unwrap() {
                Admission::Proceed(attempt) => {
                    ran += 1;
                    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
                }
                Admission::Rejected(verdict) => {
                    replayed += 1;
                    assert_eq!(verdict, replay_of("a"));
                }
            }
        }
        assert_eq!((ran, replayed), (1, 15), "abandoned: {abandoned}");
    }
}

#[tokio::test]
async fn waiters_beyond_the_limit_do_not_wait() {
    let store = FaultyStore::default();
    let runtime = Runtime::new(store.clone(), options(|options| options.waiters_per_key = 2));
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiters = [spawn_waiter(&runtime, LONG), spawn_waiter(&runtime, LONG)];
    until_waiting(&runtime, 2).await;
    assert!(matches!(
        in_time(verdict_of(&runtime, "k", "b", &LONG)).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
    let other = proceed(&runtime, "other", "b", &Policy::DEFAULT).await;
    let second_key = in_time(verdict_of(&runtime, "other", "b", &with_wait(ms(1)))).await;
    assert!(
        matches!(second_key, Verdict::Rejected(Rejection::InFlight { .. })),
        "the limit does not apply per key"
    );
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    for waiter in waiters {
        assert!(matches!(
            in_time(waiter).await.unwrap(),
            Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(_))))
        ));
    }
    assert_eq!(other.release().await, AttemptOutcome::Stored);

    let runtime = Runtime::new(store.clone(), options(|options| options.waiters_per_key = 0));
    let _attempt = proceed(&runtime, "none", "b", &Policy::DEFAULT).await;
    assert!(matches!(
        in_time(verdict_of(&runtime, "none", "b", &LONG)).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
}

#[tokio::test]
async fn a_waiter_finds_the_completion_of_another_process() {
    let store = FaultyStore::default();
    // The runtimes share only the store, like two processes.
    let (here, there) = (runtime(&store), runtime(&store));
    let attempt = proceed(&there, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&here, LONG);
    until_waiting(&here, 1).await;
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
    assert!(matches!(
        in_time(waiter).await.unwrap(),
        Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(_))))
    ));
}

#[tokio::test]
async fn a_key_whose_owner_died_is_taken_over_by_a_waiter() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, LONG);
    until_waiting(&runtime, 1).await;
    store.advance(Policy::DEFAULT.lease);
    assert_eq!(expect_attempt(in_time(waiter).await.unwrap().unwrap()).number(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_deadline_and_polls_sparsely() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    let started = tokio::time::Instant::now();
    assert!(matches!(
        verdict_of(&runtime, "k", "b", &with_wait(ms(5_000))).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
    let took = started.elapsed();
    assert!((ms(5_000)..ms(5_010)).contains(&took), "{took:?}");
    let claims = store.begun(Op::Claim);
    assert!((9..=40).contains(&claims), "{claims}");
}

#[tokio::test]
async fn a_waiter_whose_store_fails_gets_in_flight() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let _attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, with_wait(ms(300)));
    until_waiting(&runtime, 1).await;
    store.set_fault(Op::Claim, usize::MAX, Fault::Before);
    let admission = in_time(waiter).await.unwrap().unwrap();
    assert!(
        matches!(admission, Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. }))),
        "{admission:?}"
    );
    assert_eq!(waiters(&runtime), 0);
}

#[tokio::test]
async fn giving_back_a_lost_claim_does_not_release_the_next_claim_of_the_waiter() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, LONG);
    until_waiting(&runtime, 1).await;
    // The waiter's next claim takes effect, but both acknowledgments are lost.
    store.set_fault(Op::Claim, 2, Fault::After);
    attempt.release().await;
    let _next = expect_attempt(in_time(waiter).await.unwrap().unwrap());
    let (_, other) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(other, ClaimOutcome::Rejected(Rejection::InFlight { .. })), "{other:?}");
    in_time(runtime.drain()).await;
    let (_, other) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(other, ClaimOutcome::Rejected(Rejection::InFlight { .. })), "{other:?}");
}

#[tokio::test]
async fn a_canceled_waiter_is_removed() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let (first, second) = (spawn_waiter(&runtime, LONG), spawn_waiter(&runtime, LONG));
    until_waiting(&runtime, 2).await;
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(
        (waiters(&runtime), gauges(&runtime).waited_keys),
        (1, 1),
        "the other waiter is gone"
    );
    second.abort();
    assert!(second.await.is_err());
    assert_eq!((waiters(&runtime), gauges(&runtime).waited_keys), (0, 0));
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_mismatch_does_not_wait() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let _attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(is_mismatch(&in_time(verdict_of(&runtime, "k", "other", &LONG)).await));
}

#[tokio::test]
async fn a_waiter_of_a_key_that_becomes_held_is_rejected() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let (owner, _) = claim_in_another_process(&store, "k", "b", &HOLD).await;
    let waiter = spawn_waiter(&runtime, LONG);
    until_waiting(&runtime, 1).await;
    store.inner().abandon(&Lease { id: id("k"), owner }, Abandoned::Hold).await.unwrap();
    assert!(
        matches!(
            in_time(waiter).await.unwrap(),
            Ok(Admission::Rejected(Verdict::Rejected(Rejection::Held { .. })))
        ),
        "the duplicate waits for an operator"
    );
}

#[test]
fn one_runtime_serves_threads_with_separate_tokio_runtimes() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 50;
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let runs: usize = std::thread::scope(|scope| {
        let body = || {
            let worker =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            worker.block_on(async {
                let mut runs = 0;
                for round in 0..ROUNDS {
                    match begin(&runtime, &format!("k{round}"), "b", &LONG).await {
                        Admission::Proceed(attempt) => {
                            runs += 1;
                            tokio::task::yield_now().await;
                            assert_eq!(
                                attempt.complete(&response("a")).await,
                                AttemptOutcome::Stored
                            );
                        }
                        Admission::Rejected(verdict) => {
                            assert_eq!(verdict, replay_of("a"))
                        }
                    }
                }
                runs
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(body)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(runs, ROUNDS);
    assert_eq!(
        (waiters(&runtime), gauges(&runtime).waited_keys, gauges(&runtime).live_leases),
        (0, 0, 0)
    );
}

/// Fails if a waiting duplicate claims with the owner token of an earlier claim, which the
/// background still gives back: it would release the key under the handler.
#[tokio::test]
async fn a_claim_that_is_given_back_late_does_not_release_the_key_of_the_next_one() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = spawn_waiter(&runtime, LONG);
    until_waiting(&runtime, 1).await;
    // Claims take effect, but their acknowledgments are lost; giving them back fails.
    store.set_fault(Op::LookUp, usize::MAX, Fault::Before);
    store.set_fault(Op::Claim, usize::MAX, Fault::After);
    assert_eq!(first.release().await, AttemptOutcome::Stored);
    until_claimed(&store).await;
    let claims = store.calls(Op::Claim);
    // A claim is sent twice before it counts as failed.
    until("the next claim fails", || store.calls(Op::Claim) > claims + 3).await;
    store.set_fault(Op::Claim, 0, Fault::After);
    let claims = store.calls(Op::Claim);
    until("the duplicate claims again", || store.calls(Op::Claim) > claims + 1).await;
    store.heal();
    let attempt = expect_attempt(in_time(waiter).await.unwrap().unwrap());
    until("everything is given back", || gauges(&runtime).deferred_ends == 0).await;
    let found = store.inner().look_up(&id("k")).await.unwrap();
    assert!(found.is_some(), "the key of a running attempt was released");
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Stored);
}

/// Waits until the record of the key is there again.
async fn until_claimed(store: &FaultyStore) {
    while store.inner().look_up(&id("k")).await.unwrap().is_none() {
        tokio::time::sleep(ms(1)).await;
    }
}
