//! What became of a request, for middleware and for handlers that know better than their status.

use std::fmt;

use actix_web::{HttpRequest, HttpResponse, Responder, body::BoxBody, http::StatusCode};
use idempotent_core::{Abandoned, Policy};

/// What a guarded request came to. It is in the extensions of each response that a guarded handler or its guard gives, for a log or
/// a metric; the [`RecordId`](crate::RecordId) is beside it once there is one. An extractor's own refusal carries none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The handler ran, and this is its answer.
    Ran,
    /// The answer was given before.
    Replayed,
    /// The first request is still at work (409).
    InFlight,
    /// The key belongs to another request (422).
    KeyReused,
    /// The first request's outcome is unknown (409).
    OutcomeUnknown,
    /// The outcome became unknown with this request, and its key is held from now on: the handler's response was not recorded under
    /// `abandoned = "hold"`, or was marked [`Disposition::Unknown`]; or the lease of an earlier request had expired (409).
    BecameHeld,
    /// The guard refused the request before its key was looked up: 400, 401, 405, 413.
    Refused,
    /// The handler panicked (500).
    HandlerFailed,
    /// The handler did not respond within its time limit (503; 500 where the key is held).
    HandlerTimedOut,
    /// Too many operations are in flight (503), or too many of this principal (429).
    Overloaded,
    /// The store failed, or the server is going down, or is put together wrongly (500, 503).
    Unavailable,
}

impl fmt::Display for RequestOutcome {
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

/// What an answer does to its key, where the handler knows better than the status: put it into the response's extensions, or answer
/// with [`Disposition::with`].
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idempotent_actix::Disposition;
///
/// async fn handler() -> impl Responder {
///     // Nothing was charged, so the same key may try again.
///     Disposition::Retryable.with(HttpResponse::PaymentRequired())
/// }
/// # let _ = handler;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It is recorded and replayed.
    Final,
    /// It is not: nothing was done, and the next request runs.
    Retryable,
    /// Nobody knows what was done: the key is held until someone resolves it, under `abandoned = "retry"` too.
    Unknown,
}

impl Disposition {
    /// What the status says, where the handler says nothing. Under `abandoned = "hold"` an answer that is not kept leaves the outcome
    /// unknown: only the handler itself can say that nothing was done, and without its word it never starts twice.
    pub(crate) fn by_status(status: StatusCode, policy: &Policy) -> Self {
        match policy.abandoned {
            _ if policy.record.keeps(status.as_u16()) => Self::Final,
            Abandoned::Retry => Self::Retryable,
            Abandoned::Hold => Self::Unknown,
        }
    }

    /// An answer with this disposition.
    pub fn with<R: Responder>(self, answer: R) -> WithDisposition<R> {
        WithDisposition { disposition: self, answer }
    }
}

/// An answer that says itself what it does to its key; made by [`Disposition::with`].
#[derive(Clone, Debug)]
pub struct WithDisposition<R> {
    disposition: Disposition,
    answer: R,
}

impl<R: Responder> Responder for WithDisposition<R>
where
    R::Body: 'static,
{
    type Body = BoxBody;

    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        let mut response = self.answer.respond_to(request).map_into_boxed_body();
        response.extensions_mut().insert(self.disposition);
        response
    }
}

/// What a handler may answer with: every [`Responder`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be replayed: it is not a response",
    label = "is not a `Responder`",
    note = "return `HttpResponse`, `web::Json<T>`, `Result<_, E>` of one with an `E` that is a `ResponseError`, or `impl Responder`"
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
