//! Attempts that end without an outcome: panics, held keys, and how they are resolved.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use bytes::Bytes;
use idempotent_actix::{
    Operation,
    job::recording_of,
    recording::{self, EncodedRecording, RecordedBody, Recording},
    store::{Actor, ResolveOutcome, Snapshot},
};
use test_support::{ClientResponse, Probe, Request, Server, TestApp, wait_for};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

/// An application whose first run panics.
fn first_run_panics() -> TestApp {
    TestApp::responding(|run| {
        assert!(run > 1, "a secret of the handler");
        HttpResponse::Created().body(format!("run {run}"))
    })
}

fn request() -> Request {
    Request::post("/hold_if_abandoned").user("alice").key("k").body("b")
}

#[idempotent_actix::idempotent(scope = "user")]
#[post("/reporting")]
async fn reporting(user: User, operation: Operation, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!(
        "{} attempt {} {}",
        user.0,
        operation.attempt().unwrap(),
        operation.recovering().unwrap()
    ));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(reporting);
    all(config);
}

#[test]
fn after_a_panic_the_client_gets_500_and_the_retry_recovers() {
    let app = first_run_panics();
    let server = app.serve(services);
    let request = Request::post("/reporting").user("alice").key("k");
    let failed = server.send(&request);
    assert_problem(&failed, 500, "handler_failed", true);
    assert!(!failed.text().contains("secret"), "{}", failed.text());
    let second = server.send(&request);
    assert_eq!((second.status, second.text(), second.is_replay()), (201, "run 2", false));
    server.send(&request).assert_replays(&second);
    assert_eq!(app.probe.notes(), ["alice attempt 1 false", "alice attempt 2 true"]);
}

#[test]
fn after_a_panic_a_key_with_the_hold_policy_is_held() {
    let app = first_run_panics();
    let server = app.serve(all);
    assert_problem(&server.send(&request()), 500, "handler_failed", false);
    for _ in 0..2 {
        let refused = server.send(&request());
        assert_eq!(assert_problem(&refused, 409, "outcome_unknown", false), None);
        assert_nothing_leaks(&refused);
    }
    app.advance(Duration::from_secs(100 * 24 * 60 * 60));
    assert_problem(&server.send(&request()), 409, "outcome_unknown", false);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_key_with_the_hold_policy_is_held_from_its_lease_expiry_until_the_late_response() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(29));
    assert_problem(&server.send(&request()), 409, "in_flight", true);
    app.advance(Duration::from_secs(1));
    assert_eq!(assert_problem(&server.send(&request()), 409, "outcome_unknown", false), None);
    app.probe.release_all();
    let first = first.response();
    assert_eq!(first.status, 201);
    server.send(&request()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

/// Makes the handler panic, so that the key is held, and returns what an operator reads of it.
fn hold_key(app: &TestApp, server: &Server) -> Snapshot {
    assert_problem(&server.send(&request()), 500, "handler_failed", false);
    assert_problem(&server.send(&request()), 409, "outcome_unknown", false);
    let id = TestApp::id("alice", "POST /hold_if_abandoned", "k");
    let found = wait_for("the record", app.idempotency.find_record(&id)).unwrap().unwrap();
    assert!(found.record.is_held(found.at));
    found
}

fn resolve(app: &TestApp, seen: &Snapshot, response: Option<&EncodedRecording>) -> ResolveOutcome {
    let id = TestApp::id("alice", "POST /hold_if_abandoned", "k");
    let actor = Actor::new("ada", "as the bank's books say");
    wait_for("the resolution", app.idempotency.resolve(&id, seen, response, &actor)).unwrap()
}

fn client_view(response: &ClientResponse) -> (u16, &str, Option<&str>, bool) {
    (response.status, response.text(), response.header("location"), response.is_replay())
}

#[test]
fn a_held_key_that_is_resolved_as_done_replays_the_operators_response() {
    let app = first_run_panics();
    let server = app.serve(all);
    let seen = hold_key(&app, &server);
    let response = Recording::new(
        201,
        vec![(Bytes::from_static(b"location"), Bytes::from_static(b"/payments/7"))],
        RecordedBody::Whole(Bytes::from_static(b"resolved")),
    )
    .encode();
    assert_eq!(resolve(&app, &seen, Some(&response)), ResolveOutcome::Resolved);
    for _ in 0..2 {
        assert_eq!(
            client_view(&server.send(&request())),
            (201, "resolved", Some("/payments/7"), true)
        );
    }
    assert_problem(&server.send(&request().body("other")), 422, "key_reused", false);
    assert_eq!(resolve(&app, &seen, None), ResolveOutcome::Conflict, "a resolution is final");
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_held_key_can_be_resolved_with_an_http_response() {
    let app = first_run_panics();
    let server = app.serve(all);
    let seen = hold_key(&app, &server);
    let mut response = HttpResponse::Created();
    response.insert_header(("location", "/payments/7")).insert_header(("set-cookie", "a=b"));
    let recorded =
        wait_for("the recording", recording::from_response(response.body("resolved"))).unwrap();
    assert_eq!(resolve(&app, &seen, Some(&recorded)), ResolveOutcome::Resolved);
    let replay = server.send(&request());
    assert_eq!(client_view(&replay), (201, "resolved", Some("/payments/7"), true));
    assert_eq!(replay.header("set-cookie"), None);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_held_key_that_is_released_runs_again() {
    let app = first_run_panics();
    let server = app.serve(all);
    let seen = hold_key(&app, &server);
    assert_eq!(resolve(&app, &seen, None), ResolveOutcome::Resolved);
    let second = server.send(&request());
    assert_eq!(client_view(&second), (201, "run 2", None, false));
    server.send(&request()).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_key_that_is_not_held_cannot_be_resolved() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    let seen = app.record("alice", "POST /hold_if_abandoned", "k").unwrap();
    assert_eq!(resolve(&app, &seen, None), ResolveOutcome::Conflict);
    app.probe.release_all();
    let first = first.response();
    assert_eq!(resolve(&app, &seen, None), ResolveOutcome::Conflict);
    server.send(&request()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn the_result_of_a_job_is_no_response() {
    let app = first_run_panics();
    let server = app.serve(all);
    let seen = hold_key(&app, &server);
    let result = recording_of(Ok::<_, &()>(&7)).unwrap();
    assert_eq!(resolve(&app, &seen, Some(&result)), ResolveOutcome::Resolved);
    assert_problem(&server.send(&request()), 500, "record_unreadable", false);
    assert_eq!(app.probe.runs(), 1, "the handler ran again");
}

#[test]
fn a_late_response_does_not_replace_the_operators_resolution() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(30));
    assert_problem(&server.send(&request()), 409, "outcome_unknown", false);
    let seen = app.record("alice", "POST /hold_if_abandoned", "k").unwrap();
    let response =
        Recording::new(202, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"resolved")));
    let response = response.encode();
    assert_eq!(resolve(&app, &seen, Some(&response)), ResolveOutcome::Resolved);
    app.probe.release_all();
    assert_eq!(client_view(&first.response()), (202, "resolved", None, true));
    assert_eq!(client_view(&server.send(&request())), (202, "resolved", None, true));
    assert_eq!(app.probe.runs(), 1);
}
