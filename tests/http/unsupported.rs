//! Keys on routes without a guard, and the specification, which lists the guarded routes.

use actix_web::{
    App, HttpResponse, get, guard,
    http::{Method, header::HeaderName},
    middleware::NormalizePath,
    post, routes,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{KeyRule, RejectUnsupportedKeys, StoreFailurePolicy, idempotent};
use test_support::{Probe, Request, Server, TestApp};

use super::handlers::{User, all, assert_problem};

#[get("/plain")]
async fn read(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[post("/plain/{id}")]
async fn write(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// Not guarded, unlike the POST handler on the same path.
#[get("/payments")]
async fn list(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(
    scope = "user",
    method = "POST",
    ttl = "1h",
    key = "optional",
    name = "by hand in the specification"
)]
async fn by_hand(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user")]
#[routes]
#[post("/first")]
#[put("/second")]
async fn two_paths(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

/// An empty path: the full path is that of the enclosing scope.
#[idempotent(scope = "user")]
#[post("")]
async fn bare(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[get("")]
async fn bare_list(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[post("")]
async fn bare_and_unguarded(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// A path without its leading slash, which actix-web adds.
#[idempotent(scope = "user")]
#[post("slashless")]
async fn slashless(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[post("/notslashless")]
async fn not_slashless(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// Handlers with an empty path in two scopes (see also [`refunds`]). Their resources have names.
mod orders {
    use super::*;

    #[get("")]
    pub(crate) async fn list(probe: Data<Probe>) -> HttpResponse {
        probe.run().await
    }

    #[idempotent(scope = "user")]
    #[post("", name = "create_order")]
    pub(crate) async fn create(user: User, probe: Data<Probe>) -> HttpResponse {
        probe.note(user.0);
        probe.run().await
    }
}

mod refunds {
    use super::*;

    #[idempotent(scope = "user")]
    #[post("", name = "create_refund")]
    pub(crate) async fn create(user: User, probe: Data<Probe>) -> HttpResponse {
        probe.note(user.0);
        probe.run().await
    }
}

fn services(config: &mut ServiceConfig) {
    config.service(web::scope("/orders").service(orders::list).service(orders::create));
    config.service(web::scope("/refunds").service(orders::list).service(refunds::create));
    config.service(web::scope("/twice").guard(guard::Header("x-version", "2")).service(list));
    config.service(web::scope("/twice").service(not_slashless).service(two_paths));
    config
        .service(read)
        .service(write)
        .service(list)
        .route("/hand-routed", web::post().to(by_hand));
    config.service(two_paths).service(slashless).service(not_slashless);
    config.service(web::scope("/users/{user}/bare").service(bare_list).service(bare));
    config.service(web::scope("/plainly").service(bare_and_unguarded));
    config.service(web::scope("/v1").configure(all));
    all(config);
}

fn rejecting(app: &TestApp, allowed: bool) -> Server {
    let (setup, idempotency) = (app.setup(), app.idempotency.clone());
    Server::start(move || {
        let mut reject = RejectUnsupportedKeys::new(&idempotency);
        if allowed {
            reject = reject.allow(Method::POST, "/hand-routed").allow(Method::POST, "/plain/{id}");
        }
        App::new().configure(&setup).configure(services).wrap(reject)
    })
}

/// A path that is missing from the resource map may still match a route.
#[test]
fn a_key_on_an_unknown_path_is_refused_unless_its_method_is_safe() {
    let app = TestApp::new();
    let server = rejecting(&app, false);
    assert_eq!(server.send(&keyed("POST", "/nowhere")).problem(), (400, "key_unsupported".into()));
    let response = server.send(&keyed("GET", "/nowhere"));
    assert_eq!((response.status, response.body.len()), (404, 0));
}

/// The router decodes percent-encoded paths, and tries further scopes with the same prefix.
#[test]
fn no_spelling_of_a_path_lets_a_key_through() {
    let app = TestApp::new();
    let server = rejecting(&app, false);
    for path in [
        "/notslashless",
        "/n%6ftslashless",
        "/notslashless/",
        "/twice/notslashless",
        "/twice/n%6Ftslashless",
    ] {
        assert_eq!(
            server.send(&keyed("POST", path)).problem(),
            (400, "key_unsupported".into()),
            "{path}"
        );
    }
    assert_eq!(app.probe.runs(), 0);
    for path in ["/p%61yments", "/twice/first", "/twice/f%69rst"] {
        let request = Request::post(path).user("alice").key(path.replace('/', "-"));
        assert_eq!(server.send(&request).status, 201, "{path}");
    }
}

#[test]
fn inner_middleware_that_rewrites_the_path_lets_no_key_through() {
    let app = TestApp::new();
    let (setup, idempotency) = (app.setup(), app.idempotency.clone());
    let server = Server::start(move || {
        let app = App::new().configure(&setup).configure(services).wrap(NormalizePath::trim());
        app.wrap(RejectUnsupportedKeys::new(&idempotency))
    });
    assert_eq!(
        server.send(&keyed("POST", "/notslashless/")).problem(),
        (400, "key_unsupported".into())
    );
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn handlers_with_an_empty_path_are_identified_by_the_names_of_their_resources() {
    let app = TestApp::new();
    let server = rejecting(&app, false);
    for path in ["/orders", "/refunds"] {
        assert_eq!(server.send(&keyed("POST", path)).status, 201, "{path}");
    }
    assert_eq!(app.probe.runs(), 2);
}

fn keyed(method: &str, target: &str) -> Request {
    Request::new(method, target).user("alice").key("k")
}

#[test]
fn a_key_for_an_operation_without_the_attribute_is_refused() {
    let app = TestApp::new();
    let server = rejecting(&app, false);
    for (method, target) in [
        ("GET", "/plain"),
        ("POST", "/plain/1"),
        ("POST", "/hand-routed"),
        ("GET", "/payments"),
        ("DELETE", "/payments"),
        ("POST", "/plainly"),
        ("POST", "/notslashless"),
        ("POST", "/second"),
        ("PUT", "/first"),
    ] {
        let refused = server.send(&keyed(method, target));
        assert_eq!(assert_problem(&refused, 400, "key_unsupported", false), None);
    }
    assert_eq!(app.probe.runs(), 0);
    for (method, target) in [("GET", "/plain"), ("POST", "/plain/1"), ("GET", "/payments")] {
        assert_eq!(
            server.send(&Request::new(method, target)).status,
            201,
            "a request without a key was affected"
        );
    }
    assert_eq!(app.probe.runs(), 3);
}

#[test]
fn a_key_for_an_annotated_operation_is_accepted_under_any_scope() {
    let app = TestApp::new();
    let server = rejecting(&app, false);
    for target in ["/payments", "/v1/payments", "/payments/7/captures", "/v1/payments/7/captures"] {
        let first = server.send(&keyed("POST", target));
        assert_eq!(first.status, 201, "{target}");
        server.send(&keyed("POST", target)).assert_replays(&first);
    }
    for (method, target) in [
        ("PUT", "/either"),
        ("POST", "/first"),
        ("PUT", "/second"),
        ("POST", "/users/7/bare"),
        ("POST", "/slashless"),
    ] {
        let first = server.send(&keyed(method, target));
        assert_eq!(first.status, 201, "{method} {target}");
        server.send(&keyed(method, target)).assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), 9);
}

/// The middleware cannot see the handle in an inner scope, but has its settings.
#[test]
fn a_handle_that_is_registered_in_an_inner_scope_is_enough() {
    let app = TestApp::set(|builder| builder.header(HeaderName::from_static("x-key")));
    let (setup, idempotency) = (app.setup(), app.idempotency.clone());
    let server = Server::start(move || {
        let inner = web::scope("/v1").configure(&setup).service(write).configure(all);
        App::new().service(inner).wrap(RejectUnsupportedKeys::new(&idempotency))
    });
    let keyed = |target: &str| Request::post(target).user("alice").header("X-Key", "k");
    assert_problem(&server.send(&keyed("/v1/plain/1")), 400, "key_unsupported", false);
    let first = server.send(&keyed("/v1/payments"));
    server.send(&keyed("/v1/payments")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_key_on_a_route_that_is_explicitly_allowed_is_accepted() {
    let app = TestApp::new();
    let server = rejecting(&app, true);
    let first = server.send(&keyed("POST", "/hand-routed"));
    server.send(&keyed("POST", "/hand-routed")).assert_replays(&first);
    assert_eq!(server.send(&keyed("POST", "/plain/1")).status, 201);
    assert_problem(&server.send(&keyed("GET", "/plain")), 400, "key_unsupported", false);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn without_the_middleware_a_key_is_ignored_where_there_is_no_attribute() {
    let app = TestApp::new();
    let server = app.serve(services);
    for run in 1..=2 {
        let response = server.send(&keyed("POST", "/plain/1"));
        assert_eq!((response.status, response.is_replay(), app.probe.runs()), (201, false, run));
    }
}

#[test]
fn the_specification_lists_every_annotated_handler_with_its_policy() {
    let app = TestApp::set(|builder| {
        builder
            .body_limit(100)
            .response_limit(200)
            .key_rule(KeyRule::MinLength(8))
            .when_store_fails(StoreFailurePolicy::RunUnguarded)
    });
    let specification = app.idempotency.specification();
    assert_eq!(specification["header"], "idempotency-key");
    assert_eq!(specification["key"]["max_bytes"], 255);
    assert_eq!(specification["key"]["rule"]["min_bytes"], 8);
    assert_eq!(
        (&specification["body_limit_bytes"], &specification["replayed_bytes_limit"]),
        (&100.into(), &200.into())
    );
    assert_eq!(specification["when_store_fails"], "run_unguarded");
    let markers = (&specification["replay_marker"], &specification["not_run_marker"]);
    assert_eq!(markers, (&"idempotency-replayed".into(), &"idempotency-not-run".into()));
    let operations = specification["operations"].as_array().unwrap();
    let find = |path: Option<&str>, name: &str| {
        let mut found = operations.iter().filter(|operation| {
            operation["routes"][0]["path"] == serde_json::json!(path)
                && [&operation["handler"], &operation["name"]].contains(&&name.into())
        });
        (found.next().unwrap_or_else(|| panic!("{name} is missing")), found.next()).0
    };
    let short_ttl = serde_json::json!({
        "handler": "short_ttl", "module": "http::handlers", "name": null, "scope": "parameter",
        "routes": [{ "method": "POST", "path": "/short_ttl" }],
        "timeout_seconds": null, "key": "required",
        "key_from": "header:idempotency-key", "ttl_seconds": 60.0, "claim": "lease",
        "lease_seconds": 10.0, "wait_seconds": 0.0, "fingerprint": "body", "query": "exact",
        "content_type": "exact", "record": "final",
        "abandoned": "retry", "in_flight": "conflict",
    });
    assert_eq!(find(Some("/exports"), "export")["in_flight"], "poll");
    assert_eq!(find(Some("/short_ttl"), "short_ttl"), &short_ttl);
    assert_eq!(find(Some("/hold_if_abandoned"), "hold_if_abandoned")["abandoned"], "hold");
    assert_eq!(find(Some("/record_success"), "record_success")["record"], "success");
    assert_eq!(find(Some("/record_all"), "record_all")["record"], "all");
    assert_eq!(find(Some("/optional"), "optional")["key"], "optional");
    assert_eq!(find(Some("/as-json"), "as_json")["fingerprint"], "json");
    assert_eq!(find(Some("/as-word"), "as_word")["fingerprint"], "custom");
    assert_eq!(find(Some("/no_fingerprint"), "no_fingerprint")["fingerprint"], "none");
    assert_eq!(find(Some("/wait_150ms"), "wait_150ms")["wait_seconds"], 0.15);
    let either = serde_json::json!([
        { "method": "PUT", "path": "/either" },
        { "method": "PATCH", "path": "/either" }
    ]);
    assert_eq!(find(Some("/either"), "either")["routes"], either);
    let both = serde_json::json!([
        { "method": "POST", "path": "/first" },
        { "method": "PUT", "path": "/second" }
    ]);
    assert_eq!(find(Some("/first"), "two_paths")["routes"], both);
    assert_eq!(
        find(Some(""), "bare")["routes"],
        serde_json::json!([{ "method": "POST", "path": "" }])
    );
    let by_hand = find(None, "by hand in the specification");
    assert_eq!(
        (&by_hand["ttl_seconds"], &by_hand["lease_seconds"]),
        (&3600.0.into(), &30.0.into())
    );
}

#[test]
fn the_specification_lists_every_problem_with_each_of_its_statuses() {
    let app = TestApp::set(|builder| builder.documentation("https://docs.example/errors/"));
    let specification = app.idempotency.specification();
    let problems = specification["problems"].as_array().unwrap();
    let in_flight = problems.iter().find(|problem| problem["code"] == "in_flight").unwrap();
    assert_eq!((&in_flight["status"], &in_flight["retryable"]), (&409.into(), &true.into()));
    assert_eq!(in_flight["type"], "https://docs.example/errors/in_flight");
    let codes: std::collections::BTreeSet<_> =
        problems.iter().map(|problem| problem["code"].as_str().unwrap()).collect();
    assert_eq!((problems.len(), codes.len()), (21, 17));
    let of = |code: &str| -> Vec<_> {
        let lines = problems.iter().filter(|problem| problem["code"] == code);
        lines
            .map(|line| {
                (line["status"].as_u64(), line["retryable"].as_bool(), line["when"].is_string())
            })
            .collect()
    };
    assert_eq!(
        of("handler_timed_out"),
        [(Some(503), Some(true), true), (Some(500), Some(false), true)]
    );
    assert_eq!(
        of("handler_failed"),
        [(Some(500), Some(true), true), (Some(500), Some(false), true)]
    );
    assert_eq!(
        of("store_unavailable"),
        [(Some(503), Some(true), true), (Some(500), Some(false), true)]
    );
    assert_eq!(of("overloaded"), [(Some(503), Some(true), true), (Some(429), Some(true), true)]);
    assert_eq!(of("key_reused"), [(Some(422), Some(false), false)]);
}
