//! Limits on operations in flight, in total and per principal, and on the run time of a handler.

use std::time::Duration;

use actix_web::{
    App, HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{
    Idempotency, IdempotencyBuilder, StoreFailurePolicy, idempotent, scope, store::MemoryStore,
};
use test_support::{Op, Probe, Request, Server, TestApp};

use super::handlers::{User, assert_nothing_leaks, assert_problem};

#[idempotent(scope = "user")]
#[post("/payments")]
async fn pay(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "scope::global")]
#[post("/webhook")]
async fn webhook(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "user", timeout = "100ms")]
#[post("/timeout_100ms")]
async fn timeout_100ms(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", timeout = "100ms", abandoned = "hold")]
#[post("/timeout-and-hold")]
async fn timeout_and_hold(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", timeout = "1h")]
#[post("/timeout_1h")]
async fn timeout_1h(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", key = "optional", timeout = "100ms")]
#[post("/optional")]
async fn optional(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config
        .service(pay)
        .service(webhook)
        .service(timeout_100ms)
        .service(timeout_and_hold)
        .service(timeout_1h)
        .service(optional);
}

fn request(path: &str, user: &str, key: &str) -> Request {
    Request::post(path).user(user).key(key).body("b")
}

fn serve(app: &TestApp) -> Server {
    app.serve(services)
}

#[test]
fn a_principal_at_its_limit_is_refused_and_others_continue() {
    let app = TestApp::set(|builder| builder.operations_per_principal(2));
    let server = serve(&app);
    app.probe.hold();
    let first = server.begin(&request("/payments", "alice", "k1"));
    let second = server.begin(&request("/payments", "alice", "k2"));
    app.probe.await_runs(2);
    let refused = server.send(&request("/payments", "alice", "k3"));
    assert!(assert_problem(&refused, 429, "overloaded", true).is_some());
    assert_nothing_leaks(&refused);
    let other = server.begin(&request("/payments", "bob", "k3"));
    app.probe.await_runs(3);
    app.probe.release_all();
    assert_eq!([first, second, other].map(|pending| pending.response().status), [201; 3]);
    assert_eq!(
        server.send(&request("/payments", "alice", "k3")).status,
        201,
        "the refused key was not claimed"
    );
}

#[test]
fn at_the_total_limit_every_principal_is_refused() {
    let app = TestApp::set(|builder| builder.operations_in_flight(2));
    let server = serve(&app);
    app.probe.hold();
    let running = ["alice", "bob"].map(|user| server.begin(&request("/payments", user, "k")));
    app.probe.await_runs(2);
    let refused = server.send(&request("/payments", "carol", "k"));
    assert!(assert_problem(&refused, 503, "overloaded", true).is_some());
    app.probe.release_all();
    assert_eq!(running.map(|pending| pending.response().status), [201; 2]);
    assert_eq!(server.send(&request("/payments", "carol", "k")).status, 201);
}

/// All clients share the global scope, so a limit per principal would limit all of them together.
#[test]
fn the_global_scope_is_limited_in_total_only() {
    let app = TestApp::set(|builder| builder.operations_per_principal(1).operations_in_flight(3));
    let server = serve(&app);
    app.probe.hold();
    let running = ["k1", "k2", "k3"].map(|key| server.begin(&request("/webhook", "", key)));
    app.probe.await_runs(3);
    assert_problem(&server.send(&request("/webhook", "", "k4")), 503, "overloaded", true);
    app.probe.release_all();
    assert_eq!(running.map(|pending| pending.response().status), [201; 3]);
}

/// A client that disconnects after each request cannot exceed its limit.
#[test]
fn operations_whose_client_has_disconnected_are_counted() {
    let app = TestApp::set(|builder| builder.operations_per_principal(5));
    let server = serve(&app);
    app.probe.hold();
    for key in 0..5 {
        let pending = server.begin(&request("/payments", "alice", &format!("k{key}")));
        app.probe.await_runs(key + 1);
        drop(pending);
    }
    for key in 5..10 {
        let refused = server.send(&request("/payments", "alice", &format!("k{key}")));
        assert_problem(&refused, 429, "overloaded", true);
    }
    assert_eq!(app.probe.runs(), 5);
}

#[test]
fn a_handler_that_exceeds_its_time_limit_is_abandoned_and_runs_again() {
    let app = TestApp::new();
    let server = serve(&app);
    app.probe.hold();
    let late = server.send(&request("/timeout_100ms", "alice", "k"));
    assert!(assert_problem(&late, 503, "handler_timed_out", true).is_some());
    app.probe.release_all();
    let second = server.send(&request("/timeout_100ms", "alice", "k"));
    assert_eq!((second.status, second.is_replay(), app.probe.runs()), (201, false, 2));
    server.send(&request("/timeout_100ms", "alice", "k")).assert_replays(&second);
}

#[test]
fn with_the_hold_policy_a_handler_that_exceeds_its_time_limit_leaves_its_key_held() {
    let app = TestApp::new();
    let server = serve(&app);
    app.probe.hold();
    let late = server.send(&request("/timeout-and-hold", "alice", "k"));
    assert_eq!(assert_problem(&late, 500, "handler_timed_out", false), None);
    app.probe.release_all();
    let next = server.send(&request("/timeout-and-hold", "alice", "k"));
    assert_problem(&next, 409, "outcome_unknown", false);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn the_builders_time_limit_applies_where_the_attribute_has_none() {
    let app = TestApp::set(|builder| builder.timeout(Duration::from_millis(100)));
    let server = serve(&app);
    app.probe.hold();
    assert_problem(
        &server.send(&request("/payments", "alice", "k")),
        503,
        "handler_timed_out",
        true,
    );
    let running = server.begin(&request("/timeout_1h", "alice", "k"));
    app.probe.await_runs(2);
    assert_problem(
        &server.send(&request("/payments", "alice", "other")),
        503,
        "handler_timed_out",
        true,
    );
    app.probe.release_all();
    assert_eq!(running.response().status, 201, "the attribute's limit applies");
    let specification = app.idempotency.specification();
    let operations = specification["operations"].as_array().unwrap();
    let limit = |handler: &str| {
        let operation = operations.iter().find(|operation| {
            operation["handler"] == handler
                && operation["routes"][0]["path"] == format!("/{handler}")
        });
        operation.unwrap()["timeout_seconds"].as_f64()
    };
    assert_eq!(
        (limit("timeout_1h"), limit("webhook"), limit("timeout_100ms")),
        (Some(3600.0), Some(0.1), Some(0.1))
    );
}

#[test]
fn a_run_without_a_key_has_the_same_time_limit() {
    let app = TestApp::new();
    let server = serve(&app);
    app.probe.hold();
    let late = server.send(&Request::post("/optional").user("alice"));
    assert_problem(&late, 503, "handler_timed_out", false);
}

/// The memory store limits the share of a principal. Its refusal is not a failure, so nothing runs
/// unguarded.
#[test]
fn a_principal_that_has_used_its_share_of_the_store_is_refused() {
    let probe = Probe::new();
    let store = MemoryStore::new().max_records(10).max_share(2, usize::MAX);
    let idempotency =
        Idempotency::builder(store).when_store_fails(StoreFailurePolicy::RunUnguarded).build();
    let (data, handle) = (Data::new(probe.clone()), idempotency);
    let server = Server::start(move || {
        App::new().app_data(handle.clone()).app_data(data.clone()).configure(services)
    });
    let send =
        |user: &str, key: usize| server.send(&request("/payments", user, &format!("k{key}")));
    assert_eq!((0..5).map(|key| send("mallory", key).status).collect::<Vec<_>>(), [201; 5]);
    assert!(assert_problem(&send("mallory", 5), 429, "overloaded", true).is_some());
    assert_eq!([0, 1].map(|key| send("alice", key).status), [201; 2]);
    assert!(send("mallory", 0).is_replay());
    assert_eq!(probe.runs(), 7);
}

/// Only requests that would run are refused; records are still looked up.
#[test]
fn at_the_limit_duplicates_still_get_a_replay_a_conflict_or_a_mismatch() {
    for set in [
        |builder: IdempotencyBuilder| builder.operations_per_principal(1),
        |builder: IdempotencyBuilder| builder.operations_in_flight(1),
    ] {
        let app = TestApp::set(set);
        let server = serve(&app);
        let done = server.send(&request("/payments", "alice", "done"));
        app.probe.hold();
        let running = server.begin(&request("/payments", "alice", "running"));
        app.probe.await_runs(2);
        server.send(&request("/payments", "alice", "done")).assert_replays(&done);
        assert_problem(
            &server.send(&request("/payments", "alice", "running")),
            409,
            "in_flight",
            true,
        );
        for key in ["done", "running"] {
            let other = request("/payments", "alice", key).body("other");
            assert_problem(&server.send(&other), 422, "key_reused", false);
        }
        let refused = server.send(&request("/payments", "alice", "new"));
        assert_eq!(refused.problem().1, "overloaded");
        app.probe.release_all();
        assert_eq!(running.response().status, 201);
        assert_eq!(app.probe.runs(), 2);
    }
}

#[test]
fn at_the_limit_concurrent_look_ups_are_limited_too() {
    let app = TestApp::set(|builder| builder.operations_per_principal(1));
    let server = serve(&app);
    app.probe.hold();
    let running = server.begin(&request("/payments", "alice", "k"));
    app.probe.await_runs(1);
    app.store.block(Some(Op::LookUp));
    let [one, other] = [(); 2].map(|()| server.begin(&request("/payments", "alice", "k")));
    while !one.response_has_begun() && !other.response_has_begun() {
        std::thread::yield_now();
    }
    app.store.block(None);
    let mut problems = [one, other].map(|pending| pending.response().problem());
    problems.sort();
    assert_eq!(problems, [(409, "in_flight".to_owned()), (429, "overloaded".to_owned())]);
    app.probe.release_all();
    assert_eq!(running.response().status, 201);
}
