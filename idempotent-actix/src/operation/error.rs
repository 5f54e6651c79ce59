//! The error of an operation's calls, as a response.

use std::{error::Error as StdError, fmt};

use actix_web::{HttpResponse, ResponseError, http::StatusCode};
use idempotent_core::runtime;

use crate::problem::{self, HandlerProblem, ProblemKind};

/// The error of a call of an [`Operation`](super::Operation). A handler can return it with `?`.
///
/// The response is rendered like the guard's own problems, by the function that the application has
/// set with [`problems`](crate::IdempotencyBuilder::problems):
///
/// | [`cause`](Self::cause) | response |
/// |---|---|
/// | `Store` | 503 `store_unavailable`, or 500 `handler_failed` if the error is permanent |
/// | `OutcomeUnknown` | 409 `outcome_unknown`; the key is held |
/// | `Fenced` | the response of the attempt that has taken over the key |
/// | any other | 500 `handler_failed`; the cause is logged |
///
/// The key of a request that gets 500 or 503 is released, or held with `abandoned = "hold"` or
/// after the point of no return. Steps that are done stay recorded.
#[derive(Debug)]
pub struct OperationError {
    cause: runtime::NoteError,
}

impl OperationError {
    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &runtime::NoteError {
        &self.cause
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "any other cause is the handler's fault")]
    fn problem(&self) -> HandlerProblem {
        HandlerProblem::new(match &self.cause {
            runtime::NoteError::Store { source, .. } => {
                return HandlerProblem::of_store(source);
            }
            runtime::NoteError::OutcomeUnknown => ProblemKind::OutcomeUnknown,
            runtime::NoteError::Fenced => ProblemKind::InFlight,
            _ => ProblemKind::HandlerFailed,
        })
    }
}

impl From<runtime::NoteError> for OperationError {
    fn from(cause: runtime::NoteError) -> Self {
        Self { cause }
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl StdError for OperationError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

impl ResponseError for OperationError {
    fn status_code(&self) -> StatusCode {
        problem::status_code(self.problem().kind.status())
    }

    fn error_response(&self) -> HttpResponse {
        tracing::error!(error = %self, cause = self.source(), "a call of an operation failed");
        problem::of_handler(self.problem())
    }
}
