//! Steps without an attempt, after it, and in a later one.

use super::*;

#[test]
fn the_future_of_a_step_can_be_sent_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    let operation = Run::unguarded(id("k"));
    is_send(&operation.step("charge").run(|_| async { Ok::<_, NoteError>(1) }));
    is_send(&operation.set_reference("pi_1"));
}

#[tokio::test]
async fn an_unguarded_operation_runs_its_steps() {
    let operation = Run::unguarded(id("k"));
    assert!(matches!(step(&operation, "charge", 1).await, (true, Ok(1))));
    operation.set_reference("pi_1").await.unwrap();
    operation.point_of_no_return().await.unwrap();
    assert!(!operation.recovering());
}

/// Fails if a task that has kept the operation can still cause effects after the client has its
/// response.
#[tokio::test]
async fn after_the_attempt_no_step_runs() {
    for end in ["complete", "release", "abandon", "drop"] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        let operation = attempt.operation().clone();
        match end {
            "complete" => drop(attempt.complete(&response("done")).await),
            "release" => drop(attempt.release().await),
            "abandon" => drop(attempt.abandon(Abandoned::Retry).await),
            _ => drop(attempt),
        }
        let ran = std::cell::Cell::new(false);
        let step = operation.step("charge").run(|_| async {
            ran.set(true);
            Ok::<_, NoteError>(1)
        });
        assert!(matches!(step.await, Err(NoteError::Ended)), "{end}");
        assert!(!ran.get(), "{end}: the effect");
        for noted in [
            operation.set_reference("pi_1").await,
            operation.progress("late").await,
            operation.point_of_no_return().await,
        ] {
            assert!(matches!(noted, Err(NoteError::Ended)), "{end}: {noted:?}");
        }
        // What is to be stored with the end comes too late.
        operation.transaction_begun();
        let noted = operation.set_reference("pi_1").await;
        assert!(matches!(noted, Err(NoteError::Ended)), "{end}: {noted:?}");
        assert_eq!(store.calls(Op::Note), 0);
    }
}

/// The outcome is decided as soon as it is sent.
#[tokio::test]
async fn while_the_attempt_ends_no_step_begins() {
    for op in [Op::Complete, Op::Release, Op::Abandon] {
        let store = FaultyStore::default();
        let attempt = proceed(&runtime(&store), "k", "b", &Policy::DEFAULT).await;
        let operation = attempt.operation().clone();
        store.set_fault(op, 1, Fault::HangBefore);
        let ending = tokio::spawn(async move {
            if op == Op::Complete {
                attempt.complete(&response("done")).await
            } else if op == Op::Release {
                attempt.release().await
            } else {
                attempt.abandon(Abandoned::Retry).await
            }
        });
        until("the end is sent", || store.begun(op) == 1).await;
        let (ran, outcome) = step(&operation, "charge", 1).await;
        assert!(!ran && matches!(outcome, Err(NoteError::Ended)), "{op:?}: {outcome:?}");
        store.resume();
        assert_eq!(in_time(ending).await.unwrap(), AttemptOutcome::Stored, "{op:?}");
    }
}

/// Between the beginning of a step and its effect it reads the record, and notes the input.
#[tokio::test]
async fn a_step_that_began_before_the_end_of_the_attempt_runs_nothing_after_it() {
    for op in [Op::LookUp, Op::Note] {
        let store = FaultyStore::default();
        let runtime = runtime(&store);
        let mut attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
        if op == Op::LookUp {
            drop(attempt);
            attempt = expect_attempt(abandon(&store, &runtime, &Policy::DEFAULT).await);
        }
        let operation = attempt.operation().clone();
        operation.set_input(&7).unwrap();
        store.set_fault(op, 1, Fault::HangAfter);
        let stepping = tokio::spawn(async move { step(&operation, "charge", 1).await });
        until("the call is sent", || store.begun(op) == 1).await;
        assert_eq!(attempt.complete(&response("done")).await, AttemptOutcome::Stored);
        store.resume();
        let (ran, outcome) = in_time(stepping).await.unwrap();
        assert!(!ran && matches!(outcome, Err(NoteError::Ended)), "{op:?}: {outcome:?}");
    }
}

/// A later attempt reads the result from JSON, which does not keep every value.
#[tokio::test]
async fn the_first_attempt_and_the_later_ones_get_the_same_result_of_a_step() {
    let runtime = runtime(&FaultyStore::default());
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    let step = attempt.operation().step("charge");
    let result = step.run(|_| async { Ok::<_, NoteError>(Some(())) }).await;
    assert_eq!(result.unwrap(), None);
    let step = attempt.operation().step("unreadable");
    let result = step.run(|_| async { Ok::<_, NoteError>(f64::NAN) }).await;
    assert!(matches!(result, Err(NoteError::Serialize { .. })), "{result:?}");
}
