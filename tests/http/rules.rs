//! Which responses are recorded, and how a handler decides for itself.

use actix_web::{
    Error, HttpResponse, HttpResponseBuilder, Responder, ResponseError,
    http::StatusCode,
    post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Disposition, idempotent};
use std::fmt;
use test_support::{Op, Probe, Request, World};

use super::handlers::{User, all, assert_problem};

/// How often two equal requests run their handler.
fn runs(path: &str, status: u16) -> usize {
    let world = World::responding(move |run| {
        HttpResponseBuilder::new(StatusCode::from_u16(status).unwrap()).body(format!("run {run}"))
    });
    let server = world.serve(all);
    let request = Request::post(path).user("alice").key("k");
    let (first, second) = (server.send(&request), server.send(&request));
    assert_eq!((first.status, first.text(), first.is_replay()), (status, "run 1", false));
    match world.probe.runs() {
        1 => second.assert_replays(&first),
        runs => assert_eq!((second.text(), second.is_replay(), runs), ("run 2", false, 2)),
    }
    world.probe.runs()
}

#[test]
fn each_rule_records_its_documented_statuses() {
    for (status, [last, success, everything]) in [
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
        let seen =
            [runs("/payments", status), runs("/success", status), runs("/everything", status)];
        assert_eq!(seen, [last, success, everything], "{status}");
    }
}

#[test]
fn a_released_key_is_as_new_and_may_come_with_another_request() {
    let world = World::responding(|run| match run {
        1 => HttpResponse::TooManyRequests().finish(),
        _ => HttpResponse::Created().finish(),
    });
    let server = world.serve(all);
    let pay = |body: &str| Request::post("/payments").user("alice").key("k").body(body);
    assert_eq!(server.send(&pay("one")).status, 429);
    assert_eq!(world.record("alice", "POST /payments", "k"), None);
    assert_eq!(server.send(&pay("two")).status, 201);
    assert_eq!(world.probe.runs(), 2);
}

/// A handler whose requests contain the desired status and disposition.
#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposed")]
async fn disposed(user: User, probe: Data<Probe>, wish: String) -> HttpResponse {
    probe.note(user.0);
    let mut response = probe.run().await;
    if let Some(disposition) = parse(&wish) {
        response.extensions_mut().insert(disposition);
    }
    response
}

#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposed-with")]
async fn disposed_with(user: User, probe: Data<Probe>, wish: String) -> impl Responder {
    probe.note(user.0);
    parse(&wish).unwrap().with(probe.run().await)
}

#[idempotent(scope = "user", fingerprint = "none")]
#[post("/disposed-by-error")]
async fn disposed_by_error(
    user: User,
    probe: Data<Probe>,
    wish: String,
) -> Result<&'static str, Refused> {
    probe.note(user.0);
    Err(Refused(parse(&wish), probe.run().await.status()))
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

fn parse(wish: &str) -> Option<Disposition> {
    match wish {
        "final" => Some(Disposition::Final),
        "retryable" => Some(Disposition::Retryable),
        "unknown" => Some(Disposition::Unknown),
        _ => None,
    }
}

fn services(config: &mut ServiceConfig) {
    config.service(disposed).service(disposed_with).service(disposed_by_error).service(fallible);
}

/// The outcome of a second request, for each response of the handler to the first one.
fn second_after(path: &str, status: u16, wish: &str) -> (usize, u16) {
    let world =
        World::responding(move |_| HttpResponse::new(StatusCode::from_u16(status).unwrap()));
    let server = world.serve(services);
    let request =
        Request::post(path).user("alice").key("k").header("Content-Type", "text/plain").body(wish);
    let first = server.send(&request);
    assert_eq!(
        (first.status, first.is_replay()),
        (status, false),
        "the first client gets the handler's response"
    );
    let second = server.send(&request);
    assert_eq!(second.is_replay(), second.status == status && world.probe.runs() == 1);
    (world.probe.runs(), second.status)
}

#[test]
fn the_handler_overrides_the_rule_for_one_response() {
    for path in ["/disposed", "/disposed-with", "/disposed-by-error"] {
        assert_eq!(second_after(path, 201, "final"), (1, 201), "{path}");
        assert_eq!(second_after(path, 503, "final"), (1, 503), "{path}");
        assert_eq!(second_after(path, 201, "retryable"), (2, 201), "{path}");
        assert_eq!(second_after(path, 402, "retryable"), (2, 402), "{path}");
        assert_eq!(second_after(path, 201, "unknown"), (1, 409), "{path}");
        assert_eq!(second_after(path, 503, "unknown"), (1, 409), "{path}");
    }
    for path in ["/disposed", "/disposed-by-error"] {
        assert_eq!(second_after(path, 201, "nothing"), (1, 201), "{path}");
        assert_eq!(second_after(path, 503, "nothing"), (2, 503), "{path}");
    }
}

#[test]
fn an_unknown_outcome_holds_the_key_even_where_abandoned_ones_are_retried() {
    let world = World::new();
    let server = world.serve(services);
    let request = Request::post("/disposed").user("alice").key("k").body("unknown");
    assert_eq!(server.send(&request).status, 201);
    assert_eq!(assert_problem(&server.send(&request), 409, "outcome_unknown", false), None);
    assert_eq!((world.probe.runs(), world.store.calls(Op::Abandon)), (1, 1));
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
    let world = World::responding(|_| HttpResponse::BadRequest().finish());
    let server = world.serve(services);
    let request = Request::post("/fallible").user("alice").key("k");
    let first = server.send(&request);
    assert_eq!((first.status, first.text()), (404, "no such account"));
    server.send(&request).assert_replays(&first);
    assert_eq!(world.probe.runs(), 1);
}

/// A response that is not recorded leaves the outcome of a careful operation unknown; only its
/// handler can declare that nothing was done.
#[test]
fn a_careful_handler_never_runs_twice_unless_it_declares_itself_retryable() {
    let request = Request::post("/careful").user("alice").key("k").body("b");
    for status in [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::TOO_MANY_REQUESTS,
    ] {
        let world = World::responding(move |_| HttpResponse::new(status));
        let server = world.serve(all);
        assert_eq!(server.send(&request).status, status.as_u16());
        for _ in 0..2 {
            assert_eq!(server.send(&request).problem(), (409, "outcome_unknown".to_owned()));
        }
        assert_eq!(world.probe.runs(), 1, "{status}");
    }
    let world = World::responding(|_| {
        let mut response = HttpResponse::ServiceUnavailable().finish();
        response.extensions_mut().insert(Disposition::Retryable);
        response
    });
    let server = world.serve(all);
    assert_eq!([server.send(&request).status, server.send(&request).status], [503, 503]);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_panic_without_a_key_gets_a_response() {
    let world = World::responding(|_| panic!("without a key"));
    let server = world.serve(all);
    let response = server.send(&Request::post("/optional").user("alice").body("b"));
    assert_eq!(response.problem(), (500, "handler_failed".to_owned()));
    assert_eq!(response.json()["retryable"], false);
}
