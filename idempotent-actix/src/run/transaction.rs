//! The transaction of a handler, and what its response means for it.

use std::sync::Arc;

use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use idempotent_core::runtime::TransactionSlot;

use crate::problem::HandlerProblem;

/// The slot of the request's transaction, if its handler takes a `Tx`.
pub(super) fn slot_of(request: &HttpRequest) -> Option<Arc<TransactionSlot>> {
    request.extensions().get::<Arc<TransactionSlot>>().cloned()
}

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
