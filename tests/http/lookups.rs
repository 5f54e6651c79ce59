//! Lookups of keys, and polling for the end of an operation.

use std::{
    future::{Ready, ready},
    time::Duration,
};

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorForbidden,
    post,
    web::{self, Data, Path, ServiceConfig},
};
use idempotent_actix::{
    Idempotency, Operation, idempotent,
    scope::{self, ScopeId, ScopeKey},
};
use test_support::{ClientResponse, Fault, Op, Probe, Request, Server, TestApp, log};

use super::handlers::{User, assert_problem, pay};

mod candidates;
mod locations;

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
        .service(Idempotency::lookup_resource("/idempotency/keys/{key}"))
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
        // Handlers of other tests may be meant by the name, and each of them has to agree.
        unknown(&server.send(&bearer("GET", &target).user("alice")));
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
    let missing = "the application has no `Idempotency::lookup_resource` resource";
    assert!(log::captured().contains(missing));
    assert_eq!(app.probe.runs(), 0);
}

/// A right that `X-Admin` stands for.
struct Admin;

impl FromRequest for Admin {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let is_admin = request.headers().contains_key("x-admin");
        ready(is_admin.then_some(Self).ok_or_else(|| ErrorForbidden("not an admin")))
    }
}

#[derive(serde::Deserialize)]
struct Refund {
    amount: u64,
}

#[idempotent(scope = "user")]
#[post("/refunds/{id}")]
async fn refund_as_admin(
    id: Path<u64>,
    user: User,
    _admin: Admin,
    operation: Option<Operation>,
    refund: web::Json<Refund>,
    probe: Data<Probe>,
) -> HttpResponse {
    probe.note(format!("{} {} {} {}", id, user.0, refund.amount, operation.is_some()));
    probe.run().await
}

#[test]
fn a_lookup_is_refused_by_every_extractor_that_would_refuse_a_replay() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(refund_as_admin);
    });
    let refund = Request::post("/refunds/7").user("alice").key("k").json("{\"amount\":1}");
    assert_eq!(server.send(&refund.clone().header("X-Admin", "1")).status, 201);
    let replay = server.send(&refund);
    for target in ["?operation=POST%20/refunds/%7Bid%7D", "?operation=POST%20/refunds/%7Bother%7D"]
    {
        let [known, other] =
            ["k", "other"].map(|key| look_up(&server, &format!("/keys/{key}{target}"), "alice"));
        assert_eq!((known.status, known.text()), (replay.status, replay.text()));
        assert_eq!((other.status, other.text()), (replay.status, replay.text()));
    }
    let [known, other] =
        ["k", "other"].map(|key| look_up(&server, &format!("/keys/{key}"), "alice"));
    assert_eq!((known.status, known.text()), (other.status, other.text()));
    assert_ne!(known.status, 200);
    let admin = Request::new("GET", "/keys/k?operation=POST%20/refunds/%7Bid%7D").user("alice");
    let found = server.send(&admin.header("X-Admin", "1"));
    assert_eq!((found.status, &found.json()["state"]), (200, &"completed".into()));
    assert_eq!(app.probe.notes(), ["7 alice 1 true"]);
}

/// Another handler's scope, which believes what the client says.
fn claimed(request: &HttpRequest) -> Option<ScopeId> {
    let name = request.headers().get("x-claimed")?.to_str().ok()?;
    Some(ScopeId::of("user", name))
}

#[idempotent(scope = "claimed")]
#[post("/orders")]
async fn order_as_guest(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "_user")]
#[post("/partners/orders")]
async fn order_as_partner(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
) -> actix_web::Result<HttpResponse> {
    operation.set_reference("secret").await?;
    Ok(probe.run().await)
}

mod guests {
    use super::*;

    #[idempotent(scope = "claimed")]
    #[post("/bookings")]
    pub(super) async fn book(probe: Data<Probe>) -> HttpResponse {
        probe.run().await
    }
}

mod partners {
    use super::*;

    #[idempotent(scope = "_user")]
    #[post("/bookings")]
    pub(super) async fn book(_user: User, probe: Data<Probe>) -> HttpResponse {
        probe.run().await
    }
}

#[test]
fn no_other_handler_whose_path_is_a_suffix_decides_who_may_look_up() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(
            web::scope("/v1")
                .service(order_as_guest)
                .service(order_as_partner)
                .service(web::scope("/guests").service(guests::book))
                .service(web::scope("/partners").service(partners::book)),
        );
    });
    for path in ["/v1/partners/orders", "/v1/partners/bookings"] {
        assert_eq!(server.send(&Request::post(path).user("acme").key("k")).status, 201);
        let target = format!("/keys/k?operation=POST%20{path}");
        let attack = server.send(&Request::new("GET", &target).header("X-Claimed", "acme"));
        assert_eq!(attack.status, 401, "{path}: {}", attack.text());
        assert!(!attack.text().contains("secret"));
    }
    let found = look_up(&server, "/keys/k?operation=POST%20/v1/partners/orders", "acme");
    assert_eq!(found.json()["reference"], "secret");
}

/// The tenant in the path.
struct Tenant(String);

impl FromRequest for Tenant {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let tenant = request.match_info().iter().next().map(|(_, value)| Self(value.to_owned()));
        ready(tenant.ok_or_else(|| ErrorForbidden("no tenant")))
    }
}

impl ScopeKey for Tenant {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("tenant", self.0.as_str()))
    }
}

#[idempotent(scope = "_tenant", name = "tenant-jobs")]
#[post("/{tenant}/jobs")]
async fn start_job(_tenant: Tenant, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "tenant", name = "path-jobs")]
#[post("/{tenant}/path-jobs")]
async fn start_job_of_path(tenant: Option<Path<String>>, probe: Data<Probe>) -> HttpResponse {
    drop(tenant);
    probe.run().await
}

#[test]
fn no_extractor_takes_the_key_of_a_lookup_for_a_part_of_its_path() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config
            .service(Idempotency::lookup_resource("/keys/{key}"))
            .service(web::scope("/tenants").service(start_job).service(start_job_of_path))
            .service(
                web::scope("/in/{tenant}").service(Idempotency::lookup_resource("/keys/{key}")),
            );
    });
    for path in ["/tenants/acme/jobs", "/tenants/acme/path-jobs"] {
        assert_eq!(server.send(&Request::post(path).key("acme")).status, 201);
    }
    let outside = look_up(&server, "/keys/acme?operation=tenant-jobs", "alice");
    assert_eq!((outside.status, outside.text()), (403, "no tenant"));
    unknown(&look_up(&server, "/keys/acme?operation=path-jobs", "alice"));
    let inside = look_up(&server, "/in/acme/keys/acme?operation=tenant-jobs", "alice");
    assert_eq!(inside.json()["state"], "completed");
}

fn panicking(request: &HttpRequest) -> Option<String> {
    assert!(request.method() != "GET", "a lookup");
    Some("alice".into())
}

#[idempotent(scope = "panicking", name = "panicking")]
#[post("/panicking")]
async fn panic_in_lookups(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn a_scope_function_that_panics_in_a_lookup_does_not_log_the_key() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(panic_in_lookups);
    });
    let key = "secret-key-of-alice";
    assert_eq!(server.send(&Request::post("/panicking").key(key)).status, 201);
    let target = format!("/keys/{key}?operation=panicking");
    assert_problem(&look_up(&server, &target, "alice"), 500, "misconfigured", false);
    let log = log::captured();
    assert!(log.contains("the scope function panicked") && log.contains("/keys/{key}"), "{log}");
    assert!(!log.contains(key), "{log}");
}
