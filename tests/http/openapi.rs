//! What the specification says of the place of a handler, and guarded operations in the OpenAPI
//! document of an application.

use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::{
    HttpRequest, HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{
    Idempotency, idempotent,
    problem::{self, Problem},
    scope,
};
use serde_json::{Value, json};
use test_support::{Probe, Request, TestApp};

use super::handlers::User;

#[idempotent(scope = "user", method = "POST")]
async fn described_by_hand(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "scope::global", name = "described", ttl = "90s", in_flight = "poll")]
#[post("/described/{id}")]
async fn described_by_route(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

static ASKED: AtomicUsize = AtomicUsize::new(0);

fn counted(request: &HttpRequest) -> Option<String> {
    ASKED.fetch_add(1, Ordering::Relaxed);
    request.headers().get("x-user").map(|name| format!("{name:?}"))
}

#[idempotent(scope = "counted", record = "all")]
#[post("/described_by_function")]
async fn described_by_function(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "scope::bearer_token")]
#[post("/described_by_token")]
async fn described_by_token(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "::idempotent_actix::scope::peer_ip")]
#[post("/described_by_address")]
async fn described_by_address(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    let resource = |path| web::resource(path).route(web::post().to(described_by_hand));
    config.service(
        web::scope("/v1")
            .service(resource("/by-hand/{id}"))
            .service(described_by_route)
            .service(Idempotency::lookup_resource("/described/keys/{key}"))
            .service(web::scope("/{tenant}").service(resource("/other"))),
    );
}

/// The entry of a handler in the specification.
fn entry(app: &TestApp, handler: &str) -> Value {
    let specification = app.idempotency.specification();
    let operations = specification["operations"].as_array().unwrap();
    operations.iter().find(|operation| operation["handler"] == handler).unwrap().clone()
}

fn document() -> Value {
    let responses = json!({ "201": { "description": "Done" } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Described", "version": "1" },
        "paths": {
            "/v1/by-hand/{order}": { "post": { "responses": responses } },
            "/v1/described/{order}": { "post": { "responses": responses } },
            "/v1/described/keys/{key}": { "get": { "operationId": "look_up", "responses": {} } },
        },
    })
}

#[test]
fn the_specification_names_the_module_of_each_handler() {
    let entry = entry(&TestApp::new(), "described_by_hand");
    assert_eq!(entry["module"], module_path!());
}

#[test]
fn the_specification_says_what_a_key_belongs_to_and_calls_no_function_for_it() {
    let app = TestApp::new();
    let before = ASKED.load(Ordering::Relaxed);
    for (handler, scope) in [
        ("described_by_hand", "parameter"),
        ("described_by_route", "global"),
        ("described_by_function", "function"),
        ("described_by_token", "bearer_token"),
        ("described_by_address", "peer_ip"),
    ] {
        assert_eq!(entry(&app, handler)["scope"], scope, "{handler}");
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), before);
    // Afterwards the function is called again.
    let server = app.serve(|config| {
        config.service(described_by_function);
    });
    let request = Request::post("/described_by_function").key("k").user("alice");
    assert_eq!(server.send(&request).status, 201);
    assert_eq!(ASKED.load(Ordering::Relaxed), before + 1);
}

#[test]
fn requests_show_where_handlers_are() {
    let app = TestApp::new();
    let (by_hand, by_route) = ("described_by_hand", "described_by_route");
    assert_eq!(entry(&app, by_hand)["routes"], json!([{ "method": "POST", "path": null }]));
    let path = "/described/{id}";
    assert_eq!(entry(&app, by_route)["routes"], json!([{ "method": "POST", "path": path }]));

    let server = app.serve(services);
    let targets =
        ["/v1/by-hand/7", "/v1/by-hand/8", "/v1/acme/other", "/v1/described/1", "/v1/by-hand/9"];
    for (number, target) in targets.into_iter().enumerate() {
        let request = Request::post(target).key(format!("k-{number}")).user("alice");
        assert_eq!(server.send(&request).status, 201);
    }
    let route =
        |path: &str, mounted: &str| json!({ "method": "POST", "path": path, "mounted": [mounted] });
    let found = ["/v1/by-hand/{id}", "/v1/{tenant}/other"].map(|path| route(path, path));
    assert_eq!(entry(&app, by_hand)["routes"], json!(found));
    let found = [route("/described/{id}", "/v1/described/{id}")];
    assert_eq!(entry(&app, by_route)["routes"], json!(found));
    // What one application knows, another one does not.
    assert_eq!(entry(&TestApp::new(), by_hand)["routes"][0]["path"], Value::Null);
}

#[test]
fn operations_of_the_document_are_described() {
    let app = TestApp::new();
    let server = app.serve(services);
    let mut before = document();
    let report = app.idempotency.describe_openapi(&mut before);
    assert_eq!(report.described.len(), 1, "{report:?}");
    assert_eq!(server.send(&Request::post("/v1/by-hand/7").key("k").user("alice")).status, 201);
    let mut described = document();
    let report = app.idempotency.describe_openapi(&mut described);
    assert_eq!(report.described.len(), 2, "{report:?}");
    assert_eq!((&*report.ambiguous, &*report.kept), (&[][..], &[][..]));
    assert!(report.missing.iter().any(|route| route.contains("described_by_function")));

    let by_hand = &described["paths"]["/v1/by-hand/{order}"]["post"];
    assert_eq!(by_hand["x-idempotency"]["operation"], "POST /v1/by-hand/{id}");
    assert_eq!(by_hand["parameters"][0]["$ref"], "#/components/parameters/IdempotencyKey");
    let link = &by_hand["responses"]["201"]["links"]["idempotencyLookup"];
    assert_eq!(link["operationId"], "look_up");
    assert!(by_hand["responses"].get("401").is_some());

    let by_route = &described["paths"]["/v1/described/{order}"]["post"];
    assert_eq!(by_route["x-idempotency"]["ttl_seconds"], 90);
    let statuses: Vec<_> = by_route["responses"].as_object().unwrap().keys().collect();
    // Without principals there are neither 401 nor 429.
    assert_eq!(statuses, ["201", "202", "400", "409", "413", "422", "500", "503"]);
}

#[test]
fn problems_are_described_as_the_application_renders_them() {
    let described = |render: fn(&Problem, &HttpRequest) -> HttpResponse| {
        let app = TestApp::set(|builder| builder.problems(render));
        let mut document = document();
        app.idempotency.describe_openapi(&mut document);
        document["components"]["responses"]["IdempotencyProblem422"].take()
    };
    let stripe = described(problem::stripe);
    assert!(stripe["headers"].get("Stripe-Should-Retry").is_some());
    let example = "/content/application~1problem+json/examples/key_reused/value/error/type";
    assert_eq!(stripe.pointer(example).unwrap(), "idempotency_error");

    let own = described(|problem, _| problem::builder(problem).json(problem.kind().code()));
    let media = &own["content"]["application/json"];
    assert_eq!(
        (media.get("schema"), &media["examples"]["key_reused"]["value"]),
        (None, &json!("key_reused"))
    );
    let plain =
        described(|problem, _| problem::builder(problem).content_type("text/plain").body("no"));
    assert_eq!(plain["content"], json!({ "text/plain": {} }));

    let failing = described(|_, request| panic!("no client has sent {}", request.path()));
    assert!(failing["content"]["application/problem+json"].get("schema").is_some());
}
