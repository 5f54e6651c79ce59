//! Lookups of keys, and polling for the end of an operation.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{Idempotency, Operation, idempotent, scope};
use test_support::{ClientResponse, Fault, Op, Probe, Request, Server, TestApp, log};

use super::handlers::{User, assert_problem, pay};

#[idempotent(scope = "_user", in_flight = "poll")]
#[post("/exports")]
async fn export(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
) -> actix_web::Result<HttpResponse> {
    operation.set_reference("ex_1").await?;
    operation.progress("3 of 10").await?;
    Ok(probe.run().await)
}

#[idempotent(scope = "scope::bearer_token", name = "transfers", abandoned = "hold")]
#[post("/transfers")]
async fn transfer(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config
        .service(Idempotency::lookup("/idempotency/keys/{key}"))
        .service(web::scope("/v1").service(export))
        .service(pay)
        .service(transfer);
}

const EXPORTS: &str = "/idempotency/keys/k?operation=POST%20%2Fv1%2Fexports";

fn look_up(server: &Server, target: &str, user: &str) -> ClientResponse {
    server.send(&Request::new("GET", target).user(user))
}

fn unknown(response: &ClientResponse) {
    assert_problem(response, 404, "key_unknown", true);
}

#[test]
fn a_principal_sees_its_own_operation_from_beginning_to_end() {
    let app = TestApp::new();
    let server = app.serve(services);
    unknown(&look_up(&server, EXPORTS, "alice"));
    app.probe.hold();
    let first = server.begin(&Request::post("/v1/exports").user("alice").key("k"));
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(2));
    let found = look_up(&server, EXPORTS, "alice");
    assert_eq!((found.status, found.header("cache-control")), (200, Some("no-store")));
    assert!(found.header("retry-after").is_some());
    let expected = serde_json::json!({
        "operation": "POST /v1/exports",
        "state": "in_flight",
        "status": null,
        "reference": "ex_1",
        "progress": "3 of 10",
        "age_seconds": 2.0,
        "expires_in_seconds": 86_398.0,
    });
    assert_eq!(found.json(), expected);
    app.probe.release_all();
    assert_eq!(first.response().status, 201);
    let found = look_up(&server, EXPORTS, "alice");
    assert_eq!((found.status, found.header("retry-after")), (200, None));
    let found = found.json();
    assert_eq!((&found["state"], &found["status"]), (&"completed".into(), &201.into()));
    assert_eq!((&found["reference"], &found["progress"]), (&"ex_1".into(), &().into()));
}

#[test]
fn another_principal_sees_what_it_would_see_without_the_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    assert_eq!(server.send(&Request::post("/v1/exports").user("alice").key("k")).status, 201);
    let absent = look_up(&server, &EXPORTS.replace("/k?", "/other?"), "bob");
    let others = look_up(&server, EXPORTS, "bob");
    unknown(&others);
    assert_eq!(others.text(), absent.text());
    assert_eq!(others.stable_headers(), absent.stable_headers());
    assert_eq!(look_up(&server, EXPORTS, "alice").status, 200);
}

#[test]
fn a_lookup_needs_the_principal_of_the_operation() {
    let app = TestApp::new();
    let server = app.serve(services);
    let refused = server.send(&Request::new("GET", EXPORTS));
    assert_eq!((refused.status, refused.text()), (401, "the extractor's response"));
    let transfers = "/idempotency/keys/k?operation=transfers";
    assert_problem(&server.send(&Request::new("GET", transfers)), 401, "scope_missing", false);
    let bearer = |method: &str, target: &str| {
        Request::new(method, target).header("Authorization", "Bearer t")
    };
    unknown(&server.send(&bearer("GET", transfers)));
    assert_eq!(server.send(&bearer("POST", "/transfers").key("k")).status, 201);
    assert_eq!(server.send(&bearer("GET", transfers)).json()["state"], "completed");
    for wrong in ["POST /transfers", "GET /v1/exports", "POST /exports2", "exports", ""] {
        let target = format!("/idempotency/keys/k?operation={}", wrong.replace(' ', "%20"));
        unknown(&look_up(&server, &target, "alice"));
    }
}

#[test]
fn without_an_operation_every_operation_is_searched() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = Request::post("/payments").user("alice").key("\"the/key\"");
    assert_eq!(server.send(&request).status, 201);
    let found = look_up(&server, "/idempotency/keys/the%2Fkey", "alice");
    assert_eq!(found.json()["operation"], "POST /payments");
    unknown(&look_up(&server, "/idempotency/keys/the%2Fkey", "bob"));
    unknown(&look_up(&server, "/idempotency/keys/%00", "alice"));
    let long = format!("/idempotency/keys/{}", "k".repeat(256));
    unknown(&look_up(&server, &long, "alice"));
}

#[test]
fn abandoned_and_held_operations_say_so() {
    let app = TestApp::responding(|_| panic!("a run"));
    let server = app.serve(services);
    assert_eq!(server.send(&Request::post("/payments").user("alice").key("k")).status, 500);
    let payments = "/idempotency/keys/k?operation=POST%20/payments";
    assert_eq!(look_up(&server, payments, "alice").json()["state"], "abandoned");
    let held = Request::post("/transfers").header("Authorization", "Bearer t").key("k");
    assert_eq!(server.send(&held).status, 500);
    let transfers = Request::new("GET", "/idempotency/keys/k?operation=transfers");
    let found = server.send(&transfers.header("Authorization", "Bearer t"));
    assert_eq!(found.json()["state"], "held");
}

#[test]
fn a_lookup_fails_with_the_store() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.store.fail(Op::LookUp, 1, Fault::Before);
    let failed = look_up(&server, EXPORTS, "alice");
    assert!(assert_problem(&failed, 503, "store_unavailable", true).is_some());
}

#[test]
fn a_duplicate_is_told_where_to_poll() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.probe.hold();
    let request = Request::post("/v1/exports").user("alice").key("\"a/b c\"");
    let first = server.begin(&request);
    app.probe.await_runs(1);
    let accepted = server.send(&request);
    assert_eq!((accepted.status, accepted.is_replay()), (202, false));
    assert_eq!(accepted.json(), serde_json::json!({ "state": "in_flight", "reference": "ex_1" }));
    assert!(accepted.header("retry-after").is_some());
    let location = accepted.header("location").unwrap().to_owned();
    assert_eq!(location, "/idempotency/keys/a%2Fb%20c?operation=POST%20%2Fv1%2Fexports");
    assert_eq!(look_up(&server, &location, "alice").json()["state"], "in_flight");
    app.probe.release_all();
    let first = first.response();
    assert_eq!(look_up(&server, &location, "alice").json()["state"], "completed");
    server.send(&request).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn polling_needs_the_lookup_resource() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(export);
    });
    let refused = server.send(&Request::post("/exports").user("alice").key("k"));
    assert_problem(&refused, 500, "misconfigured", false);
    assert!(log::captured().contains("the application has no `Idempotency::lookup` resource"));
    assert_eq!(app.probe.runs(), 0);
}
