//! Handlers that many tests share; each differs from `pay` in one key of its attribute.

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorUnauthorized,
    http::Method,
    post, route,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{ScopeId, ScopeKey, idempotent};
use std::future::{Ready, ready};
use tests::{Answer, Probe};

/// Who sends a request: what `X-User` says. Nobody is refused with a 401 of the extractor's own.
#[derive(Clone, Debug)]
pub(crate) struct User(pub(crate) String);

impl FromRequest for User {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let name = request.headers().get("x-user").and_then(|name| name.to_str().ok());
        ready(name.map(|name| Self(name.to_owned())).ok_or_else(|| ErrorUnauthorized("the extractor's own refusal")))
    }
}

impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.as_str()))
    }
}

/// A handler that notes who called it; the body is not read.
macro_rules! handlers {
    ($($name:ident $path:literal $(, $key:ident = $value:literal)*;)*) => {
        $(
            #[idempotent(scope = "user" $(, $key = $value)*)]
            #[post($path)]
            pub(crate) async fn $name(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                probe.run().await
            }
        )*

        /// Registers them all.
        pub(crate) fn all(config: &mut ServiceConfig) {
            config$(.service($name))*.service(either_method);
        }
    };
}

handlers! {
    pay "/payments";
    refund "/refunds";
    patient "/patient", wait = "15s";
    impatient "/impatient", wait = "150ms";
    careful "/careful", abandoned = "hold";
    optional "/optional", key = "optional";
    success "/success", record = "success";
    everything "/everything", record = "all";
    brief "/brief", ttl = "1m", lease = "10s";
    capture "/payments/{id}/captures";
    unhashed "/unhashed", fingerprint = "none";
}

/// Two methods under one name are one operation.
#[idempotent(scope = "user", name = "either")]
#[route("/either", method = "PUT", method = "PATCH")]
async fn either_method(user: User, method: Method, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{method} by {}", user.0));
    probe.run().await
}

/// Asserts that an answer is a problem of this status and code, whole and well-formed, and gives its `Retry-After`.
#[track_caller]
pub(crate) fn assert_problem(answer: &Answer, status: u16, code: &str, retryable: bool) -> Option<u32> {
    assert_eq!(answer.problem(), (status, code.to_owned()), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("link"), Some(&*format!("</idempotency#{code}>; rel=\"describedby\"")));
    assert_eq!(answer.header("idempotency-replayed"), None);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let problem = answer.json();
    let members: Vec<_> = problem.as_object().unwrap().keys().collect();
    assert_eq!(members, ["code", "detail", "retryable", "status", "title", "type"]);
    assert_eq!(problem["status"], status);
    assert_eq!(problem["type"], format!("/idempotency#{code}"));
    assert_eq!(problem["retryable"], retryable);
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    answer.header("retry-after").map(|seconds| seconds.parse().unwrap())
}

/// Asserts that no run's answer shows in this one.
#[track_caller]
pub(crate) fn assert_nothing_leaks(answer: &Answer) {
    assert!(!answer.text().contains("secret of run"), "{}", answer.text());
    assert_eq!(answer.header("location"), None);
}
