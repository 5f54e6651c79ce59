//! Defaults of the builder for what an attribute leaves out.

use std::{error::Error, time::Duration};

use actix_web::{
    App, HttpResponse, post,
    web::{self, Data},
};
use idempotent_actix::{Abandoned, Idempotency, RecordRule, idempotent};
use test_support::{Probe, Request, Server, World, wait_for};

use super::handlers::{User, all, assert_problem};

#[idempotent(scope = "_user", ttl = "90s")]
#[post("/short-lived")]
async fn short_lived(_user: User, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

const MINUTE: Duration = Duration::from_secs(60);

fn send(path: &str) -> Request {
    Request::post(path).user("alice").key("k").body("b")
}

/// The entry of a handler in the published specification.
fn operation(world: &World, handler: &str) -> serde_json::Value {
    let specification = world.idempotency.specification();
    let operations = specification["operations"].as_array().unwrap();
    operations.iter().find(|operation| operation["handler"] == handler).unwrap().clone()
}

#[test]
fn the_specification_shows_the_values_that_apply() {
    let world = World::set(|builder| {
        let builder = builder.ttl(10 * MINUTE).lease(MINUTE).wait(MINUTE / 2);
        builder.record(RecordRule::Success).abandoned(Abandoned::Hold)
    });
    let pay = operation(&world, "pay");
    assert_eq!((&pay["ttl_seconds"], &pay["lease_seconds"]), (&600.0.into(), &60.0.into()));
    assert_eq!((&pay["wait_seconds"], &pay["record"]), (&30.0.into(), &"success".into()));
    assert_eq!(pay["abandoned"], "hold");
    let brief = operation(&world, "brief");
    assert_eq!((&brief["ttl_seconds"], &brief["lease_seconds"]), (&60.0.into(), &10.0.into()));
    assert_eq!(operation(&world, "everything")["record"], "all");
    assert_eq!(operation(&world, "impatient")["wait_seconds"], 0.15);
}

#[test]
fn a_response_is_replayed_for_the_ttl_of_the_builder() {
    let world = World::set(|builder| builder.ttl(10 * MINUTE));
    let server = world.serve(all);
    let first = server.send(&send("/payments"));
    world.pass(9 * MINUTE);
    server.send(&send("/payments")).assert_replays(&first);
    world.pass(2 * MINUTE);
    assert!(!server.send(&send("/payments")).is_replay());
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn settings_that_do_not_fit_are_found_at_the_start_and_refuse_requests() {
    let world = World::set(|builder| builder.lease(MINUTE));
    let found = wait_for("the check", world.idempotency.check()).unwrap_err();
    let reason = found.source().unwrap().to_string();
    assert!(reason.contains("`lease`") && reason.contains("set by the builder"), "{reason}");
    assert!(reason.contains("`ttl`") && reason.contains("set by the attribute"), "{reason}");
    let server = world.serve(|config: &mut web::ServiceConfig| {
        config.configure(all).service(short_lived);
    });
    assert_problem(&server.send(&send("/short-lived")), 500, "misconfigured", false);
    // Its attribute has a lease as well.
    assert_eq!((server.send(&send("/brief")).status, world.probe.runs()), (201, 1));
    let world = World::set(|builder| builder.ttl(MINUTE / 2));
    let server = world.serve(all);
    assert_problem(&server.send(&send("/payments")), 500, "misconfigured", false);
    assert_eq!(world.probe.runs(), 0);
}

#[test]
fn the_specification_is_served_without_a_handler_of_the_application() {
    let world = World::new();
    let route = |config: &mut web::ServiceConfig| {
        config.route("/idempotency", web::get().to(Idempotency::specification_handler));
    };
    let served = world.serve(route).send(&Request::new("GET", "/idempotency"));
    assert_eq!((served.status, served.json()), (200, world.idempotency.specification()));
    let without = Server::start(move || App::new().configure(route));
    assert_problem(
        &without.send(&Request::new("GET", "/idempotency")),
        500,
        "misconfigured",
        false,
    );
}
