//! Which requests have the same fingerprint.

use actix_web::{
    HttpRequest, HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Idempotency, fingerprint::FingerprintKeys, idempotent};
use test_support::{Probe, Request, TestApp};

use super::handlers::{User, all, assert_problem};

#[idempotent(scope = "user", fingerprint = "json")]
#[post("/as-json")]
async fn as_json(user: User, probe: Data<Probe>, body: String) -> HttpResponse {
    probe.note(format!("{} {body}", user.0));
    probe.run().await
}

/// A fingerprint of the body's first word only.
fn first_word(request: &HttpRequest, body: &[u8]) -> Vec<u8> {
    assert_eq!(request.method(), "POST");
    body.split(|byte| *byte == b' ').next().unwrap_or_default().to_vec()
}

#[idempotent(scope = "user", fingerprint = "first_word")]
#[post("/as-word")]
async fn as_word(user: User, probe: Data<Probe>, body: String) -> HttpResponse {
    probe.note(format!("{} {body}", user.0));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(as_json).service(as_word);
    all(config);
}

/// Whether two bodies have the same fingerprint for the handler at this path.
fn same_fingerprint(path: &str, one: &str, other: &str) -> bool {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = |body: &str| Request::post(path).user("alice").key("k").json(body);
    let first = server.send(&request(one));
    assert_eq!(first.status, 201);
    let second = server.send(&request(other));
    assert_eq!(app.probe.runs(), 1);
    if second.status == 422 {
        assert_problem(&second, 422, "key_reused", false);
        return false;
    }
    second.assert_replays(&first);
    true
}

#[test]
fn by_default_every_byte_of_the_body_counts() {
    assert!(same_fingerprint("/payments", r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#));
    assert!(!same_fingerprint("/payments", r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#));
    assert!(!same_fingerprint("/payments", r#"{"a":1}"#, r#"{"a": 1}"#));
}

#[test]
fn as_json_member_order_whitespace_and_notation_do_not_count() {
    assert!(same_fingerprint(
        "/as-json",
        r#"{"a":1,"b":[1,{"x":null,"y":"\u00e9"}]}"#,
        "{ \"b\":[1.0,{\"y\":\"é\",\"x\":null}],\n\"a\":1e0 }"
    ));
    assert!(!same_fingerprint("/as-json", r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#));
    assert!(!same_fingerprint("/as-json", r#"{"a":1}"#, r#"{"a":"1"}"#));
    assert!(!same_fingerprint("/as-json", r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#));
}

#[test]
fn as_json_a_body_without_a_canonical_form_counts_by_its_bytes() {
    for (one, other) in [
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#),
        (r#"{"n":12345678901234567890}"#, r#"{"n": 12345678901234567890}"#),
        ("not json", "not  json"),
        ("", " "),
    ] {
        assert!(same_fingerprint("/as-json", one, one), "{one}");
        assert!(!same_fingerprint("/as-json", one, other), "{one} {other}");
    }
}

#[test]
fn as_json_the_handler_reads_the_bytes_as_they_were_sent() {
    let app = TestApp::new();
    let server = app.serve(services);
    let body = "{ \"b\" : 1,\n \"a\" : 1.0 }";
    assert_eq!(
        server.send(&Request::post("/as-json").user("alice").key("k").json(body)).status,
        201
    );
    assert_eq!(app.probe.notes(), [format!("alice {body}")]);
}

#[test]
fn without_a_fingerprint_body_and_content_type_do_not_count_but_the_target_does() {
    assert!(same_fingerprint("/no_fingerprint", "one", "two"));
    let app = TestApp::new();
    let server = app.serve(services);
    let request = |target: &str| Request::post(target).user("alice").key("k");
    let first = server.send(&request("/no_fingerprint?a=1").json("{}"));
    server
        .send(&request("/no_fingerprint?a=1").header("Content-Type", "text/plain").body("x"))
        .assert_replays(&first);
    assert_problem(
        &server.send(&request("/no_fingerprint?a=2").json("{}")),
        422,
        "key_reused",
        false,
    );
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_custom_function_determines_the_fingerprint() {
    assert!(same_fingerprint("/as-word", "pay 1", "pay 2"));
    assert!(!same_fingerprint("/as-word", "pay 1", "give 1"));
    let app = TestApp::new();
    let server = app.serve(services);
    let request = |target: &str| Request::post(target).user("alice").key("k").body("pay 1");
    assert_eq!(server.send(&request("/as-word")).status, 201);
    assert_problem(&server.send(&request("/as-word?a=1")), 422, "key_reused", false);
    assert_eq!(app.probe.notes(), ["alice pay 1"], "the handler does not get the body");
    // The function ignores the content type.
    assert!(server.send(&request("/as-word").header("Content-Type", "text/x-other")).is_replay());
}

#[test]
fn records_from_before_a_key_rotation_are_recognized() {
    let (old, new) = (b"0123456789abcdef", b"fedcba9876543210");
    let mut app = TestApp::set(|builder| {
        builder.fingerprint_keys(FingerprintKeys::none().with(1, old).unwrap())
    });
    let request = |body: &str| Request::post("/payments").user("alice").key("k").body(body);
    let before = app.serve(all);
    let first = before.send(&request("b"));
    let keys = FingerprintKeys::none().with(2, new).unwrap().with(1, old).unwrap();
    app.idempotency = Idempotency::builder(app.store.clone()).fingerprint_keys(keys).build();
    let after = app.serve(all);
    after.send(&request("b")).assert_replays(&first);
    assert_problem(&after.send(&request("other")), 422, "key_reused", false);
    assert_eq!(app.probe.runs(), 1);
}
