//! The dialect of an application.

use std::time::{Duration, SystemTime};

use actix_web::{HttpResponse, http::header::HttpDate};
use idempotent_actix::{
    RecordRule,
    dialect::{Dialect, Endpoint, Marker, Token},
    problem::ProblemKind,
};
use test_support::{Op, Request, TestApp};

use super::{COMPLETE, Speaking, pay, services};

/// Changes everything.
fn own() -> Dialect {
    let mut dialect = Dialect::ietf();
    dialect.name = "own".into();
    dialect.key_header = Token::from_static("X-Request-Key");
    dialect.replay_marker =
        Marker { name: Token::from_static("x-repeated"), value: Token::from_static("yes") };
    dialect.expiry_header = Some(Token::from_static("x-key-expires"));
    dialect.endpoint = Endpoint::Path;
    dialect.record = RecordRule::Success;
    let form = dialect.problem_mut(ProblemKind::KeyReused);
    form.status = Some(409);
    form.code = Some("other_request".into());
    form.title = Some("That key is taken".into());
    form.detail = Some("Look at what you sent first.".into());
    dialect
}

fn request(body: &str) -> Request {
    Request::post(COMPLETE).user("alice").header("x-request-key", "k").json(body)
}

#[test]
fn each_value_of_a_dialect_has_its_effect() {
    let speaking = Speaking::new(own());
    let first = speaking.send(&request("1"));
    let replay = speaking.send(&request("1"));
    assert_eq!((first.text(), replay.text()), ("run 1", "run 1"));
    assert_eq!((first.header("x-repeated"), replay.header("x-repeated")), (None, Some("yes")));
    let refused = speaking.send(&request("2"));
    assert_eq!(refused.status, 409);
    let body = refused.json();
    assert_eq!(body["code"], "other_request");
    assert_eq!(body["title"], "That key is taken");
    assert_eq!(body["detail"], "Look at what you sent first.");
    assert_eq!(body["status"], 409);
    let specification = speaking.app.idempotency.specification();
    assert_eq!(specification["header"], "x-request-key");
    assert_eq!(specification["dialect"], "own");
    assert_eq!(specification["expiry_header"], "x-key-expires");
    let failing = Speaking::responding(own(), |_| HttpResponse::PaymentRequired().finish());
    for _ in 0..2 {
        assert_eq!(failing.send(&request("1")).status, 402);
    }
    assert_eq!(failing.app.probe.runs(), 2, "only 2xx is recorded");
}

#[test]
fn a_response_says_until_when_its_key_is_remembered() {
    let speaking = Speaking::new(own());
    let at = |response: &test_support::ClientResponse| -> SystemTime {
        let text = response.header("x-key-expires").expect("an expiry").to_owned();
        text.parse::<HttpDate>().unwrap().into()
    };
    let expires = at(&speaking.send(&request("1")));
    speaking.app.advance(Duration::from_secs(60));
    assert_eq!(at(&speaking.send(&request("1"))), expires, "it counts from the first claim");
    assert_eq!(at(&speaking.send(&request("2"))), expires, "a refusal says it, too");
    let reads = speaking.app.store.calls(Op::LookUp);
    let plain = Speaking::new(Dialect::ietf());
    let response = plain.send(&pay("k", "1"));
    assert_eq!(response.header("x-key-expires"), None);
    assert!(reads > plain.app.store.calls(Op::LookUp), "the default reads no record for it");
}

#[test]
fn a_handler_cannot_forge_the_marker_of_the_dialect() {
    let speaking = Speaking::responding(own(), |_| {
        HttpResponse::Created().insert_header(("x-repeated", "yes")).finish()
    });
    assert_eq!(speaking.send(&request("1")).header("x-repeated"), None);
    assert_eq!(speaking.send(&request("1")).lines("x-repeated"), ["yes"]);
}

#[test]
fn a_renderer_gets_problems_with_the_statuses_of_the_dialect() {
    let app = TestApp::set(|builder| {
        builder.dialect(own()).problems(|problem, _| {
            HttpResponse::Ok().body(format!("{} {}", problem.status(), problem.kind().code()))
        })
    });
    let server = app.serve(services);
    let _ = server.send(&request("1"));
    assert_eq!(server.send(&request("2")).text(), "409 key_reused");
}

#[test]
fn what_the_builder_sets_overrides_the_dialect() {
    let app = TestApp::set(|builder| {
        builder
            .dialect(own())
            .header(actix_web::http::header::HeaderName::from_static("x-key"))
            .record(RecordRule::All)
    });
    let specification = app.idempotency.specification();
    assert_eq!(specification["header"], "x-key");
    let mut operations = specification["operations"].as_array().unwrap().iter();
    assert!(operations.any(|operation| operation["record"] == "all"));
    assert!(!operations.any(|operation| operation["record"] == "success"
        && operation["routes"][0]["path"] == "/required"));
}
