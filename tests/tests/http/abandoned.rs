//! Attempts that end without an outcome: panics, held keys, and how they are resolved.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use bytes::Bytes;
use idempotent_actix::{
    Operation, RecordedBody, Recording,
    store::{ResolveOutcome, Snapshot},
};
use tests::{Answer, Probe, Request, Server, World, wait_for};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

/// A world whose first run breaks down.
fn breaking() -> World {
    World::answering(|run| {
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
        let told = server.send(&careful());
        assert_eq!(assert_problem(&told, 409, "outcome_unknown", false), None);
        assert_nothing_leaks(&told);
    }
    world.pass(Duration::from_secs(100 * 24 * 60 * 60));
    assert_problem(&server.send(&careful()), 409, "outcome_unknown", false);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_careful_key_whose_lease_is_over_is_held_until_its_late_answer_comes() {
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
    let first = first.answer();
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

fn resolve(world: &World, seen: &Snapshot, answer: Option<&Recording>) -> ResolveOutcome {
    let id = World::id("alice", "POST /careful", "k");
    wait_for("the resolution", world.idempotency.resolve(&id, seen, answer)).unwrap()
}

fn told(answer: &Answer) -> (u16, &str, Option<&str>, bool) {
    (answer.status, answer.text(), answer.header("location"), answer.is_replay())
}

#[test]
fn a_held_key_that_is_resolved_as_done_replays_what_the_operator_says() {
    let world = breaking();
    let server = world.serve(all);
    let seen = held(&world, &server);
    let answer = Recording {
        status: 201,
        headers: vec![(Bytes::from_static(b"location"), Bytes::from_static(b"/payments/7"))],
        body: RecordedBody::Whole(Bytes::from_static(b"resolved")),
    };
    assert_eq!(resolve(&world, &seen, Some(&answer)), ResolveOutcome::Resolved);
    for _ in 0..2 {
        assert_eq!(told(&server.send(&careful())), (201, "resolved", Some("/payments/7"), true));
    }
    assert_problem(&server.send(&careful().body("other")), 422, "key_reused", false);
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Conflict, "it is resolved already");
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_held_key_that_is_released_runs_again() {
    let world = breaking();
    let server = world.serve(all);
    let seen = held(&world, &server);
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Resolved);
    let second = server.send(&careful());
    assert_eq!(told(&second), (201, "run 2", None, false));
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
    let first = first.answer();
    assert_eq!(resolve(&world, &seen, None), ResolveOutcome::Conflict);
    server.send(&careful()).assert_replays(&first);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn a_late_answer_does_not_replace_what_the_operator_said() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&careful());
    world.probe.await_runs(1);
    world.pass(Duration::from_secs(30));
    assert_problem(&server.send(&careful()), 409, "outcome_unknown", false);
    let seen = world.record("alice", "POST /careful", "k").unwrap();
    let answer =
        Recording { status: 202, headers: Vec::new(), body: RecordedBody::Whole(Bytes::from_static(b"resolved")) };
    assert_eq!(resolve(&world, &seen, Some(&answer)), ResolveOutcome::Resolved);
    world.probe.release_all();
    assert_eq!(told(&first.answer()), (202, "resolved", None, true));
    assert_eq!(told(&server.send(&careful())), (202, "resolved", None, true));
    assert_eq!(world.probe.runs(), 1);
}
