//! Two `Idempotency` in one application, and two handlers of one operation.

use actix_web::{
    App, HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{Idempotency, idempotent, scope};
use test_support::{Probe, Request, Server, TestApp, log};

use super::handlers::{all, assert_problem};

/// Defines handlers that note nothing and run the probe.
macro_rules! handlers {
    ($($name:ident $path:literal $(, $key:ident = $value:literal)*;)*) => { $(
        #[idempotent(scope = "scope::global" $(, $key = $value)*)]
        #[post($path)]
        async fn $name(probe: Data<Probe>) -> HttpResponse {
            probe.run().await
        }
    )* };
}

handlers! {
    shared "/shared", name = "shared by two handles";
    by_host "/by-host", name = "shared by two namespaces";
    first_of_two "/first-of-two", name = "the same for two handlers";
    second_of_two "/second-of-two", name = "the same for two handlers";
    unnamed "/unnamed";
    named_like_it "/renamed", name = "POST /unnamed";
}

/// The old and the new route of one operation.
#[idempotent(scope = "scope::global", name = "POST /old")]
#[actix_web::routes]
#[post("/old")]
#[post("/new")]
async fn moving(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

type Services = fn(&mut ServiceConfig);

/// An application whose scope `/inner` has a handle of its own.
fn nested(outer: &Idempotency, inner: &Idempotency, services: Services) -> (Server, Probe) {
    let (outer, inner, probe) = (outer.clone(), inner.clone(), Probe::new());
    let data = probe.clone();
    let server = Server::start(move || {
        App::new()
            .app_data(outer.clone())
            .app_data(Data::new(data.clone()))
            .service(web::scope("/inner").app_data(inner.clone()).configure(services))
            .configure(services)
    });
    (server, probe)
}

fn lines_with(text: &str) -> Vec<String> {
    log::captured().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

#[test]
fn a_scope_with_a_handle_of_its_own_uses_its_store() {
    let [outer, inner] = [TestApp::new(), TestApp::new()];
    let (server, probe) = nested(&outer.idempotency, &inner.idempotency, all);
    let pay = |path: &str| Request::post(path).user("alice").key("k").body("b");
    for path in ["/payments", "/inner/payments"] {
        let first = server.send(&pay(path));
        assert_eq!((first.status, first.is_replay()), (201, false), "{path}");
        server.send(&pay(path)).assert_replays(&first);
    }
    assert_eq!(probe.runs(), 2);
    assert!(outer.record("alice", "POST /payments", "k").is_some());
    assert!(outer.record("alice", "POST /inner/payments", "k").is_none());
    assert!(inner.record("alice", "POST /inner/payments", "k").is_some());
}

#[test]
fn an_operation_with_two_handles_is_logged_once_with_both() {
    let outer = TestApp::new().idempotency;
    let inner = TestApp::new().idempotency;
    let (server, probe) = nested(&outer, &inner, |config| {
        config.service(shared);
    });
    for key in ["k1", "k2"] {
        for path in ["/shared", "/inner/shared"] {
            assert_eq!(server.send(&Request::post(path).key(key)).status, 201, "{path}");
        }
    }
    assert_eq!(probe.runs(), 4);
    let lines = lines_with("shared by two handles");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in ["WARN", "two `Idempotency`", "handler=\"shared\"", "namespace"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(line.matches("`FaultyStore`, built at ").count(), 2, "{line}");
}

#[test]
fn handles_of_two_namespaces_may_share_an_operation() {
    let handle = |namespace| TestApp::set(|builder| builder.namespace(namespace)).idempotency;
    let (server, probe) = nested(&handle("one"), &handle("two"), |config| {
        config.service(by_host);
    });
    for path in ["/by-host", "/inner/by-host"] {
        assert_eq!(server.send(&Request::post(path).key("k")).status, 201, "{path}");
    }
    assert_eq!(probe.runs(), 2);
    assert_eq!(lines_with("shared by two namespaces"), Vec::<String>::new());
}

/// Sends a request with the same key to both paths, and returns what is logged about the name.
fn requests_to_both(services: Services, paths: [&str; 2], name: &str) -> Vec<String> {
    let app = TestApp::new();
    let server = app.serve(services);
    for path in [paths[0], paths[1], paths[0]] {
        assert_eq!(server.send(&Request::post(path).key("k")).status, 201, "{path}");
    }
    lines_with(name).into_iter().filter(|line| line.contains("one operation")).collect()
}

#[test]
fn two_handlers_of_one_name_are_logged_once_with_both() {
    let both: Services = |config| {
        config.service(first_of_two).service(second_of_two);
    };
    let name = "the same for two handlers";
    let lines = requests_to_both(both, ["/first-of-two", "/second-of-two"], name);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in ["ERROR", "first_of_two", "second_of_two"] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_name_that_is_the_default_one_of_another_handler_is_logged() {
    let both: Services = |config| {
        config.service(unnamed).service(named_like_it);
    };
    let lines = requests_to_both(both, ["/unnamed", "/renamed"], "POST /unnamed");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("\"unnamed\"") && line.contains("\"named_like_it\""), "{line}");
}

#[test]
fn one_handler_may_have_the_old_and_the_new_route_of_an_operation() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(moving);
    });
    let first = server.send(&Request::post("/old").key("k"));
    assert_eq!(first.status, 201);
    server.send(&Request::post("/new").key("k")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
    let logged = lines_with("POST /old").into_iter().filter(|line| line.contains("one operation"));
    assert_eq!(logged.count(), 0);
}

#[test]
fn a_check_names_the_other_handles_of_the_process() {
    let mine = TestApp::set(|builder| builder.namespace("two handles")).idempotency;
    let other = TestApp::set(|builder| builder.namespace("two handles")).idempotency;
    for _ in 0..2 {
        drop(test_support::wait_for("the check", mine.check()));
    }
    let lines = lines_with("namespace=\"two handles\" handle=");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("WARN") && line.contains("several `Idempotency`"), "{line}");
    assert_eq!(line.matches("`FaultyStore`, built at ").count(), 2, "{line}");
    drop(other);
}

#[idempotent(scope = "scope::global")]
#[post("/with-data")]
async fn with_data() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[test]
fn two_handles_at_one_place_are_both_named() {
    log::capture();
    let [one, other] = [TestApp::new(), TestApp::new()].map(|app| app.idempotency);
    let server = Server::start(move || {
        App::new().app_data(one.clone()).app_data(Data::new(other.clone())).service(with_data)
    });
    let refused = server.send(&Request::post("/with-data").key("k"));
    assert_problem(&refused, 500, "misconfigured", false);
    let lines = lines_with("/with-data");
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("two `Idempotency`")).collect();
    assert!(lines.len() == 1 && lines[0].matches("built at ").count() == 2, "{lines:?}");
}
