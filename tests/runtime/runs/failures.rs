//! Runs whose work fails or panics, whose attempt is fenced, or whose store fails.

use std::io;

use idempotent_core::OnAbandon;

use super::*;

/// Runs a job whose work fails.
async fn fail(runtime: &Runtime, job: &Job, failure: Failure) -> RunError {
    run(runtime, job, |_| ready(Err(failure))).await.unwrap_err()
}

fn text() -> String {
    "declined".to_owned()
}

#[tokio::test]
async fn a_final_failure_is_recorded() {
    for job in [JOB, HOLDING] {
        let runtime = runtime(&FaultyStore::default());
        let first = fail(&runtime, &job, Failure::Final(text())).await;
        assert_eq!(first.to_string(), "the operation failed: declined");
        let again = replay(&runtime, &job).await.unwrap_err();
        for (error, replay) in [(first, false), (again, true)] {
            let RunError::Final { error, replayed, .. } = error else { panic!("{error:?}") };
            assert_eq!((&*error, replayed), ("declined", replay));
        }
        let record = runtime.look_up(&record_id(&JOB)).await.unwrap().expect("a record").record;
        assert_eq!(record.status, None, "a job has no status");
    }
}

#[tokio::test]
async fn a_retryable_failure_releases_the_key() {
    for job in [JOB, HOLDING] {
        let runtime = runtime(&FaultyStore::default());
        let error = fail(&runtime, &job, Failure::Retryable(text())).await;
        assert!(error.is_transient() && matches!(error, RunError::Retryable { .. }), "{error:?}");
        let next = run(&runtime, &job, |operation| ready(Ok(operation.attempt()))).await;
        assert_done(next, 1, false);
    }
}

#[tokio::test]
async fn an_unknown_failure_holds_the_key() {
    for job in [JOB, HOLDING] {
        let runtime = runtime(&FaultyStore::default());
        let error = fail(&runtime, &job, Failure::Unknown(text())).await;
        assert!(!error.is_transient() && matches!(error, RunError::Unknown { .. }), "{error:?}");
        assert!(matches!(
            replay(&runtime, &job).await,
            Err(RunError::Rejected(Rejection::Held { .. }))
        ));
    }
}

/// `?` does not say what was done, so the policy decides, as after a crash.
#[tokio::test]
async fn any_other_error_is_treated_as_the_policy_says() {
    for (job, hold) in [(JOB, false), (HOLDING, true)] {
        let runtime = runtime(&FaultyStore::default());
        let error = run(&runtime, &job, |_| async {
            Err(io::Error::other("reset"))?;
            Ok(1)
        });
        let error = error.await.unwrap_err();
        let RunError::Other { source, held, .. } = &error else { panic!("{error:?}") };
        assert_eq!((source.to_string().as_str(), *held), ("reset", hold));
        assert_eq!(error.is_transient(), !hold);
        match succeed(&runtime, &job, 7).await {
            Err(RunError::Rejected(Rejection::Held { .. })) if hold => {}
            next => assert_done(next, 7, false),
        }
    }
}

#[tokio::test]
async fn a_failure_before_the_point_of_no_return_releases_and_after_it_holds() {
    let job = JOB.with_policy(JOB.policy.with_abandoned(OnAbandon::RetryThenHold));
    for (passes, retryable) in [(false, false), (false, true), (true, false), (true, true)] {
        let runtime = runtime(&FaultyStore::default());
        let result = run(&runtime, &job, |operation| async move {
            if passes {
                let charge = operation.step("charge").run(async |_| Ok::<_, Failure>(1));
                charge.await?;
            }
            if retryable {
                return Err(Failure::Retryable(text()));
            }
            Err(io::Error::other("reset"))?;
            Ok(1)
        });
        let error = result.await.unwrap_err();
        assert_eq!(error.is_transient(), !passes, "{error:?}");
        match succeed(&runtime, &job, 7).await {
            Err(RunError::Rejected(Rejection::Held { .. })) if passes => {}
            next => assert_done(next, 7, false),
        }
    }
}

/// After a step, part of the operation may have been done: the next run is the next attempt.
#[tokio::test]
async fn a_retryable_failure_after_a_step_keeps_the_step() {
    let runtime = runtime(&FaultyStore::default());
    let work = async |operation: Run, value: u32| {
        let charge = operation.step("charge").run(async |_| Ok::<_, Failure>(value));
        match charge.await? {
            7 if !operation.recovering() => Err(Failure::Retryable(text())),
            charged => Ok(charged),
        }
    };
    let first = run(&runtime, &JOB, |operation| work(operation, 7)).await.unwrap_err();
    assert!(matches!(first, RunError::Retryable { .. }), "{first:?}");
    assert_done(run(&runtime, &JOB, |operation| work(operation, 8)).await, 7, false);
}

#[tokio::test]
async fn a_panic_abandons_the_attempt_and_goes_on() {
    for (job, held) in [(JOB, false), (HOLDING, true)] {
        for before_the_future in [true, false] {
            let runtime = runtime(&FaultyStore::default());
            let panics = run(&runtime, &job, |_| {
                assert!(!before_the_future, "the work panicked");
                async { panic!("the work panicked") }
            });
            let panic = AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
            let message = panic.downcast_ref::<&str>().unwrap();
            assert_eq!(*message, "the work panicked");
            match run(&runtime, &job, |operation| ready(Ok(operation.attempt()))).await {
                Err(RunError::Rejected(Rejection::Held { .. })) if held => {}
                next => assert_done(next, 2, false),
            }
        }
    }
}

/// The result of a fenced attempt does not count, whether it is a value or a failure.
#[tokio::test]
async fn a_fenced_run_gets_the_result_of_its_successor() {
    let ends = [Ok(1), Err("retryable"), Err("final"), Err("unknown"), Err("other")];
    for end in ends {
        for succeeds in [true, false] {
            let store = FaultyStore::default();
            let (slow, other) = (runtime(&store), runtime(&store));
            let result = run(&slow, &JOB, |_| async {
                store.set_fault(Op::Renew, usize::MAX, Fault::Before);
                store.advance(JOB.policy.lease);
                let successor = run(&other, &JOB, |_| async move {
                    if succeeds { Ok(7) } else { Err(Failure::Final(text())) }
                });
                assert_eq!(successor.await.is_ok(), succeeds);
                end.map_err(|end| match end {
                    "retryable" => Failure::Retryable(end.to_owned()),
                    "final" => Failure::Final(end.to_owned()),
                    "unknown" => Failure::Unknown(end.to_owned()),
                    _ => Failure::Other(end.into()),
                })
            });
            match result.await {
                Err(RunError::Final { error, replayed: true, .. }) if !succeeds => {
                    assert_eq!(error, "declined");
                }
                result => assert_done(result, 7, true),
            }
        }
    }
}

/// A mismatch would report that the work did not run.
#[tokio::test]
async fn a_run_that_lost_its_key_to_another_input_is_lost_and_no_mismatch() {
    for end in [Ok(1), Err(text())] {
        let store = FaultyStore::default();
        let (slow, other) = (runtime(&store), runtime(&store));
        let error = run(&slow, &JOB, |_| async {
            store.advance(JOB.policy.ttl);
            let other =
                other.run(&JOB, &scope(), &key("k"), &2, |_| ready(Ok::<_, Failure>(2))).await;
            assert_eq!(other.unwrap().value, 2);
            end.map_err(Failure::Retryable)
        });
        let error = error.await.unwrap_err();
        assert!(matches!(error, RunError::Lost { reused: true, .. }), "{error:?}");
        assert!(!error.is_transient());
        let said = "the record of the key was lost while the work ran, and the key now has \
                    another input";
        assert_eq!(error.to_string(), said);
    }
}

#[tokio::test]
async fn without_the_store_nothing_runs() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    for (fault, transient) in [(Fault::Before, true), (Fault::Permanent, false)] {
        store.set_fault(Op::Claim, usize::MAX, fault);
        let error = replay(&runtime, &JOB).await.unwrap_err();
        assert!(matches!(error, RunError::Store { .. }), "{error:?}");
        assert_eq!(error.is_transient(), transient);
    }
    store.heal();
    assert_done(succeed(&runtime, &JOB, 7).await, 7, false);
}

#[tokio::test]
async fn a_value_that_the_store_does_not_take_is_stored_later() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    store.set_fault(Op::Complete, usize::MAX, Fault::Before);
    assert_done(succeed(&runtime, &JOB, 7).await, 7, false);
    assert_done(replay(&runtime, &JOB).await, 7, true);
    store.heal();
    in_time(runtime.drain()).await;
    assert_done(replay(&Runtime::new(store, no_purge()), &JOB).await, 7, true);
}

#[tokio::test]
async fn a_damaged_record_is_not_run_again() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    succeed(&runtime, &JOB, 7).await.unwrap();
    store.damage();
    let error = replay(&runtime, &JOB).await.unwrap_err();
    assert!(matches!(error, RunError::Unreadable { source: None, .. }), "{error:?}");
}

#[tokio::test]
async fn a_job_that_holds_does_not_take_over_from_one_that_retries() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    assert!(run(&runtime, &JOB, |_| pending()).now_or_never().is_none());
    store.advance(JOB.policy.lease);
    assert_eq!(HOLDING.policy.abandoned, OnAbandon::Hold);
    assert!(matches!(
        replay(&runtime, &HOLDING).await,
        Err(RunError::Rejected(Rejection::Held { .. }))
    ));
}
