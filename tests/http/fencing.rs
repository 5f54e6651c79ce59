//! An attempt that was taken over never returns its own response.
//!
//! The store's clock stands still until a test advances it. Renewals happen every 10 s of real
//! time, so none runs during these tests.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Disposition, idempotent};
use test_support::{Fault, Op, Pending, Probe, Request, Server, TestApp};

use super::handlers::{User, all, assert_problem};

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

/// Lets a second attempt take over from the first. Both are in their handlers afterwards.
fn take_over(app: &TestApp, server: &Server, request: &Request) -> (Pending, Pending) {
    app.probe.hold();
    let first = server.begin(request);
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(30));
    let second = server.begin(request);
    app.probe.await_runs(2);
    assert_eq!(app.store.calls(Op::Renew), 0, "the lease was renewed");
    (first, second)
}

#[test]
fn a_fenced_attempt_gets_its_successors_recorded_response() {
    let app = TestApp::new();
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(2);
    let second = second.response();
    assert_eq!((second.status, second.json()["secret of run"].as_u64()), (201, Some(2)));
    app.probe.release(1);
    first.response().assert_replays(&second);
    server.send(&pay()).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_fenced_attempt_gets_409_while_its_successor_is_in_flight() {
    let app = TestApp::new();
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(1);
    let first = first.response();
    let seconds = assert_problem(&first, 409, "in_flight", true);
    assert!(seconds.is_some_and(|seconds| (1..=8).contains(&seconds)), "{seconds:?}");
    app.probe.release(2);
    let second = second.response();
    assert_eq!(second.json()["secret of run"], 2);
    server.send(&pay()).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_fenced_attempt_gets_409_when_its_successor_has_released_the_key() {
    let app = TestApp::responding(|run| match run {
        1 => HttpResponse::Created().body("late"),
        _ => HttpResponse::ServiceUnavailable().finish(),
    });
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(2);
    assert_eq!(second.response().status, 503);
    app.probe.release(1);
    assert_problem(&first.response(), 409, "in_flight", true);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_fenced_attempt_that_failed_gets_its_successors_response() {
    let app = TestApp::responding(|run| match run {
        1 => HttpResponse::InternalServerError().body("mine"),
        _ => HttpResponse::Created().body("the successor's"),
    });
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(2);
    let second = second.response();
    app.probe.release(1);
    first.response().assert_replays(&second);
    server.send(&pay()).assert_replays(&second);
}

#[test]
fn a_fenced_attempt_that_panics_gets_its_successors_response() {
    let app = TestApp::responding(|run| {
        assert!(run > 1, "the handler panics");
        HttpResponse::Created().body("the successor's")
    });
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(2);
    let second = second.response();
    app.probe.release(1);
    first.response().assert_replays(&second);
}

#[test]
fn a_fenced_attempt_whose_successor_cannot_be_read_gets_409() {
    let app = TestApp::new();
    let server = app.serve(all);
    let (first, second) = take_over(&app, &server, &pay());
    app.probe.release(2);
    assert_eq!(second.response().status, 201);
    app.store.fail(Op::LookUp, 1, Fault::Before);
    app.probe.release(1);
    assert_problem(&first.response(), 409, "in_flight", true);
}

/// The ttl passes while the handler runs, and a different request takes the key. The first client
/// must not learn that its request was not run.
#[test]
fn a_handler_that_ran_and_lost_its_key_to_a_different_request_has_an_unknown_outcome() {
    for end in ["recorded", "not recorded", "panic"] {
        let app = TestApp::responding(move |run| match end {
            "not recorded" if run == 1 => HttpResponse::ServiceUnavailable().finish(),
            "panic" => {
                assert!(run > 1, "the handler panics");
                HttpResponse::Created().finish()
            }
            _ => HttpResponse::Created().finish(),
        });
        let server = app.serve(all);
        app.probe.hold();
        let first = server.begin(&pay());
        app.probe.await_runs(1);
        app.advance(Duration::from_secs(24 * 3600));
        let other = server.begin(&pay().body("other"));
        app.probe.await_runs(2);
        app.probe.release(2);
        assert_eq!(other.response().status, 201);
        app.probe.release(1);
        let first = first.response();
        assert_problem(&first, 409, "outcome_unknown", false);
        let detail = "This request may have been carried out, but its response is not recorded, \
                      and its key now belongs to a different request. Check what this request did \
                      before you send it with a new key.";
        assert_eq!(first.json()["detail"], detail);
        // The retry itself was not run.
        assert_problem(&server.send(&pay()), 422, "key_reused", false);
        assert_eq!(app.probe.runs(), 2, "{end}");
    }
}

#[test]
fn a_late_attempt_that_was_not_taken_over_completes() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&pay());
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(3600));
    app.probe.release_all();
    let first = first.response();
    assert_eq!(first.status, 201);
    server.send(&pay()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[idempotent(scope = "user", lease = "120ms")]
#[post("/renewed")]
async fn renewed(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[test]
fn a_handler_that_outlasts_its_lease_keeps_it_by_renewal() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(renewed);
    });
    let request = Request::post("/renewed").user("alice").key("k");
    app.probe.hold();
    let first = server.begin(&request);
    app.probe.await_runs(1);
    for _ in 0..5 {
        // Only this test moves the clock, so a renewal that ends after the move leaves the full
        // lease.
        app.advance(Duration::from_millis(100));
        app.store.await_calls(Op::Renew, app.store.calls(Op::Renew) + 2);
        assert_problem(&server.send(&request), 409, "in_flight", true);
    }
    app.probe.release_all();
    let first = first.response();
    server.send(&request).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[idempotent(scope = "user")]
#[post("/unsure")]
async fn unsure(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    let mut response = probe.run().await;
    if probe.runs() == 1 {
        response.extensions_mut().insert(Disposition::Unknown);
    }
    response
}

#[test]
fn a_fenced_attempt_cannot_hold_its_successors_key() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(unsure);
    });
    let request = Request::post("/unsure").user("alice").key("k");
    let (first, second) = take_over(&app, &server, &request);
    app.probe.release(1);
    assert_problem(&first.response(), 409, "in_flight", true);
    app.probe.release(2);
    let second = second.response();
    server.send(&request).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}
