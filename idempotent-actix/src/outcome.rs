//! The outcome of a request, and what a response does to its key.

use std::fmt;

use actix_web::{HttpRequest, HttpResponse, Responder, body::BoxBody, http::StatusCode};
use idempotent_core::{Abandoned, Policy};

/// The outcome of a guarded request, for logs and metrics.
///
/// It is in the extensions of each response of a guarded handler or of its guard. The
/// [`RecordId`](crate::RecordId) is beside it once the request has one. A response of an extractor
/// that refused the request has neither.
///
/// The same outcome has a name at each level, from the store to the client:
///
/// | `store::ClaimOutcome` | `RequestOutcome` | status and problem code |
/// |---|---|---|
/// | `Granted` | [`Ran`](Self::Ran), [`HandlerFailed`](Self::HandlerFailed) or [`HandlerTimedOut`](Self::HandlerTimedOut) | the handler's; 500 `handler_failed`; 503 or 500 `handler_timed_out` |
/// | `Granted` | [`BecameHeld`](Self::BecameHeld): the attempt's outcome is unknown | the handler's |
/// | `Completed` | [`Replayed`](Self::Replayed) | the recorded response's |
/// | `InFlight` | [`InFlight`](Self::InFlight) | 409 `in_flight` |
/// | `Held { newly: false }` | [`OutcomeUnknown`](Self::OutcomeUnknown) | 409 `outcome_unknown` |
/// | `Held { newly: true }` | [`BecameHeld`](Self::BecameHeld) | 409 `outcome_unknown` |
/// | `Mismatch` | [`KeyReused`](Self::KeyReused) | 422 `key_reused` |
/// | no claim | [`Refused`](Self::Refused) | 400 `key_missing`, `key_malformed` or `key_unsupported`; 401 `scope_missing`; 405 `method_not_allowed`; 413 `body_too_large` |
/// | no claim | [`Overloaded`](Self::Overloaded) | 503 or 429 `overloaded` |
/// | an error | [`Unavailable`](Self::Unavailable) | 503 `store_unavailable` or `shutting_down`; 500 `misconfigured` or `record_unreadable` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The handler ran, and this is its response.
    Ran,
    /// The response is the recorded one of an earlier request.
    Replayed,
    /// Another request with this key is still in progress (409).
    InFlight,
    /// The key belongs to a different request (422).
    KeyReused,
    /// The outcome of an earlier request with this key is unknown (409).
    OutcomeUnknown,
    /// The outcome became unknown with this request, and its key is held from here on.
    ///
    /// The handler's response was not recorded under `abandoned = "hold"`, or it was marked
    /// [`Disposition::Unknown`]; or this request found the lease of an earlier one expired (409).
    BecameHeld,
    /// The guard refused the request before it looked the key up (400, 401, 405, 413).
    Refused,
    /// The handler panicked, or its response failed (500).
    HandlerFailed,
    /// The handler did not respond within its time limit (503; 500 where the key is held).
    HandlerTimedOut,
    /// Too many operations are in flight (503), or too many of this principal (429).
    Overloaded,
    /// The store failed (503, 500), the server is shutting down (503), or the application is
    /// misconfigured (500).
    Unavailable,
}

impl RequestOutcome {
    /// Puts the outcome into the extensions of a response.
    pub(crate) fn attach(self, mut response: HttpResponse) -> HttpResponse {
        response.extensions_mut().insert(self);
        response
    }
}

impl fmt::Display for RequestOutcome {
    /// Writes the outcome in snake case, as a label for logs and metrics. Labels never change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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
        })
    }
}

/// What a response does to its key, stated by the handler instead of derived from the status.
///
/// By default the status decides, by the attribute's `record`. A handler overrides that for one
/// response with [`with`](Self::with), or by putting the disposition into the response's
/// extensions.
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
    /// The response is recorded and replayed.
    Final,
    /// Nothing was done: the response is not recorded, and the next request runs.
    Retryable,
    /// It is unknown what was done: the key is held until it is resolved, also under
    /// `abandoned = "retry"`.
    Unknown,
}

impl Disposition {
    /// The disposition of a response whose handler states none.
    ///
    /// Under `abandoned = "hold"` a response that is not recorded leaves the outcome unknown:
    /// only the handler knows whether nothing was done.
    pub(crate) fn by_status(status: StatusCode, policy: &Policy) -> Self {
        if policy.record.keeps(status.as_u16()) { Self::Final } else { Self::unrecorded(policy) }
    }

    /// The disposition of a response that is not recorded.
    pub(crate) fn unrecorded(policy: &Policy) -> Self {
        match policy.abandoned {
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
