//! What the response of a handler means for its transaction.

use actix_web::HttpResponse;

use crate::problem::HandlerProblem;

/// Whether a response says that the operation was not done, so that its effects are rolled back.
pub(super) fn has_failed(response: &HttpResponse) -> bool {
    response.status().as_u16() >= 400
}

/// The problem of a handler that returned the error of its `Tx` or of its `Operation`.
pub(super) fn handler_problem(response: &HttpResponse) -> Option<HandlerProblem> {
    response.extensions().get::<HandlerProblem>().copied()
}

/// Logs that a handler has responded without giving its transaction back.
pub(super) fn log_missing() {
    tracing::error!(
        "a handler has responded and kept its transaction, which is rolled back; drop the `Tx` \
         before the response"
    );
}
