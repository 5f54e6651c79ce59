//! Logs contain the first digits of a record id, but no keys, bodies or responses.

use actix_web::HttpResponse;
use test_support::{Fault, Op, Request, TestApp, log};

use super::handlers::all;

#[test]
fn no_log_contains_a_key_body_or_response() {
    log::capture();
    let app = TestApp::responding(|run| {
        assert!(run != 2, "the handler panics");
        HttpResponse::Created()
            .insert_header(("x-token", "a-secret-header"))
            .body("a-secret-response")
    });
    let server = app.serve(all);
    let pay =
        |key: &str| Request::post("/payments").user("a-secret-user").key(key).body("a-secret-body");
    let mut statuses = Vec::new();
    let mut send = |request: &Request| statuses.push(server.send(request).status);
    send(&pay("a-secret-key-1"));
    send(&pay("a-secret-key-1"));
    send(&pay("a-secret-key-1").body("a-secret-body-too"));
    send(&pay("a secret key"));
    send(&pay("a-secret-key-2"));
    app.store.fail(Op::Claim, 2, Fault::Before);
    send(&pay("a-secret-key-3"));
    app.store.fail(Op::Complete, 2, Fault::Before);
    send(&pay("a-secret-key-4"));
    app.store.await_calls(Op::Complete, 4);
    app.store.damage();
    send(&pay("a-secret-key-1"));
    assert_eq!(statuses, [201, 201, 422, 400, 500, 503, 201, 500]);
    let log = log::captured();
    for secret in ["a-secret", "a secret key"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
    // The log is not empty: each of these events contains the first digits of its record id.
    for (key, event) in [
        ("a-secret-key-2", "an attempt was abandoned"),
        ("a-secret-key-3", "claiming a key failed"),
        ("a-secret-key-4", "in the background"),
        ("a-secret-key-1", "a recording cannot be read"),
    ] {
        let id = TestApp::id("a-secret-user", "POST /payments", key).short().to_string();
        assert_eq!(id.len(), 8);
        assert!(
            log.lines().any(|line| line.contains(event) && line.contains(&id)),
            "{event} {id}:\n{log}"
        );
    }
}
