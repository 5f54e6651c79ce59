//! The outcome of a request, and what a response does to its key.

use std::fmt;

use actix_web::{HttpRequest, HttpResponse, Responder, body::BoxBody, http::StatusCode};
use idempotent_core::Abandoned;
use idempotent_http::recording::RecordRule;

/// The outcome of a guarded request, for access logs and metrics.
///
/// The guard adds it to the extensions of every response of a guarded handler and of the guard
/// itself, together with the [`RecordId`](crate::RecordId) once the request has one. If one of the
/// handler's own extractors refuses the request, the response has neither.
///
/// [`label`](Self::label) and `Display` are the same text, such as `became_held`.
///
/// The same outcome has a name at each level, from the store to the client:
///
/// | `store::ClaimOutcome` | `RequestOutcome` | status and problem code |
/// |---|---|---|
/// | `Granted` | [`Ran`](Self::Ran) | the handler's |
/// | `Granted` | [`HandlerFailed`](Self::HandlerFailed) | 500 `handler_failed` |
/// | `Granted` | [`HandlerTimedOut`](Self::HandlerTimedOut) | 503 or 500 `handler_timed_out` |
/// | `Granted` | [`BecameHeld`](Self::BecameHeld): the attempt's outcome is unknown | the handler's; 500 `handler_failed` or `store_unavailable` |
/// | `Granted` | [`Unavailable`](Self::Unavailable): its transaction could not begin or commit | 503 `store_unavailable` |
/// | `Granted` | [`OutcomeUnknown`](Self::OutcomeUnknown): its record was lost, and a different request has the key | 409 `outcome_unknown` |
/// | `Completed` | [`Replayed`](Self::Replayed) | the recorded response's |
/// | `InFlight` | [`InFlight`](Self::InFlight) | 409 `in_flight` |
/// | `Held { newly: false, .. }` | [`OutcomeUnknown`](Self::OutcomeUnknown) | 409 `outcome_unknown` |
/// | `Held { newly: true, .. }` | [`BecameHeld`](Self::BecameHeld) | 409 `outcome_unknown` |
/// | `Mismatch` | [`KeyReused`](Self::KeyReused) | 422 `key_reused` |
/// | an error | [`Unavailable`](Self::Unavailable) | 503 `store_unavailable`; 500 `misconfigured` or `record_unreadable` |
/// | an error: the principal's share of the store is used up | [`Overloaded`](Self::Overloaded) | 429 `overloaded` |
/// | no claim | [`Refused`](Self::Refused) | 400 `key_missing`, `key_malformed` or `key_unsupported`; 401 `scope_missing`; 405 `method_not_allowed`; 413 `body_too_large` |
/// | no claim | [`Overloaded`](Self::Overloaded) | 503 or 429 `overloaded` |
/// | no claim | [`Unavailable`](Self::Unavailable) | 503 `shutting_down`; 500 `misconfigured` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The handler ran, and the response is its own.
    Ran,
    /// The response is the recorded one of an earlier request.
    Replayed,
    /// Another request with this key is still in progress (409).
    InFlight,
    /// The key was first used for a different request (422).
    KeyReused,
    /// The outcome of an earlier request with this key is unknown, or that of this one, whose key a
    /// different request has taken after the store lost the record (409).
    OutcomeUnknown,
    /// The outcome became unknown with this request, and the key is held from now on.
    ///
    /// Either the response of this request's handler was not recorded under `abandoned = "hold"` or
    /// was marked [`Disposition::Unknown`], or its transaction was not committed (500), or this
    /// request found that the lease of an earlier attempt had expired under `"hold"` (409).
    BecameHeld,
    /// The guard refused the request before it looked up the key (400, 401, 405, 413, or the
    /// response of the scope function's error).
    Refused,
    /// The handler panicked, the body of its response failed, its transaction was not committed, or
    /// the store lost its record (500).
    HandlerFailed,
    /// The handler did not respond within its time limit (503, or 500 if the key is held).
    HandlerTimedOut,
    /// Too many operations are in flight (503). Or the principal has too many in flight, or has
    /// used up its share of the store (429).
    Overloaded,
    /// The store failed (503, 500), the server is shutting down (503), or the application is
    /// misconfigured (500).
    Unavailable,
}

impl RequestOutcome {
    /// All outcomes.
    pub const ALL: &[Self] = &[
        Self::Ran,
        Self::Replayed,
        Self::InFlight,
        Self::KeyReused,
        Self::OutcomeUnknown,
        Self::BecameHeld,
        Self::Refused,
        Self::HandlerFailed,
        Self::HandlerTimedOut,
        Self::Overloaded,
        Self::Unavailable,
    ];

    /// Returns the label of the outcome for logs and metrics, in snake case. Labels never change.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Replayed => "replayed",
            Self::InFlight => "in_flight",
            Self::KeyReused => "key_reused",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::BecameHeld => "became_held",
            Self::Refused => "refused",
            Self::HandlerFailed => "handler_failed",
            Self::HandlerTimedOut => "handler_timed_out",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
        }
    }

    /// Puts the outcome into the extensions of a response.
    pub(crate) fn attach(self, mut response: HttpResponse) -> HttpResponse {
        response.extensions_mut().insert(self);
        response
    }
}

impl fmt::Display for RequestOutcome {
    /// Writes the [label](Self::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A handler's own decision about its response: whether it is recorded, or the next request runs,
/// or the key is held.
///
/// By default the status of the response decides, by the rule in the attribute's `record`. A
/// handler overrides that for one response with [`with`](Self::with), or by adding a `Disposition`
/// to the extensions of the response.
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idempotent_actix::Disposition;
///
/// async fn handler() -> impl Responder {
///     // Nothing was charged, so the next request with this key may run.
///     Disposition::Retryable.with(HttpResponse::PaymentRequired())
/// }
/// # let _ = handler;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// The response is recorded and replayed, whatever its status.
    Final,
    /// Nothing was done: the response is not recorded, and the next request runs the handler.
    ///
    /// The key is released, so that the next request may differ. The record stays if a
    /// [step](crate::Operation::step) has begun or an earlier attempt was abandoned, because
    /// something may have been done: then only the same request runs, and another one gets 422.
    /// Under `abandoned = "hold"` the key is held in that case.
    Retryable,
    /// It is unknown what was done: the response is not recorded, and the key is held until an
    /// operator resolves it, also under `abandoned = "retry"`.
    Unknown,
}

impl Disposition {
    /// The disposition of a response without one in its extensions.
    ///
    /// Under `abandoned = "hold"` a response that is not recorded leaves the outcome unknown,
    /// because only the handler knows whether nothing was done.
    pub(crate) fn by_status(status: StatusCode, rule: RecordRule, abandoned: Abandoned) -> Self {
        if rule.keeps(status.as_u16()) { Self::Final } else { Self::unrecorded(abandoned) }
    }

    /// The disposition of a response that is not recorded.
    pub(crate) fn unrecorded(abandoned: Abandoned) -> Self {
        match abandoned {
            Abandoned::Retry => Self::Retryable,
            Abandoned::Hold => Self::Unknown,
        }
    }

    /// Adds this disposition to a response.
    pub fn with<R>(self, response: R) -> impl Responder<Body = BoxBody> + use<R>
    where
        R: Responder<Body: 'static>,
    {
        WithDisposition { disposition: self, response }
    }
}

/// A response with a disposition.
struct WithDisposition<R> {
    disposition: Disposition,
    response: R,
}

impl<R> Responder for WithDisposition<R>
where
    R: Responder<Body: 'static>,
{
    type Body = BoxBody;

    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        let mut response = self.response.respond_to(request).map_into_boxed_body();
        response.extensions_mut().insert(self.disposition);
        response
    }
}

/// What a guarded handler may return: every [`Responder`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be replayed: it is not a response",
    label = "is not a `Responder`",
    note = "return `HttpResponse`, `web::Json<T>`, a `Result` of one whose error is a \
            `ResponseError`, or `impl Responder`"
)]
pub trait Replayable: sealed::Sealed {
    #[doc(hidden)]
    fn into_response(self, request: &HttpRequest) -> HttpResponse;
}

mod sealed {
    pub trait Sealed {}
    #[diagnostic::do_not_recommend]
    impl<R: actix_web::Responder> Sealed for R {}
}

#[diagnostic::do_not_recommend]
impl<R: Responder> Replayable for R
where
    R::Body: 'static,
{
    fn into_response(self, request: &HttpRequest) -> HttpResponse {
        self.respond_to(request).map_into_boxed_body()
    }
}
