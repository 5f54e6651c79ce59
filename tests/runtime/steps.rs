//! Steps, the point of no return, and what a handler notes.

use idempotent_core::{
    Abandoned, OnAbandon, Policy, Runtime, ShortText, Store,
    protocol::Rejection,
    runtime::{Admission, AttemptOutcome, NoteError, Reconciliation, Run, Subject, Verdict},
};
use test_support::{Fault, FaultyStore, Op};
use tokio::sync::oneshot;

use crate::support::*;

mod attempts;

type StepResult<T> = Result<T, NoteError>;

/// Runs a step whose result is `result`; returns whether it ran, and its outcome.
async fn step(operation: &Run, name: &str, result: u32) -> (bool, StepResult<u32>) {
    let mut ran = false;
    let outcome = operation
        .step(name)
        .run(|_| async {
            ran = true;
            Ok::<_, NoteError>(result)
        })
        .await;
    (ran, outcome)
}

async fn reconciled(
    operation: &Run,
    known: Reconciliation<u32>,
) -> (Vec<&'static str>, StepResult<u32>) {
    let calls = std::cell::RefCell::new(Vec::new());
    let outcome = operation
        .step("charge")
        .reconcile(|key| {
            assert_eq!(key, operation.derive_key("charge"));
            calls.borrow_mut().push("find");
            async move { Ok(known) }
        })
        .run(|key| {
            assert_eq!(key, operation.derive_key("charge"));
            calls.borrow_mut().push("charge");
            async { Ok::<_, NoteError>(1) }
        })
        .await;
    (calls.take(), outcome)
}

/// The operation of the next attempt, after one whose process died.
async fn abandon(store: &FaultyStore, runtime: &Runtime, policy: &Policy) -> Admission {
    store.advance(policy.lease);
    begin(runtime, "k", "b", policy).await
}

#[tokio::test]
async fn a_step_runs_once_over_all_attempts() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(step(first.operation(), "charge", 1).await, (true, Ok(1))));
    assert!(matches!(step(first.operation(), "ledger", 2).await, (true, Ok(2))));
    drop(first);
    let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
    let operation = second.operation();
    assert!(operation.recovering());
    assert!(matches!(step(operation, "charge", 10).await, (false, Ok(1))));
    assert!(matches!(step(operation, "ledger", 10).await, (false, Ok(2))));
    assert!(matches!(step(operation, "receipt", 3).await, (true, Ok(3))));
    assert_eq!(store.calls(Op::LookUp), 1, "the steps are read once");
    assert_eq!(second.complete(&response("done")).await, AttemptOutcome::Stored);
}

#[tokio::test]
async fn a_step_that_failed_is_not_recorded() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let failed: StepResult<u32> =
        attempt.operation().step("charge").run(|_| async { Err(NoteError::Fenced) }).await;
    assert!(failed.is_err());
    assert!(matches!(step(attempt.operation(), "charge", 1).await, (true, Ok(1))));
}

#[tokio::test]
async fn a_key_is_not_released_once_a_step_has_begun() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(step(first.operation(), "charge", 1).await.0);
    assert_eq!(first.release().await, AttemptOutcome::Stored);
    let second = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(second.number(), 2);
    assert!(matches!(step(second.operation(), "charge", 10).await, (false, Ok(1))));
}

#[tokio::test]
async fn a_fenced_attempt_records_nothing() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    let (_, outcome) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert!(matches!(outcome, idempotent_core::protocol::ClaimOutcome::Granted { attempt: 2 }));
    let before = store.inner().look_up(&id("k")).await.unwrap();
    let operation = first.operation();
    assert!(matches!(step(operation, "charge", 1).await.1, Err(NoteError::Fenced)));
    assert!(matches!(operation.set_reference("pi_1").await, Err(NoteError::Fenced)));
    assert!(matches!(operation.progress("1 of 2").await, Err(NoteError::Fenced)));
    assert_eq!(store.inner().look_up(&id("k")).await.unwrap(), before);
}

#[tokio::test]
async fn a_recovering_attempt_that_is_fenced_runs_no_step() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    drop(proceed(&runtime, "k", "b", &Policy::DEFAULT).await);
    let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
    store.advance(Policy::DEFAULT.lease);
    claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    let (ran, outcome) = step(second.operation(), "charge", 1).await;
    assert!(!ran && matches!(outcome, Err(NoteError::Fenced)));
}

#[tokio::test]
async fn a_renamed_step_is_an_error_and_does_not_run() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    assert!(step(first.operation(), "charge", 1).await.0);
    drop(first);
    let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
    let (ran, outcome) = step(second.operation(), "capture", 1).await;
    assert!(!ran, "the charge would run twice");
    assert!(matches!(outcome, Err(NoteError::UnknownStep { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_recovering_attempt_reconciles_before_it_runs_a_step_again() {
    for known in [Reconciliation::Found(7), Reconciliation::Absent, Reconciliation::Unknown] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        // The charge is done, and the process dies before it is recorded.
        store.set_fault(Op::Note, 2, Fault::Before);
        let (calls, outcome) = reconciled(first.operation(), known).await;
        assert_eq!(calls, ["charge"], "the first attempt has nothing to reconcile");
        assert!(matches!(outcome, Err(NoteError::Store { .. })), "{outcome:?}");
        drop(first);
        let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
        let (calls, outcome) = reconciled(second.operation(), known).await;
        match known {
            Reconciliation::Found(found) => {
                assert_eq!((calls, outcome.unwrap()), (vec!["find"], found));
            }
            Reconciliation::Absent => {
                assert_eq!((calls, outcome.unwrap()), (vec!["find", "charge"], 1));
            }
            Reconciliation::Unknown => {
                assert_eq!(calls, ["find"]);
                assert!(matches!(outcome, Err(NoteError::OutcomeUnknown)), "{outcome:?}");
                assert!(second.operation().is_unknown());
                assert_eq!(second.operation().abandoned(), Abandoned::Hold);
                continue;
            }
        }
        assert!(!second.operation().is_unknown());
        drop(second);
        let third = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
        assert_eq!(reconciled(third.operation(), known).await.0, Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_reconciliation_that_fails_neither_runs_nor_holds() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    drop(proceed(&runtime, "k", "b", &Policy::DEFAULT).await);
    let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
    let outcome: StepResult<u32> = second
        .operation()
        .step("charge")
        .reconcile(|_| async { Err::<Reconciliation<u32>, _>(NoteError::TransactionOpen) })
        .run(|_| async { panic!("it must not run") })
        .await;
    assert!(matches!(outcome, Err(NoteError::TransactionOpen)));
    assert_eq!(second.operation().abandoned(), Abandoned::Retry);
}

#[tokio::test]
async fn a_step_whose_acknowledgment_was_lost_is_recorded_once() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Note, 1, Fault::After);
    assert!(matches!(step(first.operation(), "charge", 1).await, (true, Ok(1))));
    assert_eq!(store.calls(Op::Note), 2);
    drop(first);
    let second = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
    assert!(matches!(step(second.operation(), "charge", 9).await, (false, Ok(1))));
    assert!(matches!(step(second.operation(), "ledger", 2).await, (true, Ok(2))));
}

#[tokio::test]
async fn steps_run_one_after_the_other_under_names_of_their_own() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let operation = attempt.operation();
    let (begun, running) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let (first, ()) = tokio::join!(
        operation.step("one").run(|_| async {
            begun.send(()).unwrap();
            ended.await.unwrap();
            Ok::<_, NoteError>(1)
        }),
        async {
            running.await.unwrap();
            let (ran, outcome) = step(operation, "two", 2).await;
            assert!(!ran && matches!(outcome, Err(NoteError::Concurrent { .. })));
            end.send(()).unwrap();
        }
    );
    assert_eq!(first.unwrap(), 1);
    assert!(matches!(step(operation, "two", 2).await, (true, Ok(2))));
    for name in ["two", "", &"n".repeat(256)] {
        let (ran, outcome) = step(operation, name, 3).await;
        assert!(!ran && matches!(outcome, Err(NoteError::StepName { .. })), "{name}");
    }
}

const HOLD_LATE: Policy = Policy::DEFAULT.with_abandoned(OnAbandon::RetryThenHold);

#[tokio::test]
async fn a_key_is_held_only_after_the_point_of_no_return() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &HOLD_LATE).await;
    assert_eq!(first.operation().abandoned(), Abandoned::Retry);
    drop(first);
    let second = expect_attempt(abandon(&store, &runtime, &HOLD_LATE).await);
    second.operation().point_of_no_return().await.unwrap();
    second.operation().point_of_no_return().await.unwrap();
    assert_eq!(store.calls(Op::Note), 1, "the point is passed once");
    assert_eq!(second.operation().abandoned(), Abandoned::Hold);
    drop(second);
    assert!(matches!(
        abandon(&store, &runtime, &HOLD_LATE).await,
        Admission::Rejected(Verdict::Rejected(Rejection::Held { newly: true, .. }))
    ));
}

#[tokio::test]
async fn the_first_step_implies_the_point_of_no_return() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &HOLD_LATE).await;
    store.set_fault(Op::Note, 2, Fault::Before);
    let (ran, outcome) = step(first.operation(), "charge", 1).await;
    assert!(!ran && matches!(outcome, Err(NoteError::Store { .. })), "{outcome:?}");
    assert_eq!(first.operation().abandoned(), Abandoned::Retry, "nothing was done");
    let outcome: StepResult<u32> = first
        .operation()
        .step("charge")
        .run(|_| async {
            let record = store.inner().look_up(&id("k")).await.unwrap().unwrap().record;
            assert_eq!(record.abandoned, Abandoned::Hold, "it is stored before the effect");
            Err(NoteError::TransactionOpen)
        })
        .await;
    assert!(outcome.is_err());
    assert_eq!(first.operation().abandoned(), Abandoned::Hold);
    assert_eq!(first.abandon(Abandoned::Retry).await, AttemptOutcome::Stored);
    assert!(matches!(
        verdict_of(&runtime, "k", "b", &HOLD_LATE).await,
        Verdict::Rejected(Rejection::Held { newly: false, .. })
    ));
}

#[tokio::test]
async fn without_a_policy_for_it_the_point_of_no_return_is_an_error_that_names_the_policy() {
    for (policy, abandoned) in [(Policy::DEFAULT, Abandoned::Retry), (HOLD, Abandoned::Hold)] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &policy).await;
        assert_eq!(attempt.operation().abandoned(), abandoned);
        let error = attempt.operation().point_of_no_return().await.unwrap_err();
        assert!(matches!(error, NoteError::NoPointOfNoReturn), "{error:?}");
        assert!(error.to_string().contains("`abandoned = \"retry_then_hold\"`"), "{error}");
        assert_eq!(store.calls(Op::Note), 0);
        assert_eq!(attempt.operation().abandoned(), abandoned);
    }
}

#[tokio::test]
async fn under_hold_a_key_is_held_from_its_claim_on_whatever_the_handler_calls_later() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &HOLD).await;
    let record = store.inner().look_up(&id("k")).await.unwrap().unwrap().record;
    assert_eq!(record.abandoned, Abandoned::Hold);
    assert!(matches!(step(first.operation(), "charge", 1).await, (true, Ok(1))));
    drop(first);
    assert!(matches!(
        abandon(&store, &runtime, &HOLD).await,
        Admission::Rejected(Verdict::Rejected(Rejection::Held { newly: true, .. }))
    ));
}

#[tokio::test]
async fn conflicts_and_held_keys_show_the_reference() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let first = proceed(&runtime, "k", "b", &HOLD).await;
    first.operation().set_reference("pi_1").await.unwrap();
    first.operation().set_reference("pi_2").await.unwrap();
    let expected = Some("pi_2");
    let Verdict::Rejected(Rejection::InFlight { reference, .. }) =
        verdict_of(&runtime, "k", "b", &HOLD).await
    else {
        panic!("it is in flight")
    };
    assert_eq!(reference.as_deref(), expected);
    assert!(is_mismatch(&verdict_of(&runtime, "k", "other", &HOLD).await));
    drop(first);
    store.advance(HOLD.lease);
    for _ in 0..2 {
        let Verdict::Rejected(Rejection::Held { reference, .. }) =
            verdict_of(&runtime, "k", "b", &HOLD).await
        else {
            panic!("it is held")
        };
        assert_eq!(reference.as_deref(), expected);
    }
}

#[tokio::test]
async fn notes_are_validated() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let operation = attempt.operation();
    for refused in ["", "a\nb", &"a".repeat(256)] {
        assert!(operation.set_reference(refused).await.is_err(), "{refused}");
        assert!(operation.progress(refused).await.is_err(), "{refused}");
    }
    assert!(operation.set_input(&"a".repeat(300 << 10)).is_err());
    assert_eq!(store.calls(Op::Note), 0);
    let large: StepResult<String> =
        operation.step("large").run(|_| async { Ok("a".repeat(65 << 10)) }).await;
    assert!(matches!(large, Err(NoteError::TooLarge { .. })), "{large:?}");
}

#[tokio::test]
async fn the_input_is_stored_with_the_first_step() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    attempt.operation().set_input(&7).unwrap();
    let input =
        || async { store.inner().look_up(&id("k")).await.unwrap().unwrap().record.notes.input };
    assert_eq!(input().await, "");
    let outcome: StepResult<u32> = attempt
        .operation()
        .step("charge")
        .run(|_| async {
            assert_eq!(input().await, "\u{1}7", "it is stored before the effect");
            Ok(1)
        })
        .await;
    outcome.unwrap();
    assert_eq!(store.calls(Op::Note), 2);
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
    assert_eq!(store.inner().resumable(&ShortText::EMPTY, None, 10).await.unwrap().ids, [id("k")]);
}

#[tokio::test]
async fn a_record_shows_its_operation_and_its_signed_principal() {
    let store = FaultyStore::default();
    let principal = idempotent_core::ScopeId::of("user", "alice").principal();
    let keys = idempotent_core::FingerprintKeys::none().with(1, &[7; 32]).unwrap();
    for (secret, options) in
        [(false, no_purge()), (true, options(|options| options.fingerprint_keys = keys.clone()))]
    {
        let runtime = Runtime::new(store.clone(), options);
        let key = if secret { "signed" } else { "plain" };
        let subject =
            Subject::new(id(key)).with_operation("POST /payments").with_principal(principal);
        let admission = runtime.begin(subject, request("b"), &Policy::DEFAULT).await.unwrap();
        expect_attempt(admission).complete(&response("done")).await;
        let record = store.inner().look_up(&id(key)).await.unwrap().unwrap().record;
        assert_eq!((&*record.operation, record.status), ("POST /payments", Some(201)));
        assert_eq!(record.principal == Some(principal), !secret);
        assert_eq!(record.completed_at, Some(record.first_seen));
    }
}
