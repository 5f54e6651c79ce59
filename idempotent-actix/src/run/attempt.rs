//! The handler of one attempt, and how the attempt ends.

use std::{error::Error as StdError, panic::AssertUnwindSafe, time::Duration};

use actix_web::{HttpResponse, http::StatusCode};
use futures_util::FutureExt;
use idempotent_core::{
    Abandoned, EncodedRecording, RecordId,
    runtime::{Attempt, AttemptOutcome},
};

use super::{
    Run,
    unguarded::{no_transaction, not_committed, within},
    work::Work,
};
use crate::{
    account::Account,
    outcome::{Disposition, RequestOutcome},
    private::ClaimMode,
    problem::{self, ProblemKind},
    recording,
};

impl Run {
    /// Runs the handler and ends the attempt.
    pub(super) async fn attempt(&self, mut attempt: Attempt, work: Work) -> HttpResponse {
        // The slot is new with each request, so it is empty here.
        let _ = self.slot.claimed.set((*attempt.id(), attempt.number()));
        let account = Account::of(&self.request);
        if let Some(account) = &account {
            if self.operation.claim == ClaimMode::Lease
                && let Err(error) = Box::pin(attempt.transact()).await
            {
                Box::pin(attempt.release()).await;
                return no_transaction(&self.idempotency, &self.request, &error);
            }
            account.lend(attempt.lend());
        }
        let time_limit = self.idempotency.time_limit(self.operation);
        let answered = within(time_limit, AssertUnwindSafe(self.answer(work)).catch_unwind()).await;
        if let Some(transaction) = account.and_then(|account| account.close()) {
            attempt.take_back(transaction);
        }
        let (kept, response) = match answered {
            Some(Ok(Ok(answered))) => answered,
            Some(Ok(Err(error))) => {
                let why = format!("the response's body failed: {error}");
                return Box::pin(self.abandon(attempt, &why, ProblemKind::HandlerFailed)).await;
            }
            Some(Err(_)) => {
                return Box::pin(self.abandon(attempt, self.panic_message(), ProblemKind::HandlerFailed)).await;
            }
            None => {
                let why = "the handler did not respond within its time limit";
                return Box::pin(self.abandon(attempt, why, ProblemKind::HandlerTimedOut)).await;
            }
        };
        let (id, held) = (*attempt.id(), matches!(kept, Kept::Unknown));
        let ending = match kept {
            Kept::Answer(recording) if fails(&response) => attempt.complete_rolled_back(recording).await,
            Kept::Answer(recording) => attempt.complete(recording).await,
            Kept::Nothing => attempt.release().await,
            Kept::Unknown => attempt.abandon(Abandoned::Hold).await,
        };
        self.end(id, ending, response, held)
    }

    /// The handler's response, and what is kept of it.
    async fn answer(&self, work: Work) -> Result<(Kept, HttpResponse), Box<dyn StdError>> {
        let response = work.await;
        let stated = response.extensions().get::<Disposition>().copied();
        match stated.unwrap_or_else(|| Disposition::by_status(response.status(), &self.operation.policy)) {
            Disposition::Final => {
                let recorded = recording::record(response, self.idempotency.settings().recording).await;
                recorded.map(|(recording, response)| (Kept::Answer(recording), response))
            }
            Disposition::Retryable => Ok((Kept::Nothing, response)),
            Disposition::Unknown => Ok((Kept::Unknown, response)),
        }
    }

    /// What the log says where the handler panicked.
    fn panic_message(&self) -> &'static str {
        if self.slot.detached.get() {
            "the handler, or its response's body, panicked after its client had disconnected. It then ran in a task of its own, where \
             task-locals of middleware are not set unless `FinishAfterDisconnect` is the outermost middleware"
        } else {
            "the handler, or its response's body, panicked"
        }
    }

    /// The handler's response, unless its attempt does not count.
    fn end(&self, id: RecordId, ending: AttemptOutcome, response: HttpResponse, held: bool) -> HttpResponse {
        match ending {
            AttemptOutcome::Stored | AttemptOutcome::Deferred if held => {
                tracing::warn!(%id, "the outcome of an operation is unknown; its key is held until it is resolved");
                with(response, RequestOutcome::BecameHeld)
            }
            AttemptOutcome::Stored | AttemptOutcome::Deferred => ran(response),
            AttemptOutcome::Fenced(verdict) => self.tell(verdict),
            AttemptOutcome::NotCommitted { transient } => not_committed(&self.idempotency, &self.request, transient),
        }
    }

    /// Ends an attempt whose outcome is unknown.
    async fn abandon(&self, attempt: Attempt, why: &str, kind: ProblemKind) -> HttpResponse {
        let (id, held) = (*attempt.id(), self.operation.policy.abandoned == Abandoned::Hold);
        let next = if held { "its key is held until it is resolved" } else { "the next request runs it again" };
        tracing::error!(%id, why, next, "an attempt was abandoned");
        match attempt.abandon(self.operation.policy.abandoned).await {
            AttemptOutcome::Stored | AttemptOutcome::Deferred | AttemptOutcome::NotCommitted { .. } => {
                self.abandoned(kind, held)
            }
            AttemptOutcome::Fenced(verdict) => self.tell(verdict),
        }
    }

    fn abandoned(&self, kind: ProblemKind, held: bool) -> HttpResponse {
        let mut problem = self.idempotency.problem(kind, kind.advice());
        if held {
            problem = problem.not_retryable().with_status(StatusCode::INTERNAL_SERVER_ERROR);
        } else if kind == ProblemKind::HandlerTimedOut {
            problem = problem.retry_after(problem::retry_after(Duration::ZERO));
        }
        let outcome = if kind == ProblemKind::HandlerTimedOut {
            RequestOutcome::HandlerTimedOut
        } else {
            RequestOutcome::HandlerFailed
        };
        self.idempotency.render(&problem, outcome, &self.request)
    }
}

/// What is kept of a response.
enum Kept {
    Answer(EncodedRecording),
    Nothing,
    /// Only that the outcome is unknown.
    Unknown,
}

/// Whether a response says that the operation was not done, so that its effects are undone.
pub(super) fn fails(response: &HttpResponse) -> bool {
    response.status().as_u16() >= 400
}

pub(super) fn ran(response: HttpResponse) -> HttpResponse {
    with(response, RequestOutcome::Ran)
}

fn with(mut response: HttpResponse, outcome: RequestOutcome) -> HttpResponse {
    response.extensions_mut().insert(outcome);
    response
}
