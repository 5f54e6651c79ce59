//! Error responses of the guard (RFC 9457).
//!
//! The guard reports each request that it refuses, or whose handler fails, as a [`Problem`]. The
//! function that the application has set with [`problems`](crate::IdempotencyBuilder::problems)
//! renders it: [`json()`], [`stripe`], or a function of the application. Without such a function,
//! the [dialect](crate::dialect) says how a problem is written; that of [`json()`] is the default.

use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, http::StatusCode};
use idempotent_core::StoreError;
pub use idempotent_http::problem::{Problem, ProblemKind};
use idempotent_http::{
    dialect::{Dialect, ProblemShape},
    header_names,
    problem::MEDIA_TYPE,
};
use serde_json::Value;

/// Marks the response of a `TxError` or an `OperationError`, which the guard renders again with the
/// application's renderer.
#[derive(Clone, Copy)]
pub(crate) struct HandlerProblem {
    pub(crate) kind: ProblemKind,
    /// Whether a later request may succeed.
    pub(crate) retryable: bool,
}

impl HandlerProblem {
    pub(crate) fn new(kind: ProblemKind) -> Self {
        Self { kind, retryable: kind.retryable() }
    }

    /// The problem of a handler whose call to the store failed. `misconfigured` would report that
    /// the handler did not run.
    pub(crate) fn of_store(error: &StoreError) -> Self {
        let kind = ProblemKind::of_store(error);
        if kind == ProblemKind::Misconfigured {
            return Self { kind: ProblemKind::HandlerFailed, retryable: false };
        }
        Self::new(kind)
    }
}

/// Renders a problem as `application/problem+json` (RFC 9457), with the headers of [`builder`].
#[must_use]
pub fn json(problem: &Problem, _: &HttpRequest) -> HttpResponse {
    response(builder(problem), &problem.to_json())
}

/// Renders a problem as the dialect of the application says.
pub(crate) fn in_dialect(dialect: &Dialect, problem: &Problem) -> HttpResponse {
    let (media_type, body) = dialect.write(problem);
    let mut builder = builder(problem);
    if dialect.problem_shape == ProblemShape::WithError {
        builder.insert_header((header_names::STRIPE_SHOULD_RETRY, should_retry(problem)));
    }
    builder.content_type(media_type).body(body.to_string())
}

fn should_retry(problem: &Problem) -> &'static str {
    if problem.is_retryable() { "true" } else { "false" }
}

/// Renders a problem so that Stripe's client libraries understand it too.
///
/// The response is that of [`json()`] with a top-level `error` object and the header
/// `Stripe-Should-Retry`.
///
/// A reused key has the status 400 instead of 422 if the client sends `X-Stripe-Client-User-Agent`,
/// as Stripe's libraries do: they raise their idempotency error only for 400. With
/// [`Dialect::stripe`], every client gets 400.
#[must_use]
pub fn stripe(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    let is_stripe_client = request.headers().contains_key("x-stripe-client-user-agent");
    let (status, body) = problem.to_stripe_json(is_stripe_client);
    let mut builder = builder(problem);
    builder
        .status(status_code(status))
        .insert_header((header_names::STRIPE_SHOULD_RETRY, should_retry(problem)));
    response(builder, &body)
}

/// Starts the response to a problem, for the application's own renderer: with the status, with
/// `Cache-Control: no-store` and a `Link` to the documentation, and with `Retry-After`, `Allow` and
/// `WWW-Authenticate` if they apply.
#[must_use]
pub fn builder(problem: &Problem) -> HttpResponseBuilder {
    let mut builder = HttpResponse::build(status_code(problem.status()));
    for (name, value) in problem.headers() {
        builder.insert_header((name, &*value));
    }
    builder
}

fn response(mut builder: HttpResponseBuilder, body: &Value) -> HttpResponse {
    builder.content_type(MEDIA_TYPE).body(body.to_string())
}

/// The response of an error that a handler returns. The guard renders it again with the
/// application's renderer.
pub(crate) fn of_handler(problem: HandlerProblem) -> HttpResponse {
    let kind = problem.kind;
    let rendered = Problem::new(kind, kind.advice(), "/idempotency#");
    let mut response = response(builder(&rendered), &rendered.to_json());
    response.extensions_mut().insert(problem);
    response
}

/// The status of a problem.
pub(crate) fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
