//! Which headers contain a valid key.

use actix_web::{
    App,
    http::header::HeaderName,
    web::{self, Data},
};
use idempotent_actix::KeyRule;
use test_support::{Op, Probe, Request, Server, TestApp};

use super::handlers::{all, assert_problem};

fn pay() -> Request {
    Request::post("/payments").user("alice")
}

#[test]
fn a_request_without_a_key_is_refused_and_not_run() {
    let app = TestApp::new();
    let response = app.serve(all).send(&pay());
    assert_eq!(assert_problem(&response, 400, "key_missing", false), None);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn two_key_lines_are_not_a_key_even_if_they_are_equal() {
    let app = TestApp::new();
    let response = app.serve(all).send(&pay().key("k").key("k"));
    assert_problem(&response, 400, "key_malformed", false);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn malformed_keys_are_refused_without_being_echoed() {
    let app = TestApp::new();
    let server = app.serve(all);
    let long = "k".repeat(256);
    for key in [
        "",
        "\"\"",
        "\"open",
        "\"a\", \"b\"",
        "\"a\" b",
        "a b",
        "a,b",
        "a\"b",
        "\u{e9}",
        "\"\u{e9}\"",
        &long,
    ] {
        let response = server.send(&pay().key(key));
        assert_problem(&response, 400, "key_malformed", false);
        assert!(key.len() < 3 || !response.text().contains(key), "{}", response.text());
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn a_quoted_key_equals_the_bare_key() {
    let app = TestApp::new();
    let server = app.serve(all);
    for key in
        ["8e03978e-40d5-43e8-bc93-6894a57f9324", "12345678901234567890", "k", &"k".repeat(255)]
    {
        let first = server.send(&pay().key(key));
        assert_eq!(first.status, 201);
        server.send(&pay().key(format!("\"{key}\""))).assert_replays(&first);
        server.send(&pay().key(format!("  \"{key}\";retry=1"))).assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), 4);
}

#[test]
fn the_keys_that_firefox_and_stripe_send_are_accepted() {
    let app = TestApp::new();
    let server = app.serve(all);
    let keys = [
        "\"9223372036854775807\"",
        "\"18446744073709551615\"",
        "stripe-node-retry-29a3ea1b-5b0a-4f35-b3c4-3cb5a1a4d8a2",
        "e5bf1d0a-37f6-4fbb-a2dd-ec0b60a1ee4e",
    ];
    for key in keys {
        assert_eq!(server.send(&pay().key(key)).status, 201, "{key}");
    }
    assert_eq!(app.probe.runs(), keys.len());
}

#[test]
fn keys_are_case_sensitive_and_escapes_are_decoded() {
    let app = TestApp::new();
    let server = app.serve(all);
    let first = server.send(&pay().key("Key"));
    assert!(!server.send(&pay().key("key")).is_replay());
    server.send(&pay().key("\"Key\"")).assert_replays(&first);
    let escaped = server.send(&pay().key(r#""a\\b""#));
    server.send(&pay().key(r"a\b")).assert_replays(&escaped);
    assert_eq!(app.probe.runs(), 3);
}

#[test]
fn the_uuid_rule_refuses_everything_else() {
    let app = TestApp::set(|builder| builder.key_rule(KeyRule::Uuid));
    let server = app.serve(all);
    let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    for key in [
        "\"9223372036854775807\"",
        "8e03978e40d543e8bc936894a57f9324",
        "{8e03978e-40d5-43e8-bc93-6894a57f9324}",
    ] {
        assert_problem(&server.send(&pay().key(key)), 400, "key_malformed", false);
    }
    assert_eq!(server.send(&pay().key(uuid)).status, 201);
    assert!(server.send(&pay().key(format!("\"{uuid}\""))).is_replay());
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn the_length_rule_counts_the_key_without_its_quotes() {
    let app = TestApp::set(|builder| builder.key_rule(KeyRule::MinLength(4)));
    let server = app.serve(all);
    assert_problem(&server.send(&pay().key("\"abc\"")), 400, "key_malformed", false);
    assert_eq!(server.send(&pay().key("abcd")).status, 201);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn the_header_can_have_another_name() {
    let app = TestApp::set(|builder| builder.header(HeaderName::from_static("x-request-token")));
    let server = app.serve(all);
    let missing = server.send(&pay().key("k"));
    assert_problem(&missing, 400, "key_missing", false);
    assert!(missing.text().contains("x-request-token"), "{}", missing.text());
    let first = server.send(&pay().header("X-Request-Token", "k"));
    server.send(&pay().header("x-request-token", "k")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn where_keys_are_optional_a_request_without_one_runs_each_time() {
    let app = TestApp::new();
    let server = app.serve(all);
    let request = Request::post("/optional").user("alice");
    for run in 1..=2 {
        let response = server.send(&request);
        assert_eq!((response.status, response.is_replay()), (201, false));
        assert_eq!(response.json()["secret of run"], run);
    }
    assert_eq!(app.store.calls(Op::Claim), 0, "a request without a key was claimed");
    let first = server.send(&request.clone().key("k"));
    server.send(&request.clone().key("k")).assert_replays(&first);
    assert_problem(&server.send(&request.key("")), 400, "key_malformed", false);
    assert_eq!(app.probe.runs(), 3);
}

#[test]
fn without_a_registered_handle_nothing_runs_and_nothing_is_disclosed() {
    let probe = Probe::new();
    let data = probe.clone();
    let server = Server::start(move || App::new().app_data(Data::new(data.clone())).configure(all));
    for request in [pay().key("k"), pay(), Request::post("/optional").user("alice")] {
        let response = server.send(&request);
        assert_problem(&response, 500, "misconfigured", false);
        assert!(!response.text().contains("app_data"), "{}", response.text());
    }
    assert_eq!(probe.runs(), 0);
}

#[test]
fn a_handle_in_web_data_is_found() {
    let app = TestApp::new();
    let (idempotency, probe) = (app.idempotency.clone(), app.probe.clone());
    let server = Server::start(move || {
        let idempotency = web::Data::new(idempotency.clone());
        App::new().app_data(idempotency).app_data(Data::new(probe.clone())).configure(all)
    });
    let first = server.send(&pay().key("k"));
    server.send(&pay().key("k")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}
