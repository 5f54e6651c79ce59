//! Which responses are recorded, and how a handler overrides the rule.

use actix_web::{
    Error, HttpResponse, HttpResponseBuilder, Responder, ResponseError,
    http::StatusCode,
    post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Disposition, idempotent};
use std::fmt;
use test_support::{Op, Probe, Request, TestApp};

use super::handlers::{User, all, assert_problem};

/// How many times two equal requests run a handler that responds with this status.
fn runs_of_two_requests(path: &str, status: u16) -> usize {
    let app = TestApp::responding(move |run| {
        HttpResponseBuilder::new(StatusCode::from_u16(status).unwrap()).body(format!("run {run}"))
    });
    let server = app.serve(all);
    let request = Request::post(path).user("alice").key("k");
    let (first, second) = (server.send(&request), server.send(&request));
    assert_eq!((first.status, first.text(), first.is_replay()), (status, "run 1", false));
    match app.probe.runs() {
        1 => second.assert_replays(&first),
        runs => assert_eq!((second.text(), second.is_replay(), runs), ("run 2", false, 2)),
    }
    app.probe.runs()
}

#[test]
fn each_rule_records_its_documented_statuses() {
    for (status, expected) in [
        (200, [1, 1, 1]),
        (201, [1, 1, 1]),
        (299, [1, 1, 1]),
        (302, [1, 2, 1]),
        (400, [1, 2, 1]),
        (402, [1, 2, 1]),
        (404, [1, 2, 1]),
        (408, [2, 2, 1]),
        (409, [1, 2, 1]),
        (422, [1, 2, 1]),
        (425, [2, 2, 1]),
        (429, [2, 2, 1]),
        (499, [1, 2, 1]),
        (500, [2, 2, 1]),
        (503, [2, 2, 1]),
        (599, [2, 2, 1]),
    ] {
        let runs = ["/payments", "/record_success", "/record_all"]
            .map(|path| runs_of_two_requests(path, status));
        assert_eq!(runs, expected, "{status}");
    }
}

#[test]
fn a_released_key_can_be_used_for_a_different_request() {
    let app = TestApp::responding(|run| match run {
        1 => HttpResponse::TooManyRequests().finish(),
        _ => HttpResponse::Created().finish(),
    });
    let server = app.serve(all);
    let pay = |body: &str| Request::post("/payments").user("alice").key("k").body(body);
    assert_eq!(server.send(&pay("one")).status, 429);
    assert_eq!(app.record("alice", "POST /payments", "k"), None);
    assert_eq!(server.send(&pay("two")).status, 201);
    assert_eq!(app.probe.runs(), 2);
}

/// A handler whose disposition is the body of its request.
#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposition")]
async fn disposition_extension(
    user: User,
    probe: Data<Probe>,
    disposition: String,
) -> HttpResponse {
    probe.note(user.0);
    let mut response = probe.run().await;
    if let Some(disposition) = parse(&disposition) {
        response.extensions_mut().insert(disposition);
    }
    response
}

#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposition-with")]
async fn disposition_with(user: User, probe: Data<Probe>, disposition: String) -> impl Responder {
    probe.note(user.0);
    parse(&disposition).unwrap().with(probe.run().await)
}

#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposition-by-error")]
async fn disposition_by_error(
    user: User,
    probe: Data<Probe>,
    disposition: String,
) -> Result<&'static str, Refused> {
    probe.note(user.0);
    Err(Refused(parse(&disposition), probe.run().await.status()))
}

/// An error that determines the disposition of the key.
#[derive(Debug)]
struct Refused(Option<Disposition>, StatusCode);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl ResponseError for Refused {
    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::new(self.1);
        if let Some(disposition) = self.0 {
            response.extensions_mut().insert(disposition);
        }
        response
    }
}

fn parse(disposition: &str) -> Option<Disposition> {
    match disposition {
        "final" => Some(Disposition::Final),
        "retryable" => Some(Disposition::Retryable),
        "unknown" => Some(Disposition::Unknown),
        _ => None,
    }
}

fn services(config: &mut ServiceConfig) {
    config
        .service(disposition_extension)
        .service(disposition_with)
        .service(disposition_by_error)
        .service(fallible);
}

/// Sends a request twice to a handler with this status and disposition; returns how many times the
/// handler ran, and the status of the second response.
fn second_after(path: &str, status: u16, disposition: &str) -> (usize, u16) {
    let app =
        TestApp::responding(move |_| HttpResponse::new(StatusCode::from_u16(status).unwrap()));
    let server = app.serve(services);
    let request = Request::post(path)
        .user("alice")
        .key("k")
        .header("Content-Type", "text/plain")
        .body(disposition);
    let first = server.send(&request);
    assert_eq!(
        (first.status, first.is_replay()),
        (status, false),
        "the first client gets the handler's response"
    );
    let second = server.send(&request);
    assert_eq!(second.is_replay(), second.status == status && app.probe.runs() == 1);
    (app.probe.runs(), second.status)
}

#[test]
fn the_handler_overrides_the_rule_for_one_response() {
    for path in ["/disposition", "/disposition-with", "/disposition-by-error"] {
        assert_eq!(second_after(path, 201, "final"), (1, 201), "{path}");
        assert_eq!(second_after(path, 503, "final"), (1, 503), "{path}");
        assert_eq!(second_after(path, 201, "retryable"), (2, 201), "{path}");
        assert_eq!(second_after(path, 402, "retryable"), (2, 402), "{path}");
        assert_eq!(second_after(path, 201, "unknown"), (1, 409), "{path}");
        assert_eq!(second_after(path, 503, "unknown"), (1, 409), "{path}");
    }
    for path in ["/disposition", "/disposition-by-error"] {
        assert_eq!(second_after(path, 201, "nothing"), (1, 201), "{path}");
        assert_eq!(second_after(path, 503, "nothing"), (2, 503), "{path}");
    }
}

#[test]
fn an_unknown_outcome_holds_the_key_even_where_abandoned_ones_are_retried() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = Request::post("/disposition").user("alice").key("k").body("unknown");
    assert_eq!(server.send(&request).status, 201);
    assert_eq!(assert_problem(&server.send(&request), 409, "outcome_unknown", false), None);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Abandon)), (1, 1));
}

#[idempotent(scope = "user")]
#[post("/fallible")]
async fn fallible(user: User, probe: Data<Probe>) -> Result<HttpResponse, Error> {
    probe.note(user.0);
    let response = probe.run().await;
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(actix_web::error::ErrorNotFound("no such account"))
    }
}

#[test]
fn an_error_of_the_handler_is_a_response_like_any_other() {
    let app = TestApp::responding(|_| HttpResponse::BadRequest().finish());
    let server = app.serve(services);
    let request = Request::post("/fallible").user("alice").key("k");
    let first = server.send(&request);
    assert_eq!((first.status, first.text()), (404, "no such account"));
    server.send(&request).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

/// With `abandoned = "hold"`, a response that is not recorded leaves the outcome unknown. Only the
/// handler can report that nothing was done.
#[test]
fn with_the_hold_policy_a_handler_runs_twice_only_if_it_returns_retryable() {
    let request = Request::post("/hold_if_abandoned").user("alice").key("k").body("b");
    for status in [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::TOO_MANY_REQUESTS,
    ] {
        let app = TestApp::responding(move |_| HttpResponse::new(status));
        let server = app.serve(all);
        assert_eq!(server.send(&request).status, status.as_u16());
        for _ in 0..2 {
            assert_eq!(server.send(&request).problem(), (409, "outcome_unknown".to_owned()));
        }
        assert_eq!(app.probe.runs(), 1, "{status}");
    }
    let app = TestApp::responding(|_| {
        let mut response = HttpResponse::ServiceUnavailable().finish();
        response.extensions_mut().insert(Disposition::Retryable);
        response
    });
    let server = app.serve(all);
    assert_eq!([server.send(&request).status, server.send(&request).status], [503, 503]);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_panic_without_a_key_gets_a_response() {
    let app = TestApp::responding(|_| panic!("without a key"));
    let server = app.serve(all);
    let response = server.send(&Request::post("/optional").user("alice").body("b"));
    assert_eq!(response.problem(), (500, "handler_failed".to_owned()));
    assert_eq!(response.json()["retryable"], false);
}
