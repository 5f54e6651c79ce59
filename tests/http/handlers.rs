//! Handlers that many tests share. Most differ from `pay` in one argument of their attribute.

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorUnauthorized,
    http::Method,
    post, route,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{
    idempotent,
    scope::{ScopeId, ScopeKey},
};
use std::future::{Ready, ready};
use test_support::{ClientResponse, Probe};

/// The user that `X-User` names. Without this header, the extractor responds with 401.
#[derive(Clone, Debug)]
pub(crate) struct User(pub(crate) String);

impl FromRequest for User {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let name = request.headers().get("x-user").and_then(|name| name.to_str().ok());
        ready(
            name.map(|name| Self(name.to_owned()))
                .ok_or_else(|| ErrorUnauthorized("the extractor's response")),
        )
    }
}

impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.as_str()))
    }
}

/// A handler that notes its user and does not read the body.
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

        /// Registers all of these handlers.
        pub(crate) fn all(config: &mut ServiceConfig) {
            config$(.service($name))*.service(either_method);
        }
    };
}

handlers! {
    pay "/payments";
    refund "/refunds";
    wait_15s "/wait_15s", wait = "15s";
    wait_150ms "/wait_150ms", wait = "150ms";
    hold_if_abandoned "/hold_if_abandoned", abandoned = "hold";
    optional "/optional", key = "optional";
    record_success "/record_success", record = "success";
    record_all "/record_all", record = "all";
    short_ttl "/short_ttl", ttl = "1m", lease = "10s";
    capture "/payments/{id}/captures";
    no_fingerprint "/no_fingerprint", fingerprint = "none";
}

/// The name makes the two methods one operation.
#[idempotent(scope = "user", name = "either")]
#[route("/either", method = "PUT", method = "PATCH")]
async fn either_method(user: User, method: Method, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{method} by {}", user.0));
    probe.run().await
}

/// Asserts that a response is a well-formed problem of this status and code, and returns its
/// `Retry-After`.
#[track_caller]
pub(crate) fn assert_problem(
    response: &ClientResponse,
    status: u16,
    code: &str,
    retryable: bool,
) -> Option<u32> {
    assert_eq!(response.problem(), (status, code.to_owned()), "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        response.header("link"),
        Some(&*format!("</idempotency#{code}>; rel=\"describedby\""))
    );
    assert_eq!(response.header("idempotency-replayed"), None);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let problem = response.json();
    let members: Vec<_> = problem.as_object().unwrap().keys().collect();
    assert_eq!(members, ["code", "detail", "retryable", "status", "title", "type"]);
    assert_eq!(problem["status"], status);
    assert_eq!(problem["type"], format!("/idempotency#{code}"));
    assert_eq!(problem["retryable"], retryable);
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    response.header("retry-after").map(|seconds| seconds.parse().unwrap())
}

/// Asserts that this response contains nothing of a run's response.
#[track_caller]
pub(crate) fn assert_nothing_leaks(response: &ClientResponse) {
    assert!(!response.text().contains("secret of run"), "{}", response.text());
    assert_eq!(response.header("location"), None);
}
