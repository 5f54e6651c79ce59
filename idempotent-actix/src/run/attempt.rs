//! One attempt: runs the handler, and ends the attempt according to its response.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    error::Error as StdError,
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
};

use actix_web::HttpResponse;
use futures_util::{FutureExt, future::Either};
use idempotent_core::{
    Abandoned, EncodedRecording, RecordId,
    runtime::{Attempt, AttemptOutcome, Run},
};

use super::{
    KeyedRun,
    failure::HandlerFailure,
    handler::{HandlerFuture, within},
    transaction::{handler_problem, has_failed, slot_of},
};
use crate::{
    declaration::Declaration,
    outcome::{Disposition, RequestOutcome},
    problem::{HandlerProblem, ProblemKind},
    recording,
};

/// What ends an attempt whose handler has responded.
enum HandlerEnd {
    /// The response is recorded.
    Record(EncodedRecording),
    /// Nothing is recorded, and the next request runs.
    Release,
    /// The outcome is unknown, and the key is held.
    Hold,
}

/// How a handler has run. An error is the reason why it has no response.
type HandlerResult = Result<(HandlerEnd, HttpResponse), (HandlerFailure, Cow<'static, str>)>;

impl KeyedRun {
    /// Runs the handler and ends the attempt.
    pub(super) async fn attempt(
        &self,
        mut attempt: Attempt,
        handler: HandlerFuture,
    ) -> HttpResponse {
        let run = self.run_handler(&mut attempt, handler).await;
        self.end(attempt, run).await
    }

    async fn run_handler(&self, attempt: &mut Attempt, handler: HandlerFuture) -> HandlerResult {
        let operation = attempt.operation().clone();
        self.context.set_operation(operation, &self.idempotency, self.operation);
        let slot = slot_of(&self.request);
        if let Some(slot) = &slot {
            // With `claim = "transaction"` the claim has begun one; otherwise the `Tx` begins one.
            slot.open_for(attempt);
        }
        let time_limit = self.idempotency.time_limit(self.operation);
        let response = AssertUnwindSafe(self.respond(handler, attempt.operation())).catch_unwind();
        let response = within(time_limit, response).await;
        if let Some(slot) = slot {
            slot.close_for(attempt);
        }
        match response {
            Some(Ok(Ok(responded))) => Ok(responded),
            Some(Ok(Err(error))) => {
                let reason = format!("the body of the handler's response failed: {error}");
                Err((HandlerFailure::Failed, reason.into()))
            }
            Some(Err(_)) => Err((HandlerFailure::Failed, self.panic_message().into())),
            None => {
                let reason = "the handler did not respond within its time limit";
                Err((HandlerFailure::TimedOut, reason.into()))
            }
        }
    }

    /// Ends the attempt. Not an `async fn`, which would contain its arguments twice.
    fn end(&self, attempt: Attempt, run: HandlerResult) -> impl Future<Output = HttpResponse> {
        let (end, response) = match run {
            Ok(run) => run,
            Err((failure, reason)) => {
                return Either::Left(Box::pin(self.abandon(attempt, reason, failure)));
            }
        };
        let held = match end {
            HandlerEnd::Record(_) => false,
            HandlerEnd::Release => attempt.operation().release_holds(),
            HandlerEnd::Hold => true,
        };
        let id = *attempt.id();
        Either::Right(async move {
            let outcome = match end {
                HandlerEnd::Record(recording) if has_failed(&response) => {
                    attempt.complete_rolled_back(recording).await
                }
                HandlerEnd::Record(recording) => attempt.complete(recording).await,
                HandlerEnd::Release => attempt.release().await,
                HandlerEnd::Hold => attempt.abandon(Abandoned::Hold).await,
            };
            self.finish(id, outcome, response, held)
        })
    }

    /// The handler's response, and how it ends the attempt.
    async fn respond(
        &self,
        handler: HandlerFuture,
        operation: &Run,
    ) -> Result<(HandlerEnd, HttpResponse), Box<dyn StdError>> {
        let response = operation.scope(handler).await;
        let abandoned = operation.abandoned();
        let stated = response.extensions().get::<Disposition>().copied();
        let disposition = match (stated, handler_problem(&response)) {
            _ if operation.is_unknown() => Disposition::Unknown,
            (Some(stated), _) => stated,
            (None, Some(_)) => Disposition::unrecorded(abandoned),
            (None, None) => {
                let rule = self.idempotency.settings().policy.record_rule(self.operation);
                Disposition::by_status(response.status(), rule, abandoned)
            }
        };
        match disposition {
            Disposition::Final => {
                let limits = self.idempotency.settings().recording;
                let trace = self.idempotency.settings().traces.current();
                let recorded = recording::record(response, limits, trace).await?;
                if recorded.exceeds_limit {
                    log_omitted(self.operation, limits);
                }
                let recording = match &self.idempotency.settings().redact {
                    Some(redact) => recording::redacted(recorded.recording, redact, &self.request),
                    None => recorded.recording,
                };
                Ok((HandlerEnd::Record(recording), recorded.response))
            }
            Disposition::Retryable => Ok((HandlerEnd::Release, response)),
            Disposition::Unknown => Ok((HandlerEnd::Hold, response)),
        }
    }

    /// The log message if the handler panicked.
    fn panic_message(&self) -> &'static str {
        if self.context.detached.get() {
            "the handler, or the body of its response, panicked after its client had disconnected; \
             it then ran in a separate task, where task-locals of middleware are not set unless \
             `FinishAfterDisconnect` is the outermost middleware"
        } else {
            "the handler, or the body of its response, panicked"
        }
    }

    /// The handler's response, unless its attempt was fenced or its transaction was not committed.
    fn finish(
        &self,
        id: RecordId,
        outcome: AttemptOutcome,
        response: HttpResponse,
        held: bool,
    ) -> HttpResponse {
        match outcome {
            AttemptOutcome::Stored | AttemptOutcome::Deferred => {}
            AttemptOutcome::Fenced(verdict) => return self.reject(verdict),
            AttemptOutcome::NotCommitted { transient } => {
                return self.refusals().not_committed(transient);
            }
            AttemptOutcome::Held => {
                log_held(id);
                return self.refusals().became_held();
            }
        }
        let response = match handler_problem(&response) {
            Some(HandlerProblem { kind: ProblemKind::OutcomeUnknown, .. }) => {
                let reference = self.context.operation().and_then(Run::reference);
                self.refusals().held(true, reference)
            }
            Some(problem) => self.refusals().handler_problem(problem, held),
            None => RequestOutcome::Ran.attach(response),
        };
        if !held {
            return response;
        }
        log_held(id);
        RequestOutcome::BecameHeld.attach(response)
    }

    /// Ends an attempt whose outcome is unknown.
    async fn abandon(
        &self,
        attempt: Attempt,
        reason: Cow<'static, str>,
        failure: HandlerFailure,
    ) -> HttpResponse {
        let (id, policy) = (*attempt.id(), attempt.operation().abandoned());
        let next = match policy {
            Abandoned::Hold => "its key is held until it is resolved",
            Abandoned::Retry => "the next request runs it again",
        };
        tracing::error!(id = %id.short(), %reason, next, "an attempt was abandoned");
        match attempt.abandon(policy).await {
            AttemptOutcome::Stored
            | AttemptOutcome::Deferred
            | AttemptOutcome::NotCommitted { .. } => self.refusals().abandoned(failure, policy),
            AttemptOutcome::Held => self.refusals().abandoned(failure, Abandoned::Hold),
            AttemptOutcome::Fenced(verdict) => self.reject(verdict),
        }
    }
}

/// Logs once for each handler that its responses are not recorded whole.
fn log_omitted(operation: &'static Declaration, limits: recording::RecordingLimits) {
    static LOGGED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if !logged.insert(std::ptr::from_ref(operation).addr()) {
        return;
    }
    drop(logged);
    let (handler, bytes, time) = (operation.handler, limits.bytes, limits.time);
    tracing::warn!(
        handler, response_limit = bytes, stream_limit = ?time,
        "a response was larger than `response_limit`, or streamed for longer than `stream_limit`; \
         its replays, and those of such responses of this handler, have only status and headers"
    );
}

fn log_held(id: RecordId) {
    tracing::warn!(
        id = %id.short(),
        "the outcome of an operation is unknown; its key is held until it is resolved"
    );
}
