//! The handle that applies to a request, and the error if the application is misconfigured.

use std::borrow::Cow;

use actix_web::{Error, HttpMessage, HttpRequest, error::InternalError, web};

use crate::{
    idempotency::Idempotency,
    not_run,
    outcome::RequestOutcome,
    problem::{self, Problem, ProblemKind},
    settings::Settings,
};

impl Idempotency {
    /// Finds the handle that applies to a request.
    ///
    /// # Errors
    /// Fails with the response if no handle or two handles are registered. The log states which.
    pub(crate) fn of(request: &HttpRequest) -> Result<&Self, Error> {
        match registered(request) {
            // actix-web finds the innermost value of each type, but does not report which of two
            // types is further inside.
            (Some(plain), Some(data)) if !plain.is_same(data) => {
                let (one, other) = (plain.origin(), data.origin());
                let reason = format!(
                    "two `Idempotency` apply to this resource, one of them in `web::Data`; \
                     register both without it ({one}; {other})"
                );
                Err(misconfigured(request, reason))
            }
            (plain, data) => plain.or(data).ok_or_else(|| {
                misconfigured(
                    request,
                    "no `Idempotency` is registered: add `.app_data(idempotency.clone())` to the \
                     `App`",
                )
            }),
        }
    }
}

/// The innermost handle that is registered directly, and the innermost one in `web::Data`.
fn registered(request: &HttpRequest) -> (Option<&Idempotency>, Option<&Idempotency>) {
    let data = request.app_data::<web::Data<Idempotency>>();
    (request.app_data(), data.map(|data| &***data))
}

/// Marks a request whose handler must not run because the application is misconfigured.
pub(crate) struct Misconfigured;

/// The error of a request that cannot be run because the application is misconfigured.
///
/// The reason is logged once for each request, even if several extractors find it, with the name
/// and the pattern of the resource: a path can contain a key. A route attribute names the resource
/// like its handler. The handler does not run, even if it takes the extractor that found the reason
/// as an `Option`.
pub(crate) fn misconfigured(request: &HttpRequest, reason: impl Into<Cow<'static, str>>) -> Error {
    let reason = reason.into();
    if request.extensions_mut().insert(Misconfigured).is_none() {
        let (handler, pattern) = (request.match_name(), request.match_pattern());
        tracing::error!(handler, pattern, "{reason}");
    }
    let (kind, outcome) = (ProblemKind::Misconfigured, RequestOutcome::Unavailable);
    let (plain, data) = registered(request);
    let response = match plain.or(data) {
        Some(idempotency) => {
            let problem = idempotency.problem(kind, kind.advice());
            let response = idempotency.render(&problem, outcome, request);
            not_run::mark(response, request, &idempotency.settings().header)
        }
        None => {
            let problem = Problem::new(kind, kind.advice(), "/idempotency#");
            let response = outcome.attach(problem::json(&problem, request));
            not_run::mark(response, request, &Settings::default().header)
        }
    };
    InternalError::from_response(reason, response).into()
}
