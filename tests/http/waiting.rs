//! Duplicates that wait for the first attempt's response.

use std::time::{Duration, Instant};

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use test_support::{Op, Pending, Probe, Request, TestApp};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

fn request() -> Request {
    Request::post("/wait_15s").user("alice").key("k").body("b")
}

#[test]
fn waiting_requests_get_the_first_response_once_it_is_recorded() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    let waiting: Vec<_> = (0..5).map(|_| server.begin(&request())).collect();
    // One claim of the first request, and two of each waiting request: when it arrives, and when it
    // begins to wait.
    app.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    assert!(waiting.iter().all(|waiting| !waiting.response_has_begun()));
    app.probe.release_all();
    let first = first.response();
    for waiting in waiting {
        waiting.response().assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_wait_that_times_out_ends_with_409() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let request = Request::post("/wait_150ms").user("alice").key("k");
    let first = server.begin(&request);
    app.probe.await_runs(1);
    let begun = Instant::now();
    let duplicate = server.send(&request);
    assert!(begun.elapsed() >= Duration::from_millis(150), "the duplicate did not wait");
    let seconds = assert_problem(&duplicate, 409, "in_flight", true);
    assert!(seconds.is_some_and(|seconds| (1..=8).contains(&seconds)), "{seconds:?}");
    assert_nothing_leaks(&duplicate);
    app.probe.release_all();
    assert_eq!((first.response().status, app.probe.runs()), (201, 1));
}

#[test]
fn exactly_one_waiting_request_takes_over_a_released_key() {
    let app = TestApp::responding(|run| match run {
        1 => HttpResponse::ServiceUnavailable().body("try again"),
        run => HttpResponse::Created().body(format!("run {run}")),
    });
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    let waiting: Vec<_> = (0..5).map(|_| server.begin(&request())).collect();
    app.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    app.probe.release(1);
    let first = first.response();
    assert_eq!((first.status, first.text()), (503, "try again"));
    app.probe.await_runs(2);
    // The other four have found the key claimed again before the second run ends.
    app.store.await_calls(Op::Claim, app.store.calls(Op::Claim) + waiting.len());
    assert_eq!(app.probe.runs(), 2);
    app.probe.release_all();
    let responses: Vec<_> = waiting.into_iter().map(Pending::response).collect();
    assert!(responses.iter().all(|response| (response.status, response.text()) == (201, "run 2")));
    assert_eq!(responses.iter().filter(|response| !response.is_replay()).count(), 1);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_waiting_request_learns_that_the_key_is_held() {
    let app = TestApp::new();
    let server = app.serve(waiting_and_holding);
    let request = Request::post("/wait-and-hold").user("alice").key("k");
    app.probe.hold();
    let first = server.begin(&request);
    app.probe.await_runs(1);
    let waiting = server.begin(&request);
    app.store.await_calls(Op::Claim, 3);
    app.probe.note("panic");
    app.probe.release_all();
    assert_problem(&first.response(), 500, "handler_failed", false);
    assert_problem(&waiting.response(), 409, "outcome_unknown", false);
    assert_eq!(app.probe.runs(), 1);
}

#[idempotent(scope = "user", wait = "15s", abandoned = "hold")]
#[post("/wait-and-hold")]
async fn wait_and_hold(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    let response = probe.run().await;
    assert!(!probe.notes().contains(&"panic".to_owned()), "the handler panics");
    response
}

fn waiting_and_holding(config: &mut ServiceConfig) {
    config.service(wait_and_hold);
}

#[test]
fn a_duplicate_with_another_body_is_refused_without_waiting() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    assert_problem(&server.send(&request().body("other")), 422, "key_reused", false);
    app.probe.release_all();
    assert_eq!((first.response().status, app.probe.runs()), (201, 1));
}

#[test]
fn requests_beyond_the_waiting_limit_get_409_at_once() {
    let app = TestApp::set(|builder| builder.waiters_per_key(2));
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request());
    app.probe.await_runs(1);
    let waiting = [server.begin(&request()), server.begin(&request())];
    app.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    assert_problem(&server.send(&request()), 409, "in_flight", true);
    app.probe.release_all();
    let first = first.response();
    for waiting in waiting {
        waiting.response().assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), 1);
}
