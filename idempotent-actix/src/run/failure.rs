//! Responses of the guard in place of the handler's.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{ConnectionType, header},
};
use idempotent_core::{Abandoned, ShortText, StoreError};
use idempotent_http::problem::retry_after;

use serde_json::json;

use crate::{
    idempotency::Idempotency,
    in_flight::ReachedLimit,
    not_run,
    outcome::RequestOutcome,
    problem::{HandlerProblem, ProblemKind},
};

/// What the guard needs to render a problem with the application's renderer.
#[derive(Clone, Copy)]
pub(super) struct Refusals<'a> {
    pub(super) idempotency: &'a Idempotency,
    pub(super) request: &'a HttpRequest,
}

impl Refusals<'_> {
    /// A problem of a request whose handler was not started.
    pub(super) fn refuse_unrun(self, kind: ProblemKind) -> HttpResponse {
        self.not_run(self.refuse(kind, RequestOutcome::Unavailable))
    }

    fn not_run(self, response: HttpResponse) -> HttpResponse {
        not_run::mark(response, self.request, &self.idempotency.settings().header)
    }

    /// A problem that is the same for each request.
    pub(super) fn refuse(self, kind: ProblemKind, outcome: RequestOutcome) -> HttpResponse {
        self.refuse_with(kind, kind.advice(), outcome)
    }

    fn refuse_with(self, kind: ProblemKind, detail: &str, outcome: RequestOutcome) -> HttpResponse {
        let mut problem = self.idempotency.problem(kind, detail);
        if matches!(kind, ProblemKind::StoreUnavailable | ProblemKind::ShuttingDown) {
            problem = problem.with_retry_after(retry_after(Duration::ZERO));
        }
        let mut response = self.idempotency.render(&problem, outcome, self.request);
        if kind == ProblemKind::ShuttingDown {
            // On a kept connection, the retry would meet the same server.
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        response
    }

    /// The record of the key cannot be read. It may be that of an attempt that was run.
    pub(super) fn unreadable(self) -> HttpResponse {
        self.refuse(ProblemKind::RecordUnreadable, RequestOutcome::Unavailable)
    }

    /// Another request with this key is in progress.
    pub(super) fn in_flight(
        self,
        lease_left: Duration,
        reference: Option<ShortText>,
    ) -> HttpResponse {
        let kind = ProblemKind::InFlight;
        let problem = self.idempotency.problem(kind, kind.advice()).with_reference(reference);
        let problem = problem.with_retry_after(retry_after(lease_left));
        self.idempotency.render(&problem, RequestOutcome::InFlight, self.request)
    }

    /// Another request with this key is in progress, and the client polls for its end.
    pub(super) fn poll(
        self,
        location: &str,
        lease_left: Duration,
        reference: Option<&str>,
    ) -> HttpResponse {
        let response = HttpResponse::Accepted()
            .insert_header((header::LOCATION, location))
            .insert_header((header::RETRY_AFTER, retry_after(lease_left)))
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .json(json!({ "state": "in_flight", "reference": reference }));
        RequestOutcome::InFlight.attach(response)
    }

    /// An earlier attempt was abandoned, and its outcome is unknown.
    pub(super) fn held(self, newly: bool, reference: Option<ShortText>) -> HttpResponse {
        let kind = ProblemKind::OutcomeUnknown;
        let problem = self.idempotency.problem(kind, kind.advice()).with_reference(reference);
        let outcome =
            if newly { RequestOutcome::BecameHeld } else { RequestOutcome::OutcomeUnknown };
        self.idempotency.render(&problem, outcome, self.request)
    }

    /// The handler ran, and the key no longer has the record of its attempt.
    pub(super) fn lost(self, reused: bool) -> HttpResponse {
        if !reused {
            return self.refuse(ProblemKind::HandlerFailed, RequestOutcome::HandlerFailed);
        }
        let detail = "This request may have been carried out, but its response is not recorded, \
                      and its key now belongs to a different request. Check what this request did \
                      before you send it with a new key.";
        self.refuse_with(ProblemKind::OutcomeUnknown, detail, RequestOutcome::OutcomeUnknown)
    }

    /// Too many operations are in flight.
    pub(super) fn overloaded(self, limit: ReachedLimit) -> HttpResponse {
        let kind = ProblemKind::Overloaded;
        let problem = match limit {
            ReachedLimit::Total => self.idempotency.problem(kind, kind.advice()),
            ReachedLimit::Principal => self
                .idempotency
                .problem(
                    kind,
                    "The request was not run. Wait until your other operations have finished, then \
                     send it again with the same key.",
                )
                .with_status(429),
        };
        let problem = problem.with_retry_after(retry_after(Duration::ZERO));
        self.not_run(self.idempotency.render(&problem, RequestOutcome::Overloaded, self.request))
    }

    /// The attempt was abandoned: its handler panicked or took too long.
    pub(super) fn abandoned(self, failure: HandlerFailure, policy: Abandoned) -> HttpResponse {
        let kind = failure.kind();
        if policy == Abandoned::Hold {
            return self.run_and_held(kind, failure.outcome());
        }
        let mut problem = self.idempotency.problem(kind, kind.advice());
        if failure == HandlerFailure::TimedOut {
            problem = problem.with_retry_after(retry_after(Duration::ZERO));
        }
        self.idempotency.render(&problem, failure.outcome(), self.request)
    }

    /// The handler responded, but its transaction was not committed, or the handler has ended it,
    /// and the key is held.
    pub(super) fn became_held(self) -> HttpResponse {
        self.run_and_held(ProblemKind::HandlerFailed, RequestOutcome::BecameHeld)
    }

    /// A problem of a request that was run, and whose key is held. A client or a proxy that knows
    /// statuses only must not send it again, as it would after 503.
    fn run_and_held(self, kind: ProblemKind, outcome: RequestOutcome) -> HttpResponse {
        let detail = "Check what this request did. Sending it again will not run it.";
        let problem = self.idempotency.problem(kind, detail).not_retryable();
        let problem = problem.with_status(500);
        self.idempotency.render(&problem, outcome, self.request)
    }

    /// The handler of a request that runs without a claim has not done all of its work. Another
    /// request would run it again.
    pub(super) fn unguarded(self, kind: ProblemKind, outcome: RequestOutcome) -> HttpResponse {
        let detail = "Part of the operation may have been done.";
        let problem = self.idempotency.problem(kind, detail).not_retryable();
        self.idempotency.render(&problem, outcome, self.request)
    }

    /// The handler responded, but its transaction was not committed, or may not have been: its
    /// response would report effects that may not exist.
    pub(super) fn not_committed(self, transient: bool) -> HttpResponse {
        if !transient {
            return self.refuse(ProblemKind::HandlerFailed, RequestOutcome::HandlerFailed);
        }
        self.refuse_with(
            ProblemKind::StoreUnavailable,
            "The operation may have been done. Send the request again with the same key to find \
             out.",
            RequestOutcome::Unavailable,
        )
    }

    /// The handler returned the error of its `Tx` or of its `Operation`, and may have called other
    /// services before.
    pub(super) fn handler_problem(self, problem: HandlerProblem, held: bool) -> HttpResponse {
        let HandlerProblem { kind, retryable } = problem;
        let outcome = outcome_of(kind);
        if held {
            return self.run_and_held(kind, outcome);
        }
        let detail = if kind == ProblemKind::StoreUnavailable {
            "The operation was not completed. Send the request again with the same key."
        } else if retryable {
            kind.advice()
        } else {
            "Part of the operation may have been done. The reason is in the server's log."
        };
        if retryable {
            return self.refuse_with(kind, detail, outcome);
        }
        let problem = self.idempotency.problem(kind, detail).not_retryable();
        self.idempotency.render(&problem, outcome, self.request)
    }
}

/// The outcome of a request whose handler returned the error of its `Tx` or of its `Operation`.
pub(super) fn outcome_of(kind: ProblemKind) -> RequestOutcome {
    if kind == ProblemKind::HandlerFailed {
        RequestOutcome::HandlerFailed
    } else {
        RequestOutcome::Unavailable
    }
}

/// Why there is no response of the handler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HandlerFailure {
    /// The handler panicked, or the body of its response failed.
    Failed,
    /// The handler did not respond within its time limit.
    TimedOut,
}

impl HandlerFailure {
    pub(super) fn kind(self) -> ProblemKind {
        match self {
            Self::Failed => ProblemKind::HandlerFailed,
            Self::TimedOut => ProblemKind::HandlerTimedOut,
        }
    }

    pub(super) fn outcome(self) -> RequestOutcome {
        match self {
            Self::Failed => RequestOutcome::HandlerFailed,
            Self::TimedOut => RequestOutcome::HandlerTimedOut,
        }
    }
}

/// The cause of a store's error, for the log.
pub(super) fn cause(error: &StoreError) -> Option<&(dyn std::error::Error + 'static)> {
    std::error::Error::source(error)
}
