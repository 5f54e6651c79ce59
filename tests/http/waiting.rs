//! A duplicate that waits for the first attempt's response.

use std::time::{Duration, Instant};

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use test_support::{Op, Pending, Probe, Request, World};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

fn patient() -> Request {
    Request::post("/patient").user("alice").key("k").body("b")
}

#[test]
fn waiting_requests_get_the_first_response_once_it_is_recorded() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&patient());
    world.probe.await_runs(1);
    let waiting: Vec<_> = (0..5).map(|_| server.begin(&patient())).collect();
    // The first request's claim, and two calls for each waiting request: one when it arrived and
    // one when it joined the waiters.
    world.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    assert!(waiting.iter().all(|waiting| !waiting.has_begun()));
    world.probe.release_all();
    let first = first.response();
    for waiting in waiting {
        waiting.response().assert_replays(&first);
    }
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_wait_that_times_out_ends_with_409() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let impatient = Request::post("/impatient").user("alice").key("k");
    let first = server.begin(&impatient);
    world.probe.await_runs(1);
    let begun = Instant::now();
    let duplicate = server.send(&impatient);
    assert!(begun.elapsed() >= Duration::from_millis(150), "it did not wait");
    let seconds = assert_problem(&duplicate, 409, "in_flight", true);
    assert!(seconds.is_some_and(|seconds| (1..=8).contains(&seconds)), "{seconds:?}");
    assert_nothing_leaks(&duplicate);
    world.probe.release_all();
    assert_eq!((first.response().status, world.probe.runs()), (201, 1));
}

#[test]
fn exactly_one_waiting_request_takes_over_a_released_key() {
    let world = World::responding(|run| match run {
        1 => HttpResponse::ServiceUnavailable().body("try again"),
        run => HttpResponse::Created().body(format!("run {run}")),
    });
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&patient());
    world.probe.await_runs(1);
    let waiting: Vec<_> = (0..5).map(|_| server.begin(&patient())).collect();
    world.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    world.probe.release(1);
    let first = first.response();
    assert_eq!((first.status, first.text()), (503, "try again"));
    world.probe.await_runs(2);
    // Each of the other four has seen that the key is claimed again before the second run ends.
    world.store.await_calls(Op::Claim, world.store.calls(Op::Claim) + waiting.len());
    assert_eq!(world.probe.runs(), 2);
    world.probe.release_all();
    let responses: Vec<_> = waiting.into_iter().map(Pending::response).collect();
    assert!(responses.iter().all(|response| (response.status, response.text()) == (201, "run 2")));
    assert_eq!(responses.iter().filter(|response| !response.is_replay()).count(), 1);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_waiting_request_learns_that_the_key_is_held() {
    let world = World::new();
    let server = world.serve(waiting_and_holding);
    let request = Request::post("/patient-and-careful").user("alice").key("k");
    world.probe.hold();
    let first = server.begin(&request);
    world.probe.await_runs(1);
    let waiting = server.begin(&request);
    world.store.await_calls(Op::Claim, 3);
    world.probe.note("break down");
    world.probe.release_all();
    assert_problem(&first.response(), 500, "handler_failed", false);
    assert_problem(&waiting.response(), 409, "outcome_unknown", false);
    assert_eq!(world.probe.runs(), 1);
}

#[idempotent(scope = "user", wait = "15s", abandoned = "hold")]
#[post("/patient-and-careful")]
async fn patient_and_careful(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    let response = probe.run().await;
    assert!(!probe.notes().contains(&"break down".to_owned()), "the handler breaks down");
    response
}

fn waiting_and_holding(config: &mut ServiceConfig) {
    config.service(patient_and_careful);
}

#[test]
fn a_duplicate_with_another_body_is_refused_without_waiting() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&patient());
    world.probe.await_runs(1);
    assert_problem(&server.send(&patient().body("other")), 422, "key_reused", false);
    world.probe.release_all();
    assert_eq!((first.response().status, world.probe.runs()), (201, 1));
}

#[test]
fn requests_beyond_the_waiting_limit_get_409_at_once() {
    let world = World::set(|builder| builder.waiters_per_key(2));
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&patient());
    world.probe.await_runs(1);
    let waiting = [server.begin(&patient()), server.begin(&patient())];
    world.store.await_calls(Op::Claim, 1 + 2 * waiting.len());
    assert_problem(&server.send(&patient()), 409, "in_flight", true);
    world.probe.release_all();
    let first = first.response();
    for waiting in waiting {
        waiting.response().assert_replays(&first);
    }
    assert_eq!(world.probe.runs(), 1);
}
