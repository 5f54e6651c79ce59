//! Runs the work of an attempt, and ends the attempt by its result.

use std::{
    any::Any,
    convert::Infallible,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    outcome::{Done, Failure, RunError},
    result_recording,
};
use crate::{
    policy::Abandoned,
    protocol::Rejection,
    recording::EncodedRecording,
    runtime::{Attempt, AttemptOutcome, TransactionSlot},
    short_text::ShortText,
};

/// What ends an attempt whose work has ended.
enum RunEnd {
    /// The result is recorded, and the effects are committed.
    Record(EncodedRecording),
    /// The result is recorded, and the effects are rolled back.
    RecordFailure(EncodedRecording),
    /// Nothing is recorded, and the next run runs the work.
    Release,
    /// The outcome is unknown.
    Abandon(Abandoned),
}

/// Runs the work of an attempt, and ends the attempt. `slot` gets the transaction, if there is one.
pub(super) async fn carry_out<T, E>(
    mut attempt: Attempt,
    work: impl Future<Output = Result<T, Failure<E>>>,
    slot: Option<Arc<TransactionSlot>>,
) -> Result<Done<T>, RunError<E>>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned,
{
    let operation = attempt.operation().clone();
    let result = operation.scope(pin!(caught(work))).await;
    // The work is dropped by now.
    if let Some(slot) = slot {
        slot.close_for(&mut attempt);
    }
    let result = match result {
        Ok(result) => result,
        Err(panic) => {
            abandon_panicked(attempt).await;
            resume_unwind(panic)
        }
    };
    let (end, result) = match result {
        Ok(value) => of_value(&attempt, value),
        Err(failure) => of_failure(&attempt, failure),
    };
    let id = *attempt.id();
    let outcome = match end {
        RunEnd::Record(recording) => attempt.complete(recording).await,
        RunEnd::RecordFailure(recording) => attempt.complete_rolled_back(recording).await,
        RunEnd::Release => attempt.release().await,
        RunEnd::Abandon(policy) => attempt.abandon(policy).await,
    };
    match outcome {
        AttemptOutcome::Stored | AttemptOutcome::Deferred => {}
        AttemptOutcome::Fenced(verdict) => return result_recording::result_of(verdict),
        AttemptOutcome::NotCommitted { transient } => {
            return Err(RunError::NotCommitted { transient });
        }
        AttemptOutcome::Held => return Err(RunError::Rejected(held(operation.reference()))),
    }
    if let Err(
        RunError::Unknown { .. }
        | RunError::Rejected(Rejection::Held { .. })
        | RunError::Other { held: true, .. },
    ) = result
    {
        tracing::warn!(
            id = %id.short(),
            "the outcome of a run is unknown; its key is held until it is resolved"
        );
    }
    result
}

/// The key of this run is held from now on.
fn held(reference: Option<ShortText>) -> Rejection<Infallible> {
    Rejection::Held { newly: true, reference }
}

/// How a value ends its attempt.
fn of_value<T: Serialize + DeserializeOwned, E>(
    attempt: &Attempt,
    value: T,
) -> (RunEnd, Result<Done<T>, RunError<E>>) {
    if attempt.operation().is_unknown() {
        let error = RunError::Rejected(held(None));
        return (RunEnd::Abandon(Abandoned::Hold), Err(error));
    }
    let (recording, value) = result_recording::of_value(value);
    (RunEnd::Record(recording), Ok(Done { value, replayed: false }))
}

/// How a failure ends its attempt.
fn of_failure<T, E: Serialize + DeserializeOwned>(
    attempt: &Attempt,
    failure: Failure<E>,
) -> (RunEnd, Result<Done<T>, RunError<E>>) {
    let operation = attempt.operation();
    let hold = RunEnd::Abandon(Abandoned::Hold);
    let (end, error) = match failure {
        Failure::Other(source) if operation.abandoned() == Abandoned::Hold => {
            (hold, RunError::Other { source, held: true })
        }
        Failure::Other(source) => (RunEnd::Release, RunError::Other { source, held: false }),
        Failure::Final(error) | Failure::Retryable(error) | Failure::Unknown(error)
            if operation.is_unknown() =>
        {
            (hold, RunError::Unknown { error })
        }
        Failure::Unknown(error) => (hold, RunError::Unknown { error }),
        Failure::Retryable(error) if operation.release_holds() => {
            (RunEnd::Release, RunError::Unknown { error })
        }
        Failure::Retryable(error) => (RunEnd::Release, RunError::Retryable { error }),
        Failure::Final(error) => {
            let (recording, error) = result_recording::of_failure(error);
            (RunEnd::RecordFailure(recording), RunError::Final { error, replayed: false })
        }
    };
    (end, Err(error))
}

async fn abandon_panicked(attempt: Attempt) {
    let (id, policy) = (*attempt.id(), attempt.operation().abandoned());
    let next = match policy {
        Abandoned::Hold => "its key is held until it is resolved",
        Abandoned::Retry => "the next run with the key runs it again",
    };
    tracing::error!(id = %id.short(), next, "the work of a run panicked");
    attempt.abandon(policy).await;
}

/// Polls a future to its end or its panic, and drops it.
async fn caught<F: Future>(work: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut work = Box::pin(work);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map_or_else(|panic| Poll::Ready(Err(panic)), |polled| polled.map(Ok))
    })
    .await
}
