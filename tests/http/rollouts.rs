//! What a deployment may change while clients send requests again: each row of the table in the
//! guide "Operating", with two programs on one store.

use actix_web::web::{self, ServiceConfig};
use idempotent_actix::{Idempotency, fingerprint::FingerprintKeys};
use test_support::{ClientResponse, Request, TestApp};

use super::handlers::User;

/// What the retry of a request gets that the program before has completed.
#[derive(Debug, PartialEq)]
enum Retry {
    Replayed,
    RunsAgain,
    Refused,
}

/// The program before and the program after a change, each in a module of its own, because the name
/// of a handler's function is the name of its resource.
macro_rules! programs {
    ($($program:ident { $(#[$attribute:meta])* $handler:ident $(does $work:ident)? })*) => { $(
        mod $program {
            #[allow(unused_imports, reason = "a program has one of the methods")]
            use actix_web::{HttpResponse, post, put, web::{Data, ServiceConfig}};
            use idempotent_actix::idempotent;
            use test_support::Probe;

            #[allow(unused_imports, reason = "few of the programs need `text`")]
            use super::*;

            $(#[$attribute])*
            async fn $handler(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                $($work(&probe).await;)?
                probe.run().await
            }

            pub(super) fn services(config: &mut ServiceConfig) {
                config.service($handler);
            }
        }
    )* };
}

programs! {
    plain { #[idempotent(scope = "user")] #[post("/v1/pay")] pay }
    named_as_before { #[idempotent(scope = "user", name = "POST /v1/pay")] #[post("/v1/pay")] pay }
    moved { #[idempotent(scope = "user", name = "POST /v1/pay")] #[post("/v2/payments")] create }
    other_path { #[idempotent(scope = "user")] #[post("/v2/payments")] pay }
    other_name { #[idempotent(scope = "user", name = "pay")] #[post("/v1/pay")] pay }
    other_handler { #[idempotent(scope = "user")] #[post("/v1/pay")] create_payment }
    other_method { #[idempotent(scope = "user")] #[put("/v1/pay")] pay }
    named_put { #[idempotent(scope = "user", name = "POST /v1/pay")] #[put("/v1/pay")] pay }
    mounted { #[idempotent(scope = "user")] #[post("/pay")] pay }
    other_scope { #[idempotent(scope = "text")] #[post("/v1/pay")] pay }
    json { #[idempotent(scope = "user", fingerprint = "json")] #[post("/v1/pay")] pay }
    other_policy {
        #[idempotent(scope = "user", ttl = "2h", lease = "10s", wait = "1s", record = "all",
            abandoned = "hold", timeout = "5s")]
        #[post("/v1/pay")]
        pay
    }
    other_function {
        #[idempotent(scope = "user", fingerprint = "other_bytes")] #[post("/v1/pay")] pay
    }
    function { #[idempotent(scope = "user", fingerprint = "bytes")] #[post("/v1/pay")] pay }
    other_behavior { #[idempotent(scope = "user")] #[post("/v1/pay")] pay does charge_twice }
    by_id { #[idempotent(scope = "user")] #[post("/orders/{id}/pay")] pay }
    by_order_id { #[idempotent(scope = "user")] #[post("/orders/{order_id}/pay")] pay }
    by_number { #[idempotent(scope = "user")] #[post("/orders/{id:[0-9]+}/pay")] pay }
    by_two { #[idempotent(scope = "user")] #[post("/routes/{from}/{to}")] pay }
    moved_by_id {
        #[idempotent(scope = "user", name = "POST /orders/{id}/pay")]
        #[post("/payments/of/{order}")]
        pay
    }
    less_by_id { #[idempotent(scope = "user", name = "POST /orders/{id}/pay")] #[post("/pay")] pay }
}

macro_rules! deriving {
    ($($program:ident $path:literal)*) => { $(
        mod $program {
            use actix_web::{post, web::ServiceConfig};
            use idempotent_actix::{Operation, idempotent};

            use super::*;

            #[idempotent(scope = "_user")]
            #[post($path)]
            async fn derive(_user: User, operation: Operation) -> String {
                operation.derive_key("charge").unwrap().to_string()
            }

            pub(super) fn services(config: &mut ServiceConfig) {
                config.service(derive);
            }
        }
    )* };
}

deriving! { deriving "/v1/derive" deriving_moved "/v2/derive" }

fn text(request: &actix_web::HttpRequest) -> Option<String> {
    Some(request.headers().get("x-user")?.to_str().ok()?.to_owned())
}

fn bytes(_: &actix_web::HttpRequest, body: &[u8]) -> Vec<u8> {
    body.to_vec()
}

fn other_bytes(_: &actix_web::HttpRequest, body: &[u8]) -> Vec<u8> {
    body.iter().rev().copied().collect()
}

async fn charge_twice(probe: &test_support::Probe) {
    probe.run().await;
}

type Services = fn(&mut ServiceConfig);

fn pay(method: &str, path: &str) -> Request {
    Request::new(method, path).user("alice").key("k").json("{\"amount\":1}")
}

fn outcome(retry: &ClientResponse) -> Retry {
    match (retry.status, retry.is_replay()) {
        (201, true) => Retry::Replayed,
        (201, false) => Retry::RunsAgain,
        (422, false) => Retry::Refused,
        _ => panic!("{}", retry.text()),
    }
}

/// Sends a request to one program, and again to another.
fn change(before: Services, after: Services, [first, again]: [(&str, &str); 2]) -> Retry {
    let app = TestApp::new();
    let (before, after) = (app.serve(before), app.serve(after));
    assert_eq!(outcome(&before.send(&pay(first.0, first.1))), Retry::RunsAgain);
    outcome(&after.send(&pay(again.0, again.1)))
}

fn same_path(before: Services, after: Services) -> Retry {
    change(before, after, [("POST", "/v1/pay"); 2])
}

#[test]
fn a_name_that_is_the_default_one_lets_a_route_be_renamed() {
    assert_eq!(same_path(plain::services, named_as_before::services), Retry::Replayed);
    // And back, as long as instances of both are running.
    assert_eq!(same_path(named_as_before::services, plain::services), Retry::Replayed);
    let renamed = [("POST", "/v1/pay"), ("POST", "/v2/payments")];
    for before in [plain::services, named_as_before::services] {
        assert_eq!(change(before, moved::services, renamed), Retry::Replayed);
    }
    let by_id = [("POST", "/orders/7/pay"), ("POST", "/payments/of/7")];
    assert_eq!(change(by_id::services, moved_by_id::services, by_id), Retry::Replayed);
}

#[test]
fn a_named_operation_is_still_told_apart_by_the_values_in_its_path() {
    let other = [("POST", "/payments/of/7"), ("POST", "/payments/of/8")];
    assert_eq!(change(moved_by_id::services, moved_by_id::services, other), Retry::Refused);
    let fewer = [("POST", "/orders/7/pay"), ("POST", "/pay")];
    assert_eq!(change(by_id::services, less_by_id::services, fewer), Retry::Refused);
    let divided = [("POST", "/routes/1/23"), ("POST", "/routes/12/3")];
    assert_eq!(change(by_two::services, by_two::services, divided), Retry::Refused);
    // A handler can tell them apart.
    let encoded = [("POST", "/orders/A/pay"), ("POST", "/orders/%41/pay")];
    assert_eq!(change(by_id::services, by_id::services, encoded), Retry::Refused);
}

#[test]
fn another_route_or_name_is_another_operation() {
    let renamed = [("POST", "/v1/pay"), ("POST", "/v2/payments")];
    assert_eq!(change(plain::services, other_path::services, renamed), Retry::RunsAgain);
    assert_eq!(same_path(plain::services, other_name::services), Retry::RunsAgain);
    let method = [("POST", "/v1/pay"), ("PUT", "/v1/pay")];
    assert_eq!(change(plain::services, other_method::services, method), Retry::RunsAgain);
    assert_eq!(change(plain::services, named_put::services, method), Retry::Refused);
    let pattern = [("POST", "/orders/7/pay"); 2];
    assert_eq!(change(by_id::services, by_number::services, pattern), Retry::RunsAgain);
}

#[test]
fn names_of_functions_and_of_dynamic_segments_do_not_count() {
    assert_eq!(same_path(plain::services, other_handler::services), Retry::Replayed);
    let pattern = [("POST", "/orders/7/pay"); 2];
    assert_eq!(change(by_id::services, by_order_id::services, pattern), Retry::Replayed);
    let other = [("POST", "/orders/7/pay"), ("POST", "/orders/8/pay")];
    assert_eq!(change(by_id::services, by_order_id::services, other), Retry::Refused);
}

#[test]
fn a_route_may_move_into_a_scope_of_the_application() {
    let in_scope: Services = |config| {
        config.service(web::scope("/v1").configure(mounted::services));
    };
    assert_eq!(same_path(plain::services, in_scope), Retry::Replayed);
}

#[test]
fn other_times_and_rules_replay_what_was_recorded() {
    assert_eq!(same_path(plain::services, other_policy::services), Retry::Replayed);
}

#[test]
fn another_behavior_replays_what_was_recorded() {
    assert_eq!(same_path(plain::services, other_behavior::services), Retry::Replayed);
}

#[test]
fn another_scope_has_other_keys_and_another_fingerprint_refuses_them() {
    assert_eq!(same_path(plain::services, other_scope::services), Retry::RunsAgain);
    assert_eq!(same_path(plain::services, json::services), Retry::Refused);
    assert_eq!(same_path(plain::services, function::services), Retry::Refused);
    assert_eq!(same_path(function::services, other_function::services), Retry::Refused);
    assert_eq!(same_path(function::services, function::services), Retry::Replayed);
}

/// With `"none"` and a function of the application, the content type does not count.
#[test]
fn another_content_type_is_another_request() {
    let typed = |content_type| {
        let request = Request::post("/v1/pay").user("alice").key("k");
        request.header("Content-Type", content_type).body("{\"amount\":1}")
    };
    for (services, expected) in [
        (plain::services as Services, Retry::Refused),
        (json::services, Retry::Refused),
        (function::services, Retry::Replayed),
    ] {
        let app = TestApp::new();
        let (before, after) = (app.serve(services), app.serve(services));
        let first = before.send(&typed("application/json"));
        assert_eq!(outcome(&first), Retry::RunsAgain);
        assert_eq!(outcome(&after.send(&typed("application/vnd.shop+json"))), expected);
    }
}

/// Sends a request to an instance with one set of settings, and again to one with others.
fn with_settings(settings: [fn(&TestApp) -> Idempotency; 2]) -> Retry {
    let mut app = TestApp::new();
    let servers = settings.map(|idempotency| {
        app.idempotency = idempotency(&app);
        app.serve(plain::services)
    });
    let [first, again] = servers.map(|server| server.send(&pay("POST", "/v1/pay")));
    assert_eq!(outcome(&first), Retry::RunsAgain);
    outcome(&again)
}

#[test]
fn another_namespace_has_other_keys() {
    let shop = |app: &TestApp| Idempotency::builder(app.store.clone()).namespace("shop").build();
    let store = |app: &TestApp| Idempotency::builder(app.store.clone()).namespace("store").build();
    assert_eq!(with_settings([shop, store]), Retry::RunsAgain);
    assert_eq!(with_settings([shop, shop]), Retry::Replayed);
}

/// Without a namespace, the package of the handler (`tests`) is the namespace, so a renamed package
/// is another namespace.
#[test]
fn a_renamed_package_has_other_keys_unless_the_namespace_was_set_before() {
    let by_default = |app: &TestApp| Idempotency::new(app.store.clone());
    let set = |app: &TestApp| Idempotency::builder(app.store.clone()).namespace("tests").build();
    let renamed =
        |app: &TestApp| Idempotency::builder(app.store.clone()).namespace("renamed").build();
    assert_eq!(with_settings([by_default, renamed]), Retry::RunsAgain);
    assert_eq!(with_settings([by_default, set]), Retry::Replayed);
    assert_eq!(with_settings([set, by_default]), Retry::Replayed);
}

/// Derived keys follow the record id.
#[test]
fn a_renamed_operation_has_other_derived_keys() {
    let app = TestApp::new();
    let derived = |name: &str| TestApp::id("alice", name, "k").derive_key("charge").to_string();
    let (before, after) = (app.serve(deriving::services), app.serve(deriving_moved::services));
    assert_eq!(before.send(&pay("POST", "/v1/derive")).text(), derived("POST /v1/derive"));
    assert_eq!(after.send(&pay("POST", "/v2/derive")).text(), derived("POST /v2/derive"));
}

#[test]
fn the_first_fingerprint_key_is_deployed_before_it_signs() {
    fn with(app: &TestApp, keys: FingerprintKeys) -> Idempotency {
        Idempotency::builder(app.store.clone()).fingerprint_keys(keys).build()
    }
    const SECRET: &[u8] = b"0123456789abcdef";
    let none = |app: &TestApp| with(app, FingerprintKeys::none());
    let recognizing =
        |app: &TestApp| with(app, FingerprintKeys::none().recognizing(1, SECRET).unwrap());
    let signing = |app: &TestApp| with(app, FingerprintKeys::none().with(1, SECRET).unwrap());
    // While instances of both are running, each of them may get the first request.
    assert_eq!(with_settings([none, recognizing]), Retry::Replayed);
    assert_eq!(with_settings([recognizing, none]), Retry::Replayed);
    assert_eq!(with_settings([recognizing, signing]), Retry::Replayed);
    assert_eq!(with_settings([signing, recognizing]), Retry::Replayed);
    // In one step, the instances without the key refuse what the others have signed.
    assert_eq!(with_settings([signing, none]), Retry::Refused);
}
