//! Duplicates that wait.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{
    policy::{Abandoned, Policy},
    protocol::ClaimOutcome,
    runtime::{
        Admission, AttemptOutcome, Runtime, RuntimeOptions, Verdict,
        tests::{
            faulty::{Fault, Faulty, Op},
            support::*,
        },
    },
    store::Store,
};

const LONG: Policy = waiting(ms(60_000));

fn waits(runtime: &Runtime, policy: Policy) -> tokio::task::JoinHandle<Result<Admission, crate::StoreError>> {
    let runtime = runtime.clone();
    tokio::spawn(async move { runtime.begin(id("k"), request("b"), &policy).await })
}

/// How many wait for the key, as the runtime counts them.
fn waiters(runtime: &Runtime) -> usize {
    runtime.shared.waiting.count()
}

async fn all_wait(runtime: &Runtime, count: usize) {
    until("they wait", || waiters(runtime) == count).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_attempt_wakes_those_who_wait_without_a_pause() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&runtime, LONG);
    all_wait(&runtime, 1).await;
    let paused = tokio::time::Instant::now();
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    assert!(matches!(soon(waiter).await.unwrap(), Ok(Admission::Rejected(Verdict::Completed(_)))));
    // The clock moves only when everyone waits for it; a waiter that polled would have moved it.
    assert_eq!(paused.elapsed(), Duration::ZERO);
    assert_eq!(waiters(&runtime), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_while_a_claim_is_under_way_is_heard() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&runtime, LONG);
    // One claim that it has to wait, then the one after which it would pause.
    until("it has claimed once", || store.calls(Op::Claim) == 2 || waiters(&runtime) == 1).await;
    store.fail(Op::Claim, Fault::HangAfter, 1);
    let claims = store.calls(Op::Claim);
    tokio::time::sleep(ms(700)).await;
    until("its next claim is under way", || store.calls(Op::Claim) > claims).await;
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    let paused = tokio::time::Instant::now();
    store.let_go();
    until("it is told", || waiter.is_finished()).await;
    assert_eq!(paused.elapsed(), Duration::ZERO, "the answer of the claim was older than the end of the attempt");
}

#[tokio::test]
async fn a_released_key_goes_to_one_of_those_who_wait() {
    for abandoned in [false, true] {
        let store = Faulty::new();
        let runtime = runtime(&store);
        let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
        // Taken as they end: whichever runs, the others wait for it.
        let mut waiters: JoinSet<_> = (0..16).map(|_| waits(&runtime, LONG)).collect();
        all_wait(&runtime, 16).await;
        let ending = if abandoned { attempt.abandon(Abandoned::Retry).await } else { attempt.release().await };
        assert_eq!(ending, AttemptOutcome::Stored);
        let (mut ran, mut replayed) = (0, 0);
        while let Some(ended) = soon(waiters.join_next()).await {
            match ended.unwrap().unwrap().unwrap() {
                Admission::Proceed(attempt) => {
                    ran += 1;
                    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
                }
                Admission::Rejected(verdict) => {
                    replayed += 1;
                    assert_eq!(verdict, Verdict::Completed(answer("a")));
                }
            }
        }
        assert_eq!((ran, replayed), (1, 15), "abandoned: {abandoned}");
    }
}

#[tokio::test]
async fn more_than_the_cap_do_not_wait() {
    let store = Faulty::new();
    let runtime = Runtime::new(store.clone(), RuntimeOptions { waiters_per_key: 2, ..quiet() });
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiters = [waits(&runtime, LONG), waits(&runtime, LONG)];
    all_wait(&runtime, 2).await;
    assert!(matches!(soon(told(&runtime, "k", "b", &LONG)).await, Verdict::InFlight { .. }));
    let other = run(&runtime, "other", "b", &Policy::DEFAULT).await;
    let second_key = soon(told(&runtime, "other", "b", &waiting(ms(1)))).await;
    assert!(matches!(second_key, Verdict::InFlight { .. }), "each key has its own places");
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    for waiter in waiters {
        assert!(matches!(soon(waiter).await.unwrap(), Ok(Admission::Rejected(Verdict::Completed(_)))));
    }
    assert_eq!(other.release().await, AttemptOutcome::Stored);

    let runtime = Runtime::new(store.clone(), RuntimeOptions { waiters_per_key: 0, ..quiet() });
    let _attempt = run(&runtime, "none", "b", &Policy::DEFAULT).await;
    assert!(matches!(soon(told(&runtime, "none", "b", &LONG)).await, Verdict::InFlight { .. }));
}

#[tokio::test]
async fn the_answer_of_another_process_is_found() {
    let store = Faulty::new();
    // Two runtimes share nothing but the store, as two processes do.
    let (here, there) = (runtime(&store), runtime(&store));
    let attempt = run(&there, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&here, LONG);
    all_wait(&here, 1).await;
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
    assert!(matches!(soon(waiter).await.unwrap(), Ok(Admission::Rejected(Verdict::Completed(_)))));
}

#[tokio::test]
async fn a_key_whose_owner_died_is_taken_over_by_one_who_waits() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    stranger(&store, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&runtime, LONG);
    all_wait(&runtime, 1).await;
    store.advance(Policy::DEFAULT.lease);
    assert_eq!(ran(soon(waiter).await.unwrap().unwrap()).number(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_kept_and_the_polling_is_sparse() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    stranger(&store, "k", "b", &Policy::DEFAULT).await;
    let started = tokio::time::Instant::now();
    assert!(matches!(told(&runtime, "k", "b", &waiting(ms(5_000))).await, Verdict::InFlight { .. }));
    let took = started.elapsed();
    assert!((ms(5_000)..ms(5_010)).contains(&took), "{took:?}");
    let claims = store.calls(Op::Claim);
    assert!((9..=40).contains(&claims), "{claims}");
}

#[tokio::test]
async fn a_store_that_fails_does_not_make_a_key_in_flight_unknown() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let _attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&runtime, waiting(ms(300)));
    all_wait(&runtime, 1).await;
    store.fail(Op::Claim, Fault::Before, usize::MAX);
    let begun = soon(waiter).await.unwrap().unwrap();
    assert!(matches!(begun, Admission::Rejected(Verdict::InFlight { .. })), "{begun:?}");
    assert_eq!(waiters(&runtime), 0);
}

#[tokio::test]
async fn a_claim_that_was_lost_while_waiting_does_not_free_the_one_that_follows() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let waiter = waits(&runtime, LONG);
    all_wait(&runtime, 1).await;
    // The waiter's next claim takes the key, and neither of its acknowledgements arrives.
    store.fail(Op::Claim, Fault::After, 2);
    attempt.release().await;
    let _next = ran(soon(waiter).await.unwrap().unwrap());
    let (_, other) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(other, ClaimOutcome::InFlight { .. }), "{other:?}");
    soon(runtime.settled()).await;
    let (_, other) = stranger(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(other, ClaimOutcome::InFlight { .. }), "{other:?}");
}

#[tokio::test]
async fn one_who_stops_waiting_leaves_nothing_behind() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    let (first, second) = (waits(&runtime, LONG), waits(&runtime, LONG));
    all_wait(&runtime, 2).await;
    first.abort();
    assert!(first.await.is_err());
    assert_eq!((waiters(&runtime), runtime.shared.waiting.keys()), (1, 1), "the other still waits");
    second.abort();
    assert!(second.await.is_err());
    assert_eq!((waiters(&runtime), runtime.shared.waiting.keys()), (0, 0));
    assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_mismatch_does_not_wait() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let _attempt = run(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(soon(told(&runtime, "k", "other", &LONG)).await, Verdict::Mismatch);
}

#[tokio::test]
async fn a_held_key_that_is_resolved_runs() {
    let store = Faulty::new();
    let runtime = runtime(&store);
    let (owner, _) = stranger(&store, "k", "b", &HOLD).await;
    let waiter = waits(&runtime, LONG);
    all_wait(&runtime, 1).await;
    store.inner().abandon(&crate::lease::Lease { id: id("k"), owner }, Abandoned::Hold).await.unwrap();
    assert!(
        matches!(soon(waiter).await.unwrap(), Ok(Admission::Rejected(Verdict::Held { .. }))),
        "nobody waits for an operator"
    );
}

#[test]
fn one_runtime_serves_many_threads_with_runtimes_of_their_own() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 50;
    let store = Faulty::new();
    let runtime = runtime(&store);
    let runs: usize = std::thread::scope(|scope| {
        let body = || {
            let worker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            worker.block_on(async {
                let mut runs = 0;
                for round in 0..ROUNDS {
                    match begin(&runtime, &format!("k{round}"), "b", &LONG).await {
                        Admission::Proceed(attempt) => {
                            runs += 1;
                            tokio::task::yield_now().await;
                            assert_eq!(attempt.complete(&answer("a")).await, AttemptOutcome::Stored);
                        }
                        Admission::Rejected(verdict) => assert_eq!(verdict, Verdict::Completed(answer("a"))),
                    }
                }
                runs
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(body)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(runs, ROUNDS);
    assert_eq!((waiters(&runtime), runtime.shared.waiting.keys(), runtime.shared.renewal.count()), (0, 0, 0));
}
