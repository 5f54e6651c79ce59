//! Defaults that the builder sets for keys that an attribute omits.

use std::{error::Error, time::Duration};

use actix_web::{
    App, HttpResponse, post,
    web::{self, Data},
};
use idempotent_actix::{Idempotency, OnAbandon, RecordRule, idempotent};
use test_support::{Probe, Request, Server, TestApp, wait_for};

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
fn operation(app: &TestApp, handler: &str) -> serde_json::Value {
    let specification = app.idempotency.specification();
    let operations = specification["operations"].as_array().unwrap();
    operations.iter().find(|operation| operation["handler"] == handler).unwrap().clone()
}

#[test]
fn the_specification_shows_the_values_that_apply() {
    let app = TestApp::set(|builder| {
        let builder = builder.ttl(10 * MINUTE).lease(MINUTE).wait(MINUTE / 2);
        builder.record(RecordRule::Success).abandoned(OnAbandon::Hold)
    });
    let pay = operation(&app, "pay");
    assert_eq!((&pay["ttl_seconds"], &pay["lease_seconds"]), (&600.0.into(), &60.0.into()));
    assert_eq!((&pay["wait_seconds"], &pay["record"]), (&30.0.into(), &"success".into()));
    assert_eq!(pay["abandoned"], "hold");
    let short_ttl = operation(&app, "short_ttl");
    assert_eq!(
        (&short_ttl["ttl_seconds"], &short_ttl["lease_seconds"]),
        (&60.0.into(), &10.0.into())
    );
    assert_eq!(operation(&app, "record_all")["record"], "all");
    assert_eq!(operation(&app, "wait_150ms")["wait_seconds"], 0.15);
}

#[test]
fn a_response_is_replayed_for_the_ttl_of_the_builder() {
    let app = TestApp::set(|builder| builder.ttl(10 * MINUTE));
    let server = app.serve(all);
    let first = server.send(&send("/payments"));
    app.advance(9 * MINUTE);
    server.send(&send("/payments")).assert_replays(&first);
    app.advance(2 * MINUTE);
    assert!(!server.send(&send("/payments")).is_replay());
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn contradictory_settings_fail_the_check_and_each_request() {
    let app = TestApp::set(|builder| builder.lease(MINUTE));
    let found = wait_for("the check", app.idempotency.check()).unwrap_err();
    let reason = found.source().unwrap().to_string();
    assert!(reason.contains("`lease`") && reason.contains("set by the builder"), "{reason}");
    assert!(reason.contains("`ttl`") && reason.contains("set by the attribute"), "{reason}");
    let server = app.serve(|config: &mut web::ServiceConfig| {
        config.configure(all).service(short_lived);
    });
    assert_problem(&server.send(&send("/short-lived")), 500, "misconfigured", false);
    // This handler's attribute sets both, so it is not affected.
    assert_eq!((server.send(&send("/short_ttl")).status, app.probe.runs()), (201, 1));
    let app = TestApp::set(|builder| builder.ttl(MINUTE / 2));
    let server = app.serve(all);
    assert_problem(&server.send(&send("/payments")), 500, "misconfigured", false);
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn the_specification_is_served_without_a_handler_of_the_application() {
    let app = TestApp::new();
    let route = |config: &mut web::ServiceConfig| {
        config.route("/idempotency", web::get().to(Idempotency::specification_handler));
    };
    let served = app.serve(route).send(&Request::new("GET", "/idempotency"));
    assert_eq!((served.status, served.json()), (200, app.idempotency.specification()));
    let without = Server::start(move || App::new().configure(route));
    assert_problem(
        &without.send(&Request::new("GET", "/idempotency")),
        500,
        "misconfigured",
        false,
    );
}
