//! A run without a claim: the request has no key, or the store cannot be reached and the
//! application chose to run anyway.

use std::{panic::AssertUnwindSafe, time::Duration};

use actix_web::{HttpRequest, HttpResponse};
use futures_util::FutureExt;
use idempotent_core::runtime::ReturnedTransaction;

use super::{
    failure::{HandlerFailure, Refusals, cause, outcome_of},
    handler::{HandlerFuture, within},
    transaction::{handler_problem, has_failed, log_missing, slot_of},
};
use crate::{
    idempotency::Idempotency,
    outcome::RequestOutcome,
    problem::{HandlerProblem, ProblemKind},
};

/// Runs a handler without a claim. A panic gets the same response as in a guarded run.
pub(super) async fn run_unguarded(
    idempotency: &Idempotency,
    request: &HttpRequest,
    handler: HandlerFuture,
    time_limit: Option<Duration>,
) -> HttpResponse {
    let refusals = Refusals { idempotency, request };
    let slot = slot_of(request);
    if let Some(slot) = &slot {
        slot.open(None);
    }
    let response = within(time_limit, AssertUnwindSafe(handler).catch_unwind()).await;
    let committed = match slot.map(|slot| slot.close()) {
        None => Ok(()),
        Some(returned) => {
            let commit = matches!(&response, Some(Ok(response)) if !has_failed(response));
            end_transaction(returned, commit).await
        }
    };
    let failure = match (response, committed) {
        (Some(Ok(response)), Ok(())) => {
            return match handler_problem(&response) {
                Some(HandlerProblem { kind, .. }) => refusals.unguarded(kind, outcome_of(kind)),
                None => RequestOutcome::Ran.attach(response),
            };
        }
        (Some(Ok(_)), Err(NotCommitted { transient: true })) => {
            let (kind, outcome) = (ProblemKind::StoreUnavailable, RequestOutcome::Unavailable);
            return refusals.unguarded(kind, outcome);
        }
        (Some(_), _) => HandlerFailure::Failed,
        (None, _) => HandlerFailure::TimedOut,
    };
    refusals.unguarded(failure.kind(), failure.outcome())
}

/// A transaction was not committed.
struct NotCommitted {
    /// Whether a later request may succeed.
    transient: bool,
}

async fn end_transaction(returned: ReturnedTransaction, commit: bool) -> Result<(), NotCommitted> {
    match returned {
        ReturnedTransaction::Unused => Ok(()),
        ReturnedTransaction::Returned(transaction) if commit => {
            transaction.commit().await.map_err(|error| {
                let cause = cause(&error);
                tracing::error!(
                    %error, cause,
                    "committing a transaction failed; the response is not sent"
                );
                NotCommitted { transient: error.is_transient() }
            })
        }
        ReturnedTransaction::Returned(transaction) => {
            transaction.roll_back().await;
            Ok(())
        }
        ReturnedTransaction::Missing => {
            log_missing();
            Err(NotCommitted { transient: false })
        }
    }
}
