//! Problems as responses.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
use serde_json::{Value, json};

use super::{HandlerProblem, Problem, ProblemKind};

/// The response headers of the guard that JavaScript in a browser can read only if a CORS
/// configuration exposes them. Pass them to `actix_cors::Cors::expose_headers`.
pub const EXPOSED_HEADERS: [&str; 7] = [
    "idempotency-replayed",
    "idempotency-replay",
    "idempotency-not-run",
    "retry-after",
    "location",
    "link",
    "stripe-should-retry",
];

/// Renders a problem as `application/problem+json` (RFC 9457).
///
/// The response has `Cache-Control: no-store` and a `Link` to the documentation. It has
/// `Retry-After`, `Allow` and `WWW-Authenticate` if they apply.
#[must_use]
pub fn json(problem: &Problem, _: &HttpRequest) -> HttpResponse {
    response(problem, problem.status, &problem.to_json())
}

/// Renders a problem so that Stripe's client libraries understand it too.
///
/// The response is that of [`json()`] with a top-level `error` object and the header
/// `Stripe-Should-Retry`.
///
/// A reused key has the status 400 instead of 422 if the client sends `X-Stripe-Client-User-Agent`,
/// as Stripe's libraries do: they raise their idempotency error only for 400.
#[must_use]
pub fn stripe(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    let (error_type, code) = stripe_error(problem.kind);
    let is_stripe_client = request.headers().contains_key("x-stripe-client-user-agent");
    let status = match problem.status {
        StatusCode::UNPROCESSABLE_ENTITY if is_stripe_client => StatusCode::BAD_REQUEST,
        status => status,
    };
    let mut body = problem.to_json();
    if let Value::Object(members) = &mut body {
        let message = format!("{}. {}", problem.kind.title(), problem.detail);
        let error =
            json!({ "type": error_type, "code": code, "message": message, "doc_url": problem.url });
        members.insert("error".into(), error);
        members.insert("status".into(), status.as_u16().into());
    }
    let mut response = response(problem, status, &body);
    let should_retry = HeaderValue::from_static(if problem.retryable { "true" } else { "false" });
    response.headers_mut().insert(HeaderName::from_static("stripe-should-retry"), should_retry);
    response
}

/// Stripe's error type and code for a kind of problem.
fn stripe_error(kind: ProblemKind) -> (&'static str, &'static str) {
    match kind {
        ProblemKind::KeyReused | ProblemKind::OutcomeUnknown | ProblemKind::KeyMalformed => {
            ("idempotency_error", kind.code())
        }
        ProblemKind::InFlight => ("idempotency_error", "idempotency_key_in_use"),
        ProblemKind::KeyMissing
        | ProblemKind::KeyUnsupported
        | ProblemKind::KeyUnknown
        | ProblemKind::ScopeMissing
        | ProblemKind::MethodNotAllowed
        | ProblemKind::BodyTooLarge => ("invalid_request_error", kind.code()),
        ProblemKind::HandlerFailed
        | ProblemKind::HandlerTimedOut
        | ProblemKind::Overloaded
        | ProblemKind::RecordUnreadable
        | ProblemKind::Misconfigured
        | ProblemKind::StoreUnavailable
        | ProblemKind::ShuttingDown => ("api_error", kind.code()),
    }
}

/// The response of an error that a handler returns. The guard renders it again with the
/// application's renderer.
pub(crate) fn of_handler(problem: HandlerProblem) -> HttpResponse {
    let kind = problem.kind;
    let rendered = Problem::new(kind, kind.advice(), "/idempotency#");
    let mut response = response(&rendered, kind.status(), &rendered.to_json());
    response.extensions_mut().insert(problem);
    response
}

pub(crate) fn response(problem: &Problem, status: StatusCode, body: &Value) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    response
        .content_type("application/problem+json")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::LINK, format!("<{}>; rel=\"describedby\"", problem.url)));
    if let Some(seconds) = problem.retry_after {
        response.insert_header((header::RETRY_AFTER, seconds));
    }
    if !problem.allow.is_empty() {
        let methods: Vec<_> = problem.allow.iter().map(Method::as_str).collect();
        response.insert_header((header::ALLOW, methods.join(", ")));
    }
    if problem.kind == ProblemKind::ScopeMissing {
        response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
    }
    response.body(body.to_string())
}

/// A value for `Retry-After`, in seconds, where a lease expires in `lease_left`.
///
/// The value is random, from 1 second to about a quarter of that time, and at most 30 seconds. An
/// attempt usually ends long before its lease would expire. The jitter prevents clients that were
/// refused together from all retrying at the same moment.
pub(crate) fn retry_after(lease_left: Duration) -> u32 {
    let jitter = u32::try_from(lease_left.as_secs() / 4).unwrap_or(u32::MAX).clamp(1, 29);
    1 + fastrand::u32(0..=jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_with_the_lease_and_is_spread() {
        for (lease, most) in [(0, 2), (5, 2), (30, 8), (3600, 30)] {
            let seen: std::collections::HashSet<_> =
                (0..500).map(|_| retry_after(Duration::from_secs(lease))).collect();
            assert_eq!(seen.iter().min(), Some(&1), "{lease}");
            assert_eq!(seen.iter().max(), Some(&most), "{lease}");
        }
    }
}
