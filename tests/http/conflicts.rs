//! The key belongs to a different request, or its first request is still in progress.

use std::collections::HashSet;

use test_support::{Request, TestApp};

use super::handlers::{all, assert_nothing_leaks, assert_problem};

fn pay(body: &str) -> Request {
    Request::post("/payments").user("alice").key("k").body(body)
}

#[test]
fn another_body_is_refused_while_the_first_is_in_flight_and_when_it_is_completed() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&pay("one"));
    app.probe.await_runs(1);
    let before = app.record("alice", "POST /payments", "k");
    for body in ["two", "", "one "] {
        let other = server.send(&pay(body));
        assert_eq!(assert_problem(&other, 422, "key_reused", false), None);
        assert_nothing_leaks(&other);
    }
    assert_eq!(app.record("alice", "POST /payments", "k"), before, "the record changed");
    app.probe.release_all();
    let first = first.response();
    let before = app.record("alice", "POST /payments", "k");
    let other = server.send(&pay("two"));
    assert_problem(&other, 422, "key_reused", false);
    assert_nothing_leaks(&other);
    assert_eq!(app.record("alice", "POST /payments", "k"), before, "the record changed");
    server.send(&pay("one")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn another_body_is_refused_while_the_key_is_held() {
    let app = TestApp::responding(|_| panic!("the handler panics"));
    let server = app.serve(all);
    let hold_if_abandoned =
        |body: &str| Request::post("/hold_if_abandoned").user("alice").key("k").body(body);
    assert_problem(&server.send(&hold_if_abandoned("one")), 500, "handler_failed", false);
    assert_problem(&server.send(&hold_if_abandoned("two")), 422, "key_reused", false);
    assert_problem(&server.send(&hold_if_abandoned("one")), 409, "outcome_unknown", false);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn another_body_cannot_take_over_an_abandoned_key() {
    let app = TestApp::responding(|_| panic!("the handler panics"));
    let server = app.serve(all);
    assert_problem(&server.send(&pay("one")), 500, "handler_failed", true);
    assert_problem(&server.send(&pay("two")), 422, "key_reused", false);
    assert_eq!(app.probe.runs(), 1);
    assert_problem(&server.send(&pay("one")), 500, "handler_failed", true);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn query_path_parameter_and_content_type_are_part_of_the_fingerprint() {
    let app = TestApp::new();
    let server = app.serve(all);
    let capture = |target: &str, kind: &str| {
        Request::post(target).user("alice").key("k").header("Content-Type", kind).body("b")
    };
    let first = server.send(&capture("/payments/1/captures?a=1&b=2", "text/plain"));
    assert_eq!(first.status, 201);
    for (target, kind) in [
        ("/payments/1/captures?b=2&a=1", "text/plain"),
        ("/payments/1/captures?a=1", "text/plain"),
        ("/payments/1/captures", "text/plain"),
        ("/payments/2/captures?a=1&b=2", "text/plain"),
        ("/payments/1/captures?a=1&b=2", "text/plain; charset=utf-8"),
    ] {
        let other = server.send(&capture(target, kind));
        assert_problem(&other, 422, "key_reused", false);
        assert_nothing_leaks(&other);
    }
    server.send(&capture("/payments/1/captures?a=1&b=2", "text/plain")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn other_headers_are_not_part_of_the_fingerprint() {
    let app = TestApp::new();
    let server = app.serve(all);
    let first = server.send(&pay("one").header("User-Agent", "a").header("X-Request-Id", "1"));
    server
        .send(&pay("one").header("User-Agent", "b").header("Traceparent", "00"))
        .assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_duplicate_in_flight_gets_a_retry_after_header() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&pay("one"));
    app.probe.await_runs(1);
    let mut seconds = HashSet::new();
    for _ in 0..60 {
        let duplicate = server.send(&pay("one"));
        seconds.extend(assert_problem(&duplicate, 409, "in_flight", true));
        assert_nothing_leaks(&duplicate);
    }
    // The lease is 30 s; the header is one second plus up to a quarter of the lease.
    assert!(seconds.iter().all(|seconds| (1..=8).contains(seconds)), "{seconds:?}");
    assert!(seconds.len() > 2, "no jitter: {seconds:?}");
    app.probe.release_all();
    assert_eq!((first.response().status, app.probe.runs()), (201, 1));
}

#[test]
fn retry_after_shrinks_with_the_lease() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&pay("one"));
    app.probe.await_runs(1);
    app.advance(std::time::Duration::from_secs(26));
    for _ in 0..30 {
        let seconds = assert_problem(&server.send(&pay("one")), 409, "in_flight", true);
        assert!(seconds.is_some_and(|seconds| (1..=2).contains(&seconds)), "{seconds:?}");
    }
    app.probe.release_all();
    assert_eq!((first.response().status, app.probe.runs()), (201, 1));
}
