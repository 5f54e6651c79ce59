//! Attempts that end without an outcome: panics, held keys, and how they are resolved.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use bytes::Bytes;
use idempotent_actix::{
    Operation,
    recording::{self, RecordedBody, Recording},
    store::{ResolveOutcome, Snapshot},
};
use test_support::{ClientResponse, Probe, Request, Server, World, wait_for};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

/// A fixture whose first run panics.
fn breaking() -> World {
    World::responding(|run| {
        assert!(run > 1, "a secret of the handler");
        HttpResponse::Created().body(format!("run {run}"))
    })
}

fn careful() -> Request {
    Request::post("/careful").user("alice").key("k").body("b")
}

#[idempotent_actix::idempotent(scope = "user")]
#[post("/reporting")]
async fn reporting(user: User, operation: Operation, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{} attempt {} {}", user.0, operation.attempt(), operation.recovering()));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(reporting);
    all(config);
}

#[test]
fn after_a_panic_the_client_gets_500_and_the_retry_recovers() {
    let world = breaking();
    let server = world.serve(services);
    let request = Request::post("/reporting").user("alice").key("k");
    let broken = server.send(&request);
    assert_problem(&broken, 500, "handler_failed", true);
    assert!(!broken.text().contains("secret"), "{}", broken.text());
    let second = server.send(&request);
    assert_eq!((second.status, second.text(), second.is_replay()), (201, "run 2", false));
    server.send(&request).assert_replays(&second);
    assert_eq!(world.probe.notes(), ["alice attempt 1 false", "alice attempt 2 true"]);
}

#[test]
fn after_a_panic_a_careful_key_is_held() {
    let world = breaking();
    let server = world.serve(all);
    assert_problem(&server.send(&careful()), 500, "handler_failed", false);
    for _ in 0..2 {
        let refused = server.send(&careful());
        assert_eq!(assert_problem(&refused, 409, "outcome_unknown", false), None);
        assert_nothing_leaks(&refused);
    }
    world.pass(Duration::from_secs(100 * 24 * 60 * 60));
    assert_problem(&server.send(&careful()), 409, "outcome_unknown", false);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_careful_key_whose_lease_expired_is_held_until_its_late_response() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&careful());
    world.probe.await_runs(1);
    world.pass(Duration::from_secs(29));
    assert_problem(&server.send(&careful()), 409, "in_flight", true);
    world.pass(Duration::from_secs(1));
    assert_eq!(assert_problem(&server.send(&careful()), 409, "outcome_unknown", false), None);
    world.probe.release_all();
    let first = first.response();
    assert_eq!(first.status, 201);
    server.send(&careful()).assert_replays(&first);
    assert_eq!(world.probe.runs(), 1);
}

/// A held key, as an operator finds it.
fn held(world: &World, server: &Server) -> Snapshot {
    assert_problem(&server.send(&careful()), 500, "handler_failed", false);
    assert_problem(&server.send(&careful()), 409, "outcome_unknown", false);
    let id = World::id("alice", "POST /careful", "k");
    let found = wait_for("the record", world.idempotency.look_up(&id)).unwrap().unwrap();
    assert!(found.record.is_held(found.at));
    found
}

fn resolve(world: &World, seen: &Snapshot, response: Option<&Recording>) -> ResolveOutcome {
    let id = World::id("alice", "POST /careful", "k");
    wait_for("the resolution", world.idempotency.resolve(&id, seen, response)).unwrap()
}

fn seen_by_client(response: &ClientResponse) -> (u16, &str, Option<&str>, bool) {
    (response.status, response.text(), response.header("location"), response.is_replay())
}

#[test]
fn a_held_key_that_is_resolved_as_done_replays_the_operators_response() {
    let world = breaking();
    let server = world.serve(all);
    let seen = held(&world, &server);
    let response = Recording::new(
        201,
        vec![(Bytes::from_static(b"location"), Bytes::from_static(b"/payments/7"))],
        RecordedBody::Whole(Bytes::from_static(b"resolved")),
    );
    assert_eq!(resolve(&world, &seen, Some(&response)), ResolveOutcome::Resolved);
    for _ in 0..2 {
        assert_eq!(
            seen_by_client(&server.send(&careful())),
            (201, "resolved", Some("/payments/7"), true)
        );
    }
    assert_problem(&server.send(&careful().body("other")), 422, "key_reused", false);
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Conflict, "it is resolved already");
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_held_key_can_be_resolved_with_a_response() {
    let world = breaking();
    let server = world.serve(all);
    let seen = held(&world, &server);
    let mut response = HttpResponse::Created();
    response.insert_header(("location", "/payments/7")).insert_header(("set-cookie", "a=b"));
    let recorded =
        wait_for("the recording", recording::from_response(response.body("resolved"))).unwrap();
    assert_eq!(resolve(&world, &seen, Some(&recorded)), ResolveOutcome::Resolved);
    let replay = server.send(&careful());
    assert_eq!(seen_by_client(&replay), (201, "resolved", Some("/payments/7"), true));
    assert_eq!(replay.header("set-cookie"), None);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_held_key_that_is_released_runs_again() {
    let world = breaking();
    let server = world.serve(all);
    let seen = held(&world, &server);
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Resolved);
    let second = server.send(&careful());
    assert_eq!(seen_by_client(&second), (201, "run 2", None, false));
    server.send(&careful()).assert_replays(&second);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_resolution_does_nothing_to_a_key_that_is_not_held() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&careful());
    world.probe.await_runs(1);
    let seen = world.record("alice", "POST /careful", "k").unwrap();
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Conflict);
    world.probe.release_all();
    let first = first.response();
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Conflict);
    server.send(&careful()).assert_replays(&first);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_late_response_does_not_replace_the_operators_resolution() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&careful());
    world.probe.await_runs(1);
    world.pass(Duration::from_secs(30));
    assert_problem(&server.send(&careful()), 409, "outcome_unknown", false);
    let seen = world.record("alice", "POST /careful", "k").unwrap();
    let response =
        Recording::new(202, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"resolved")));
    assert_eq!(resolve(&world, &seen, Some(&response)), ResolveOutcome::Resolved);
    world.probe.release_all();
    assert_eq!(seen_by_client(&first.response()), (202, "resolved", None, true));
    assert_eq!(seen_by_client(&server.send(&careful())), (202, "resolved", None, true));
    assert_eq!(world.probe.runs(), 1);
}
