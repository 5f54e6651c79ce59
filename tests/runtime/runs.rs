//! `Runtime::run`: typed work around the protocol, without HTTP.

use std::{
    future::{pending, ready},
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU32, Ordering},
};

use futures_util::FutureExt;
use idempotent_core::{
    Key, Policy, RecordId, Runtime, ScopeId,
    job::{Done, Failure, Job, RunError},
    protocol::Rejection,
    runtime::{Reconciliation, Run, RuntimeOptions},
};
use tokio::sync::oneshot;

use crate::support::*;
use test_support::{Fault, FaultyStore, Op};

mod database;
mod failures;
mod nested;
mod recorded;
mod transactions;

const JOB: Job = Job::new("charge");
const HOLDING: Job = JOB.with_policy(HOLD);

type Charged<T = u32> = Result<Done<T>, RunError>;

fn scope() -> ScopeId {
    ScopeId::of("customer", "7")
}

fn key(text: &str) -> Key {
    Key::from_text(text).unwrap()
}

fn in_namespace(name: &str) -> RuntimeOptions {
    options(|options| options.namespace = Some(name.to_owned()))
}

fn record_id(job: &Job) -> RecordId {
    RecordId::new("", &scope(), job.name, &key("k"))
}

/// Runs a job whose key is `k` and whose input is 1.
async fn run<F>(runtime: &Runtime, job: &Job, work: impl FnOnce(Run) -> F) -> Charged
where
    F: Future<Output = Result<u32, Failure>>,
{
    in_time(runtime.run(job, &scope(), &key("k"), &1, work)).await
}

async fn succeed(runtime: &Runtime, job: &Job, value: u32) -> Charged {
    run(runtime, job, |_| ready(Ok(value))).await
}

/// Runs a job whose work must not run.
async fn replay(runtime: &Runtime, job: &Job) -> Charged {
    run(runtime, job, |_| async { panic!("the work ran") }).await
}

fn assert_done(result: Charged, value: u32, replayed: bool) {
    let done = result.unwrap();
    assert_eq!((done.value, done.replayed), (value, replayed));
}

#[tokio::test]
async fn the_first_run_runs_and_later_ones_get_its_value() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    assert_done(succeed(&runtime, &JOB, 7).await, 7, false);
    assert_done(replay(&runtime, &JOB).await, 7, true);
    store.advance(Policy::DEFAULT.ttl);
    assert_done(succeed(&runtime, &JOB, 8).await, 8, false);
}

#[tokio::test]
async fn scope_key_and_name_distinguish_runs() {
    let runtime = runtime(&FaultyStore::default());
    let (other, work) = (Job::new("refund"), |_| ready(Ok::<_, Failure>(1)));
    let runs = [
        runtime.run(&JOB, &scope(), &key("k"), &1, work).await,
        runtime.run(&JOB, &scope(), &key("l"), &1, work).await,
        runtime.run(&JOB, &ScopeId::global(), &key("k"), &1, work).await,
        runtime.run(&other, &scope(), &key("k"), &1, work).await,
    ];
    assert!(runs.iter().all(|run| !run.as_ref().unwrap().replayed), "{runs:?}");
}

#[tokio::test]
async fn runs_in_two_namespaces_of_one_store_do_not_share_keys() {
    let store = FaultyStore::default();
    let of = |name: &str| Runtime::new(store.clone(), in_namespace(name));
    assert_done(succeed(&of("shop"), &JOB, 7).await, 7, false);
    assert_done(succeed(&runtime(&store), &JOB, 8).await, 8, false);
    assert_done(succeed(&of("bank"), &JOB, 9).await, 9, false);
    assert_done(replay(&of("shop"), &JOB).await, 7, true);
}

#[tokio::test]
async fn the_record_shows_what_the_run_is_about() {
    let runtime = runtime(&FaultyStore::default());
    run(&runtime, &JOB, |operation| async move {
        operation.set_reference("ch_1").await?;
        operation.progress("1 of 2").await?;
        Ok(7)
    })
    .await
    .unwrap();
    let record = runtime.look_up(&record_id(&JOB)).await.unwrap().expect("a record").record;
    assert_eq!((record.operation.as_str(), record.status), ("charge", None));
    assert_eq!(record.principal, Some(scope().principal()));
    assert_eq!(record.notes.reference.unwrap().as_str(), "ch_1");
}

#[tokio::test]
async fn another_input_is_a_mismatch_in_every_state() {
    let runtime = runtime(&FaultyStore::default());
    let other = async || {
        let (scope, key) = (scope(), key("k"));
        let work = |_| async { panic!("the work ran") };
        let result: Charged = runtime.run(&JOB, &scope, &key, &2, work).await;
        assert!(
            matches!(result, Err(RunError::Rejected(Rejection::Mismatch { .. }))),
            "{result:?}"
        );
    };
    run(&runtime, &JOB, |_| async {
        other().await;
        Ok(1)
    })
    .await
    .unwrap();
    other().await;
}

/// The digest of an input is none of any request, so the record of one is never decoded as that of
/// the other.
#[tokio::test]
async fn a_job_with_the_name_of_a_handler_does_not_get_its_response() {
    let runtime = Runtime::new(FaultyStore::default(), in_namespace("tests"));
    let job = Job::new("POST /payments");
    let scope = ScopeId::new("alice");
    let run = async |text: &str| {
        let work = |_| ready(Ok::<_, Failure>(0));
        runtime.run(&job, &scope, &key(text), "b", work).await
    };
    let attempt = proceed(&runtime, "handler", "b", &Policy::DEFAULT).await;
    attempt.complete(&response("0")).await;
    assert!(matches!(run("handler").await, Err(RunError::Rejected(Rejection::Mismatch { .. }))));
    run("job").await.unwrap();
    let verdict = verdict_of(&runtime, "job", "b", &Policy::DEFAULT).await;
    assert!(is_mismatch(&verdict));
}

#[tokio::test]
async fn of_two_runs_at_once_one_is_in_flight() {
    let runtime = runtime(&FaultyStore::default());
    let other = runtime.clone();
    let result = run(&runtime, &JOB, |operation| async move {
        operation.set_reference("ch_1").await?;
        let second = replay(&other, &JOB).await.unwrap_err();
        assert!(second.is_transient());
        let RunError::Rejected(Rejection::InFlight { lease_left, reference, .. }) = second else {
            panic!("{second:?}");
        };
        assert_eq!(lease_left, JOB.policy.lease);
        assert_eq!(reference.unwrap().as_str(), "ch_1");
        Ok(7)
    });
    assert_done(result.await, 7, false);
}

#[tokio::test]
async fn a_run_that_waits_gets_the_value_of_the_other() {
    let runtime = runtime(&FaultyStore::default());
    let job = JOB.with_policy(with_wait(ms(60_000)));
    let (began, begun) = oneshot::channel();
    let (first, second) = tokio::join!(
        run(&runtime, &job, |_| async {
            began.send(()).unwrap();
            tokio::task::yield_now().await;
            Ok(7)
        }),
        async {
            begun.await.unwrap();
            replay(&runtime, &job).await
        }
    );
    assert_done(first, 7, false);
    assert_done(second, 7, true);
}

#[tokio::test]
async fn a_dropped_run_is_abandoned() {
    for (job, held) in [(JOB, false), (HOLDING, true)] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        assert!(run(&runtime, &job, |_| pending()).now_or_never().is_none());
        assert!(matches!(
            replay(&runtime, &job).await,
            Err(RunError::Rejected(Rejection::InFlight { .. }))
        ));
        store.advance(job.policy.lease);
        let next = run(&runtime, &job, |operation| ready(Ok(operation.attempt()))).await;
        match next {
            Err(RunError::Rejected(Rejection::Held { .. })) if held => {}
            next => assert_done(next, 2, false),
        }
    }
}

#[tokio::test]
async fn a_spawned_run_outlives_its_caller() {
    let runtime = runtime(&FaultyStore::default());
    let ((began, begun), (end, ended)) = (oneshot::channel(), oneshot::channel());
    let run = {
        // The future borrows nothing of its caller.
        let (scope, key, input) = (scope(), key("k"), 1);
        runtime.run(&JOB, &scope, &key, &input, |_| async {
            began.send(()).unwrap();
            Ok::<u32, Failure>(ended.await?)
        })
    };
    drop(tokio::spawn(run));
    begun.await.unwrap();
    end.send(7).unwrap();
    let job = JOB.with_policy(with_wait(ms(60_000)));
    assert_done(succeed(&runtime, &job, 7).await, 7, true);
}

#[tokio::test]
async fn steps_of_an_abandoned_run_are_not_repeated() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let charges = AtomicU32::new(0);
    let work = async |operation: Run, dies: bool| {
        let charge = operation
            .step("charge")
            .run(async |_| Ok::<_, Failure>(charges.fetch_add(1, Ordering::Relaxed)));
        let charge = charge.await?;
        if dies {
            pending::<()>().await;
        }
        let receipt = operation.step("receipt").run(async |_| Ok::<_, Failure>(charge + 10));
        receipt.await
    };
    assert!(run(&runtime, &JOB, |operation| work(operation, true)).now_or_never().is_none());
    store.advance(JOB.policy.lease);
    assert_done(run(&runtime, &JOB, |operation| work(operation, false)).await, 10, false);
    assert_eq!(charges.into_inner(), 1);
}

#[tokio::test]
async fn what_cannot_be_claimed_is_refused_before_the_claim() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let (empty, key, work) = (ScopeId::new(""), key("k"), |_| ready(Ok::<_, Failure>(1)));
    let refused = runtime.run(&JOB, &empty, &key, &1, work).await;
    assert!(matches!(refused, Err(RunError::EmptyScope)));
    let input = std::collections::HashMap::from([((1, 2), 3)]);
    let refused = runtime.run(&JOB, &scope(), &key, &input, work).await;
    assert!(matches!(refused, Err(RunError::Input { .. })));
    drop(runtime.run(&JOB, &scope(), &key, &1, work));
    assert_eq!(store.begun(Op::Claim), 0);
}

/// A reconciliation that does not find out what was done holds the key, whatever the work returns.
#[tokio::test]
async fn an_unknown_reconciliation_holds_the_key() {
    for swallowed in [true, false] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        assert!(run(&runtime, &JOB, |_| pending()).now_or_never().is_none());
        store.advance(JOB.policy.lease);
        let result = run(&runtime, &JOB, |operation| async move {
            let charge = operation.step("charge").reconcile(async |_| Ok(Reconciliation::Unknown));
            let charge = charge.run(async |_| Ok::<u32, Failure>(1)).await;
            if swallowed { Ok(0) } else { charge }
        });
        let error = result.await.unwrap_err();
        if swallowed {
            assert!(matches!(error, RunError::Rejected(Rejection::Held { .. })), "{error:?}");
        } else {
            assert!(matches!(error, RunError::Other { held: true, .. }), "{error:?}");
        }
        assert!(matches!(
            replay(&runtime, &JOB).await,
            Err(RunError::Rejected(Rejection::Held { .. }))
        ));
    }
}
