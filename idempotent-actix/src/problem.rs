//! What a client is told when its request is not run.
//!
//! Every refusal is a [`Problem`]. It becomes a response through one function of the application's choice: [`json()`] (the default) or
//! [`stripe`], or one of its own.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
};
use idempotent_core::StoreError;
use serde_json::{Value, json};

/// The headers that a client in a browser has to be allowed to read, for `actix_cors::Cors::expose_headers`.
pub const EXPOSED_HEADERS: [&str; 5] =
    ["idempotency-replayed", "idempotency-replay", "retry-after", "link", "stripe-should-retry"];

/// The kinds of refusal, with what a client may do about each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// 400: the operation needs a key and there is none.
    KeyMissing,
    /// 400: there is more than one key, or what there is cannot be one.
    KeyMalformed,
    /// 400: a key was sent to an operation that takes none.
    KeyUnsupported,
    /// 401: nobody is there whose key it could be.
    ScopeMissing,
    /// 405: the operation is not guarded for this method.
    MethodNotAllowed,
    /// 409: the first request is still at work.
    InFlight,
    /// 409: the first request was abandoned, and its outcome is not known.
    OutcomeUnknown,
    /// 413: the body is over the limit.
    BodyTooLarge,
    /// 422: the key belongs to another request.
    KeyReused,
    /// 500: the handler broke down.
    HandlerFailed,
    /// 500: what is kept for the key cannot be read. The operation may have been done; it is neither run again nor replayed.
    RecordUnreadable,
    /// 500: the server is misconfigured, or its store refuses the claim for a reason that does not pass by itself; nothing was run.
    Misconfigured,
    /// 503: the handler did not respond within its time limit; the same request runs again. 500 where the key is held instead.
    HandlerTimedOut,
    /// 503: too many operations are in flight, or 429: too many of this principal; nothing was run.
    Overloaded,
    /// 503: the store cannot be reached; nothing was run.
    StoreUnavailable,
    /// 503: the server is going down; nothing was run.
    ShuttingDown,
}

impl ProblemKind {
    /// All kinds, for a published specification.
    pub const ALL: [Self; 16] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::KeyUnsupported,
        Self::ScopeMissing,
        Self::MethodNotAllowed,
        Self::InFlight,
        Self::OutcomeUnknown,
        Self::BodyTooLarge,
        Self::KeyReused,
        Self::HandlerFailed,
        Self::RecordUnreadable,
        Self::Misconfigured,
        Self::HandlerTimedOut,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::ShuttingDown,
    ];

    /// Status, code, title, and whether the same request may be sent again.
    const fn facts(self) -> (StatusCode, &'static str, &'static str, bool) {
        match self {
            Self::KeyMissing => {
                (StatusCode::BAD_REQUEST, "key_missing", "This operation needs an idempotency key", false)
            }
            Self::KeyMalformed => (StatusCode::BAD_REQUEST, "key_malformed", "The idempotency key is malformed", false),
            Self::KeyUnsupported => {
                (StatusCode::BAD_REQUEST, "key_unsupported", "This operation takes no idempotency key", false)
            }
            Self::ScopeMissing => {
                (StatusCode::UNAUTHORIZED, "scope_missing", "Nobody is known to send this key", false)
            }
            Self::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This method is not allowed here", false)
            }
            Self::InFlight => {
                (StatusCode::CONFLICT, "in_flight", "A request with this idempotency key is still at work", true)
            }
            Self::OutcomeUnknown => (
                StatusCode::CONFLICT,
                "outcome_unknown",
                "A request with this idempotency key was cut off, and its outcome is not known",
                false,
            ),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large", false),
            Self::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "key_reused",
                "This idempotency key was used for another request",
                false,
            ),
            Self::HandlerFailed => {
                (StatusCode::INTERNAL_SERVER_ERROR, "handler_failed", "The operation was cut off by a fault", true)
            }
            Self::RecordUnreadable => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "record_unreadable",
                "What is recorded for this idempotency key cannot be read",
                false,
            ),
            Self::Misconfigured => {
                (StatusCode::INTERNAL_SERVER_ERROR, "misconfigured", "The server is not set up for this", false)
            }
            Self::HandlerTimedOut => (
                StatusCode::SERVICE_UNAVAILABLE,
                "handler_timed_out",
                "The operation did not finish within its time limit",
                true,
            ),
            Self::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too many operations are in progress", true)
            }
            Self::StoreUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "Idempotency keys cannot be checked now", true)
            }
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "The server is going down", true),
        }
    }

    /// The usual status of the response. That of a [`Problem`] may be another one: [`HandlerTimedOut`](Self::HandlerTimedOut) is 500 where the
    /// key is held, and [`Overloaded`](Self::Overloaded) is 429 where the limit of one principal was reached.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.facts().0
    }

    /// Every status that the response may have, the usual one first: when it has that status, where there are several, and whether the
    /// same request may be sent again.
    pub(crate) fn statuses(self) -> Vec<(StatusCode, Option<&'static str>, bool)> {
        match self {
            Self::HandlerTimedOut => vec![
                (self.status(), Some("the next request with this key runs again"), true),
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Some("the key is held, because its operation is not repeated"),
                    false,
                ),
            ],
            Self::Overloaded => vec![
                (self.status(), Some("the server's limit on operations in flight is reached"), true),
                (
                    StatusCode::TOO_MANY_REQUESTS,
                    Some("this principal's limit on operations in flight, or its share of the store, is reached"),
                    true,
                ),
            ],
            Self::KeyMissing
            | Self::KeyMalformed
            | Self::KeyUnsupported
            | Self::ScopeMissing
            | Self::MethodNotAllowed
            | Self::InFlight
            | Self::OutcomeUnknown
            | Self::BodyTooLarge
            | Self::KeyReused
            | Self::HandlerFailed
            | Self::RecordUnreadable
            | Self::Misconfigured
            | Self::StoreUnavailable
            | Self::ShuttingDown => vec![(self.status(), None, self.retryable())],
        }
    }

    /// The name that clients can test for. It never changes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.facts().1
    }

    /// What it is, in a sentence that is the same each time.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.facts().2
    }

    /// What to do about it, where that does not depend on the request.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::ScopeMissing => "say who you are, so that your keys can be told from those of others",
            Self::InFlight => "wait for its answer, or send this request again later with the same key",
            Self::OutcomeUnknown => "ask what became of the first request; sending this one again does not help",
            Self::KeyReused => "send another request with another key; nothing of this one was run",
            Self::RecordUnreadable => "ask what became of the request; it is not run again",
            Self::StoreUnavailable | Self::ShuttingDown | Self::Overloaded => {
                "nothing was run; send the request again with the same key"
            }
            Self::HandlerFailed | Self::HandlerTimedOut => "part of the operation may have been done; keep the key",
            Self::Misconfigured => "nothing was run",
            Self::KeyMissing
            | Self::KeyMalformed
            | Self::KeyUnsupported
            | Self::MethodNotAllowed
            | Self::BodyTooLarge => self.title(),
        }
    }

    /// Whether the same request may be sent again with the same key.
    #[must_use]
    pub const fn retryable(self) -> bool {
        self.facts().3
    }
}

/// What a client gets where the store has failed. A failure that does not pass by itself is not reported as one that does.
pub(crate) fn kind_of(error: &StoreError) -> ProblemKind {
    if error.is_transient() {
        ProblemKind::StoreUnavailable
    } else if error.is_unreadable() {
        ProblemKind::RecordUnreadable
    } else {
        ProblemKind::Misconfigured
    }
}

/// One refusal, as an application's own rendering gets it.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: String,
    retryable: bool,
    retry_after: Option<u32>,
    allow: &'static [Method],
    url: String,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>, documentation: &str) -> Self {
        let url = format!("{documentation}{}", kind.code());
        Self {
            kind,
            status: kind.status(),
            detail: detail.into(),
            retryable: kind.retryable(),
            retry_after: None,
            allow: &[],
            url,
        }
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn allow(mut self, methods: &'static [Method]) -> Self {
        self.allow = methods;
        self
    }

    pub(crate) fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// What kind of refusal it is; gives code and title.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong with this request, in a sentence for the developer at the other end.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether the same request may be sent again with the same key.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// After how many seconds to send it again, where that is known.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after
    }

    /// Where it is documented: the configured base and the code.
    #[must_use]
    pub fn documentation(&self) -> &str {
        &self.url
    }

    /// The members of RFC 9457, with `code` and `retryable`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.url,
            "title": self.kind.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.kind.code(),
            "retryable": self.retryable,
        })
    }

    fn response(&self, status: StatusCode, body: &Value) -> HttpResponse {
        let mut response = HttpResponse::build(status);
        response
            .content_type("application/problem+json")
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header((header::LINK, format!("<{}>; rel=\"describedby\"", self.url)));
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if !self.allow.is_empty() {
            let methods: Vec<_> = self.allow.iter().map(Method::as_str).collect();
            response.insert_header((header::ALLOW, methods.join(", ")));
        }
        if self.kind == ProblemKind::ScopeMissing {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        response.body(body.to_string())
    }
}

/// Renders a problem as `application/problem+json` (RFC 9457), with `Link` to its documentation and `Retry-After` where it is known.
#[must_use]
pub fn json(problem: &Problem, _: &HttpRequest) -> HttpResponse {
    problem.response(problem.status, &problem.to_json())
}

/// Renders a problem so that Stripe's client libraries understand it too: [`json()`], with a top-level `error` object and
/// `Stripe-Should-Retry`.
///
/// Stripe refuses a reused key with 400, and its libraries raise their idempotency error for that status only. So a client that sends
/// `X-Stripe-Client-User-Agent`, as they do, gets 400, and everyone else 422.
#[must_use]
pub fn stripe(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    let (kind, code) = match problem.kind {
        ProblemKind::KeyReused | ProblemKind::OutcomeUnknown | ProblemKind::KeyMalformed => {
            ("idempotency_error", problem.kind.code())
        }
        ProblemKind::InFlight => ("idempotency_error", "idempotency_key_in_use"),
        ProblemKind::KeyMissing
        | ProblemKind::KeyUnsupported
        | ProblemKind::ScopeMissing
        | ProblemKind::MethodNotAllowed
        | ProblemKind::BodyTooLarge => ("invalid_request_error", problem.kind.code()),
        ProblemKind::HandlerFailed
        | ProblemKind::HandlerTimedOut
        | ProblemKind::Overloaded
        | ProblemKind::RecordUnreadable
        | ProblemKind::Misconfigured
        | ProblemKind::StoreUnavailable
        | ProblemKind::ShuttingDown => ("api_error", problem.kind.code()),
    };
    let to_stripe = request.headers().contains_key("x-stripe-client-user-agent");
    let status = match problem.status {
        StatusCode::UNPROCESSABLE_ENTITY if to_stripe => StatusCode::BAD_REQUEST,
        status => status,
    };
    let mut body = problem.to_json();
    if let Value::Object(members) = &mut body {
        let message = format!("{}: {}.", problem.kind.title(), problem.detail);
        let error = json!({ "type": kind, "code": code, "message": message, "doc_url": problem.url });
        members.insert("error".into(), error);
        members.insert("status".into(), status.as_u16().into());
    }
    let mut response = problem.response(status, &body);
    let again = header::HeaderValue::from_static(if problem.retryable { "true" } else { "false" });
    response.headers_mut().insert(header::HeaderName::from_static("stripe-should-retry"), again);
    response
}

/// Seconds until a retry makes sense, for a lease that lasts so long yet: spread over a quarter of it, at most 30.
///
/// The first attempt is usually done long before its lease is over, so waiting for all of it would be too long; the spread keeps
/// clients that were refused together from coming back together.
pub(crate) fn retry_after(lease_left: Duration) -> u32 {
    let spread = u32::try_from(lease_left.as_secs() / 4).unwrap_or(u32::MAX).clamp(1, 29);
    1 + fastrand::u32(0..=spread)
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

    #[test]
    fn codes_are_told_apart() {
        let codes: std::collections::HashSet<_> = ProblemKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ProblemKind::ALL.len());
    }
}
