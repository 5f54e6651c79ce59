//! Methods, routes and names: which requests belong to one operation.

use actix_web::{
    HttpResponse, delete, patch, put, routes,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use test_support::{ClientResponse, Probe, Request, Server, TestApp};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

#[idempotent(scope = "user")]
#[put("/put")]
async fn put_it(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user")]
#[patch("/patch")]
async fn patch_it(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user")]
#[delete("/delete")]
async fn delete_it(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user")]
#[actix_web::route("/many", method = "POST", method = "PUT", method = "DELETE", method = "PATCH")]
async fn many(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user")]
#[routes]
#[post("/first")]
#[put("/second")]
async fn two_routes(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", method = "POST")]
async fn by_hand(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", name = "pay", fingerprint = "none", method = "POST")]
async fn named(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

pub(super) fn services(config: &mut ServiceConfig) {
    config.service(put_it).service(patch_it).service(delete_it).service(many).service(two_routes);
    config
        .route("/by-hand", web::route().to(by_hand))
        .route("/by-hand-too", web::post().to(by_hand));
    config.route("/items/{id}", web::post().to(by_hand));
    all(config);
}

fn send(server: &Server, method: &str, path: &str) -> ClientResponse {
    server.send(&Request::new(method, path).user("alice").key("k"))
}

#[test]
fn every_unsafe_method_is_guarded() {
    let app = TestApp::new();
    let server = app.serve(services);
    let (methods, mut runs) = (["POST", "PUT", "DELETE", "PATCH"], 0);
    let single = [("PUT", "/put"), ("PATCH", "/patch"), ("DELETE", "/delete")];
    for (method, path) in single.into_iter().chain(methods.map(|method| (method, "/many"))) {
        let first = send(&server, method, path);
        send(&server, method, path).assert_replays(&first);
        runs += 1;
        assert_eq!(
            (first.status, app.probe.runs()),
            (201, runs),
            "{method} {path}: not a separate operation"
        );
    }
    for (method, path) in [("POST", "/first"), ("PUT", "/second")] {
        let first = send(&server, method, path);
        send(&server, method, path).assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), runs + 2);
}

#[test]
fn a_method_that_is_not_guarded_is_not_allowed() {
    let app = TestApp::new();
    let server = app.serve(services);
    for method in ["GET", "PUT", "OPTIONS", "BREW"] {
        for request in [
            Request::new(method, "/by-hand").user("alice"),
            Request::new(method, "/by-hand").key("k"),
        ] {
            let response = server.send(&request);
            assert_eq!(assert_problem(&response, 405, "method_not_allowed", false), None);
            assert_eq!(response.header("allow"), Some("POST"));
        }
    }
    assert_eq!(app.probe.runs(), 0);
    let first = send(&server, "POST", "/by-hand");
    send(&server, "POST", "/by-hand").assert_replays(&first);
}

/// Of several patterns actix-web reports only the first.
#[test]
fn the_patterns_of_one_resource_are_several_operations() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        let resource = web::resource(["/charges/{id}", "/reversals/{id}"]);
        config.service(resource.route(web::post().to(by_hand)));
    });
    for (path, runs) in [("/charges/7", 1), ("/reversals/7", 2)] {
        let first = send(&server, "POST", path);
        send(&server, "POST", path).assert_replays(&first);
        assert_eq!((first.status, app.probe.runs()), (201, runs), "{path}");
    }
    // The path of a request may be personal, and the log of decisions keeps the shown name.
    for (name, shown) in
        [("POST /charges/{id}", "POST /charges/{id}"), ("POST /reversals/7", "POST by_hand")]
    {
        assert_eq!(app.record("alice", name, "k").unwrap().record.operation.as_str(), shown);
    }
}

#[test]
fn one_handler_on_two_routes_is_two_operations() {
    let app = TestApp::new();
    let server = app.serve(services);
    let one = send(&server, "POST", "/by-hand");
    let two = send(&server, "POST", "/by-hand-too");
    assert_eq!((one.status, two.status, two.is_replay()), (201, 201, false));
    send(&server, "POST", "/by-hand").assert_replays(&one);
    send(&server, "POST", "/by-hand-too").assert_replays(&two);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn path_parameters_of_a_manual_route_do_not_make_operations() {
    let app = TestApp::new();
    let server = app.serve(services);
    let one = send(&server, "POST", "/items/1");
    let two = send(&server, "POST", "/items/2");
    assert_problem(&two, 422, "key_reused", false);
    send(&server, "POST", "/items/1").assert_replays(&one);
    assert!(app.record("alice", "POST /items/{id}", "k").is_some());
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_name_makes_two_methods_one_operation() {
    let app = TestApp::new();
    let server = app.serve(services);
    let first = send(&server, "PUT", "/either");
    let other = send(&server, "PATCH", "/either");
    assert_problem(&other, 422, "key_reused", false);
    assert_nothing_leaks(&other);
    send(&server, "PUT", "/either").assert_replays(&first);
    assert!(app.record("alice", "either", "k").is_some());
    assert_eq!(app.probe.notes(), ["PUT by alice"]);
}

#[test]
fn a_name_makes_two_routes_one_operation() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.route("/v1/pay", web::post().to(named)).route("/v2/pay", web::post().to(named));
    });
    let first = send(&server, "POST", "/v1/pay");
    send(&server, "POST", "/v2/pay").assert_replays(&first);
    send(&server, "POST", "/v1/pay").assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_name_keeps_the_record_when_a_path_parameter_is_renamed() {
    let app = TestApp::new();
    let before = app.serve(|config: &mut ServiceConfig| {
        config.route("/pay/{id}", web::post().to(named));
    });
    let first = send(&before, "POST", "/pay/1");
    drop(before);
    let after = app.serve(|config: &mut ServiceConfig| {
        config.route("/pay/{payment}", web::post().to(named));
    });
    send(&after, "POST", "/pay/1").assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn without_a_name_a_renamed_path_parameter_keeps_the_record_too() {
    let app = TestApp::new();
    let before = app.serve(|config: &mut ServiceConfig| {
        config.route("/pay/{id}", web::post().to(by_hand));
    });
    let first = send(&before, "POST", "/pay/1");
    drop(before);
    let after = app.serve(|config: &mut ServiceConfig| {
        config.route("/pay/{payment}", web::post().to(by_hand));
    });
    send(&after, "POST", "/pay/1").assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_route_under_two_scopes_is_two_operations() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        let version =
            |version: &str| web::scope(version).service(web::scope("/api").configure(all));
        config.service(version("/v1")).service(version("/v2"));
    });
    let one = send(&server, "POST", "/v1/api/payments");
    let two = send(&server, "POST", "/v2/api/payments");
    assert_eq!((one.status, two.status, two.is_replay()), (201, 201, false));
    send(&server, "POST", "/v1/api/payments").assert_replays(&one);
    send(&server, "POST", "/v2/api/payments").assert_replays(&two);
    for operation in ["POST /v1/api/payments", "POST /v2/api/payments"] {
        assert!(app.record("alice", operation, "k").is_some(), "{operation}");
    }
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn default_services_are_guarded_and_distinguished_by_their_handlers() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(web::scope("/a").default_service(web::post().to(by_hand)));
        config.default_service(web::post().to(named));
    });
    let (one, two) = (send(&server, "POST", "/a/1"), send(&server, "POST", "/b/1"));
    assert_eq!((one.status, two.status), (201, 201));
    send(&server, "POST", "/a/1").assert_replays(&one);
    send(&server, "POST", "/b/1").assert_replays(&two);
    assert_eq!(send(&server, "POST", "/a/2").problem(), (422, "key_reused".into()));
    assert_eq!(app.probe.runs(), 2);
}
