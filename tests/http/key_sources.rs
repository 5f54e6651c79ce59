//! Keys from other headers, from the body, and from functions of the application (`key_from`).

use actix_web::{
    Error, HttpRequest, HttpResponse,
    error::ErrorForbidden,
    post,
    web::{Bytes, Data, ServiceConfig},
};
use idempotent_actix::{KeyRule, Operation, RejectUnsupportedKeys, idempotent};
use test_support::{Op, Probe, Request, Server, TestApp};

use super::handlers::{User, assert_problem};

/// Handlers that note their key and the body.
macro_rules! handlers {
    ($($name:ident $path:literal $(, $key:ident = $value:literal)*;)*) => {
        $(
            #[idempotent(scope = "user" $(, $key = $value)*)]
            #[post($path)]
            async fn $name(
                user: User,
                operation: Option<Operation>,
                body: Bytes,
                probe: Data<Probe>,
            ) -> HttpResponse {
                let key = operation.map_or("none".into(), |operation| key_of(&operation));
                probe.note(format!("{} {key} {}", user.0, body.len()));
                probe.run().await
            }
        )*

        pub(crate) fn services(config: &mut ServiceConfig) {
            config$(.service($name))*;
        }
    };
}

handlers! {
    by_header "/header", key_from = "header:Webhook-Id";
    by_header_or_none "/header-or-none", key_from = "header:webhook-id", key = "optional";
    by_field "/form", key_from = "form:idempotency_key";
    by_field_or_none "/form-or-none", key_from = "form:idempotency_key", key = "optional";
    by_member "/json", key_from = "json:/id";
    by_event "/event", key_from = "json:/data/0/~1id", fingerprint = "none";
    by_member_or_none "/json-or-none", key_from = "json:/id", key = "optional";
    by_canonical_member "/canonical", key_from = "json:/id", fingerprint = "json";
    by_function "/function", key_from = "after_first_space";
    by_function_or_none "/function-or-none", key_from = "after_first_space", key = "optional";
    by_query "/query", key_from = "super::key_sources::query", fingerprint = "length";
    by_panic "/panic", key_from = "panicking";
}

fn key_of(operation: &Operation) -> String {
    operation.key().unwrap().as_str().to_owned()
}

fn after_first_space<'a>(_: &HttpRequest, body: &'a [u8]) -> Result<Option<&'a str>, Error> {
    let body = std::str::from_utf8(body).map_err(|_| ErrorForbidden("not text"))?;
    Ok(body.split_once(' ').map(|(_, key)| key))
}

pub(crate) fn query(request: &HttpRequest, _: &[u8]) -> String {
    request.query_string().to_owned()
}

fn length(_: &HttpRequest, body: &[u8]) -> String {
    body.len().to_string()
}

fn panicking(_: &HttpRequest, _: &[u8]) -> Option<String> {
    panic!("the key function panics")
}

fn post_form(path: &str, body: &str) -> Request {
    let request = Request::post(path).user("alice");
    request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
}

fn post_json(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").json(body)
}

fn post_header(path: &str, key: &str) -> Request {
    Request::post(path).user("alice").header("WEBHOOK-ID", key).body("b")
}

#[test]
fn a_redelivery_with_the_same_id_is_replayed_and_another_payload_is_refused() {
    let app = TestApp::new();
    let server = app.serve(services);
    let cases = [
        (post_header("/header", "k"), post_header("/header", "k").body("other")),
        (
            post_form("/form", "amount=1&idempotency_key=k"),
            post_form("/form", "amount=2&idempotency_key=k"),
        ),
        (post_json("/json", r#"{"id":"k","n":1}"#), post_json("/json", r#"{"id":"k","n":2}"#)),
        (
            Request::post("/function").user("alice").body("pay k"),
            Request::post("/function").user("alice").body("give k"),
        ),
        (
            Request::post("/query?k").user("alice").body("12"),
            Request::post("/query?k").user("alice").body("123"),
        ),
    ];
    for (run, (request, other)) in cases.into_iter().enumerate() {
        let first = server.send(&request);
        assert_eq!(first.status, 201, "{}", first.text());
        server.send(&request).assert_replays(&first);
        assert_problem(&server.send(&other), 422, "key_reused", false);
        assert_eq!(app.probe.runs(), run + 1);
        let note = app.probe.notes().last().unwrap().clone();
        assert!(note.starts_with("alice k "), "{note}");
    }
}

#[test]
fn two_submissions_of_one_form_run_once() {
    let app = TestApp::new();
    let server = app.serve(services);
    let form = post_form("/form", "email=a%40b.c&idempotency_key=7d9c&name=A+B");
    app.probe.hold();
    let first = server.begin(&form);
    app.probe.await_runs(1);
    assert_problem(&server.send(&form), 409, "in_flight", true);
    app.probe.release_all();
    let first = first.response();
    server.send(&form).assert_replays(&first);
    assert_eq!(app.probe.notes(), ["alice 7d9c 43"]);
}

#[test]
fn without_a_fingerprint_only_the_id_of_an_event_counts() {
    let app = TestApp::new();
    let server = app.serve(services);
    let first = server.send(&post_json("/event", r#"{"data":[{"/id":17}],"pending":2}"#));
    let again = server.send(&post_json("/event", r#"{"pending":1, "data":[{"/id":17}]}"#));
    again.assert_replays(&first);
    // A string with the same digits is the same key.
    server.send(&post_json("/event", r#"{"data":[{"/id":"17"}]}"#)).assert_replays(&first);
    assert_eq!(app.probe.notes(), ["alice 17 33"]);
}

#[test]
fn a_key_of_the_body_or_of_a_function_is_not_unquoted_and_one_of_a_header_is() {
    let app = TestApp::new();
    let server = app.serve(services);
    let first = server.send(&post_header("/header", "k"));
    server.send(&post_header("/header", "\"k\"")).assert_replays(&first);
    for body in ["idempotency_key=k", "idempotency_key=%22k%22", "idempotency_key=+a,%20b+"] {
        assert_eq!(server.send(&post_form("/form", body)).status, 201, "{body}");
    }
    assert_eq!(server.send(&post_json("/json", r#"{"id":"\"\u006b\""}"#)).status, 201);
    let body = Request::post("/function").user("alice").body("pay \"k\"");
    assert_eq!(server.send(&body).status, 201);
    let keys: Vec<_> = app.probe.notes().iter().map(|note| note[6..].to_owned()).collect();
    assert_eq!(keys, ["k 1", "k 17", "\"k\" 23", " a, b  24", "\"k\" 19", "\"k\" 7"]);
}

#[test]
fn an_idempotency_key_header_has_no_effect_on_another_source() {
    let app = TestApp::new();
    let (idempotency, probe) = (app.idempotency.clone(), app.probe.clone());
    let server = Server::start(move || {
        actix_web::App::new()
            .app_data(idempotency.clone())
            .app_data(Data::new(probe.clone()))
            .wrap(RejectUnsupportedKeys::new(&idempotency))
            .configure(services)
    });
    let first = server.send(&post_json("/json", r#"{"id":"k"}"#));
    for header in ["another", "\"malformed", ""] {
        server.send(&post_json("/json", r#"{"id":"k"}"#).key(header)).assert_replays(&first);
    }
    let missing = server.send(&post_json("/json", "{}").key("k"));
    assert_problem(&missing, 400, "key_missing", false);
    let missing = server.send(&Request::post("/header").user("alice").key("k"));
    assert_problem(&missing, 400, "key_missing", false);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn two_handlers_with_different_sources_do_not_share_keys() {
    let app = TestApp::new();
    let server = app.serve(services);
    let json = r#"{"id":"k","data":[{"/id":"e"}]}"#;
    let requests = [
        post_header("/header", "k"),
        post_form("/form", "idempotency_key=k"),
        post_json("/json", json),
        post_json("/event", json),
        post_json("/canonical", json),
    ];
    let responses: Vec<_> = requests.iter().map(|request| server.send(request)).collect();
    for (request, response) in requests.iter().zip(&responses) {
        server.send(request).assert_replays(response);
    }
    assert_eq!(app.probe.runs(), requests.len());
}

#[test]
fn a_missing_key_is_refused_with_the_place_to_send_it() {
    let app = TestApp::new();
    let server = app.serve(services);
    for (request, place) in [
        (Request::post("/header").user("alice"), "in the header webhook-id for"),
        (post_form("/form", "x=1&key=k"), "in the form field `idempotency_key` for"),
        (post_form("/form", ""), "in the form field `idempotency_key` for"),
        (post_json("/json", r#"{"ID":"k"}"#), "in the JSON member `/id` for"),
        (post_json("/json", r#"{"id":null}"#), "in the JSON member `/id` for"),
        (post_json("/json", r#"["id"]"#), "in the JSON member `/id` for"),
        (Request::post("/json").user("alice"), "in the JSON member `/id` for"),
        (Request::post("/function").user("alice").body("none"), "Send a unique idempotency key"),
    ] {
        let response = server.send(&request);
        assert_problem(&response, 400, "key_missing", false);
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(place), "{detail}");
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn a_malformed_key_is_refused_without_being_echoed() {
    let app = TestApp::new();
    let server = app.serve(services);
    let long = format!("idempotency_key={}", "secret".repeat(43));
    let deep = "[".repeat(500);
    for (request, why) in [
        (post_header("/header", "sec ret"), "header webhook-id is invalid: an unquoted key"),
        (post_header("/header", "secret").header("webhook-id", "secret"), "more than one key"),
        (post_form("/form", "idempotency_key="), "`idempotency_key` is invalid: the key is empty"),
        (post_form("/form", &long), "the key has 258 bytes"),
        (post_form("/form", "idempotency_key=secret%C3%A9"), "only printable ASCII"),
        (post_form("/form", "idempotency_key=secret%0A"), "only printable ASCII"),
        (post_form("/form", "idempotency_key=secret&idempotency_key=secret"), "more than one key"),
        (post_json("/form", "idempotency_key=secret"), "the body is not a form"),
        (Request::post("/form").user("alice").body("idempotency_key=secret"), "is not a form"),
        (post_json("/json", "{\"id\":\"secret\""), "`/id` cannot be read: the body is not valid"),
        (post_json("/json", "secret"), "the body is not valid JSON"),
        (post_json("/json", &deep), "the body is not valid JSON"),
        (post_json("/json", r#"{"id":"secret","id":"secret"}"#), "more than one key"),
        (post_json("/json", r#"{"id":{"secret":1}}"#), "neither a string nor an integer"),
        (post_json("/json", r#"{"id":1.5}"#), "neither a string nor an integer"),
        (post_json("/json", r#"{"id":true}"#), "neither a string nor an integer"),
        (post_json("/json", r#"{"id":""}"#), "the key is empty"),
        (post_json("/json", "{}").header("Content-Encoding", "gzip"), "has a Content-Encoding"),
        (Request::post("/function").user("alice").body("a "), "of the request is invalid: the key"),
    ] {
        let response = server.send(&request);
        assert_problem(&response, 400, "key_malformed", false);
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why) && !detail.contains("secret"), "{why}: {detail}");
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn where_the_key_is_optional_a_request_without_one_runs_each_time_with_its_body() {
    let app = TestApp::new();
    let server = app.serve(services);
    for (unkeyed, keyed, malformed) in [
        (
            Request::post("/header-or-none").user("alice").body("b"),
            post_header("/header-or-none", "k"),
            post_header("/header-or-none", ""),
        ),
        (
            post_form("/form-or-none", "x"),
            post_form("/form-or-none", "idempotency_key=k"),
            post_form("/form-or-none", "idempotency_key"),
        ),
        (
            post_json("/json-or-none", "7"),
            post_json("/json-or-none", r#"{"id":"k"}"#),
            post_json("/json-or-none", r#"{"id":[]}"#),
        ),
        (
            Request::post("/function-or-none").user("alice").body("p"),
            Request::post("/function-or-none").user("alice").body("p k"),
            Request::post("/function-or-none").user("alice").body("p \u{e9}"),
        ),
    ] {
        let before = app.probe.runs();
        for _ in 0..2 {
            assert_eq!(server.send(&unkeyed).status, 201);
            assert_eq!(app.probe.notes().last().unwrap(), "alice none 1");
        }
        let first = server.send(&keyed);
        assert_eq!(first.status, 201, "{}", first.text());
        server.send(&keyed).assert_replays(&first);
        assert_problem(&server.send(&malformed), 400, "key_malformed", false);
        assert_eq!(app.probe.runs(), before + 3);
    }
}

#[test]
fn the_rule_for_keys_applies_to_each_source() {
    let app = TestApp::set(|builder| builder.key_rule(KeyRule::MinLength(4)));
    let server = app.serve(services);
    for request in [
        post_header("/header", "abc"),
        post_form("/form", "idempotency_key=abc"),
        post_json("/json", r#"{"id":123}"#),
        Request::post("/function").user("alice").body("pay abc"),
    ] {
        assert_problem(&server.send(&request), 400, "key_malformed", false);
    }
    assert_eq!(server.send(&post_json("/json", r#"{"id":1234}"#)).status, 201);
}

#[test]
fn the_error_of_a_key_function_is_the_response_and_its_panic_is_a_misconfiguration() {
    let app = TestApp::new();
    let server = app.serve(services);
    let refused = server.send(&Request::post("/function").user("alice").body([0xff]));
    assert_eq!((refused.status, refused.text()), (403, "not text"));
    for _ in 0..2 {
        let response = server.send(&Request::post("/panic").user("alice").body("k"));
        assert_problem(&response, 500, "misconfigured", false);
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}
