//! Which principal a key belongs to.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse, ResponseError,
    http::StatusCode,
    post,
    web::{Data, Path, ReqData, ServiceConfig},
};
use idempotent_actix::{
    idempotent,
    scope::{self, ScopeId},
};
use std::fmt;
use test_support::{Op, Probe, Request, TestApp};

use super::handlers::{User, all, assert_nothing_leaks, assert_problem};

#[derive(Debug)]
struct Banned;

impl fmt::Display for Banned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("you are banned")
    }
}

impl ResponseError for Banned {
    fn status_code(&self) -> StatusCode {
        StatusCode::FORBIDDEN
    }
}

fn header(request: &HttpRequest) -> Option<String> {
    Some(request.headers().get("x-user")?.to_str().ok()?.to_owned())
}

fn text(request: &HttpRequest) -> String {
    header(request).unwrap_or_default()
}

fn checked(request: &HttpRequest) -> Result<Option<String>, Banned> {
    if text(request) == "mallory" { Err(Banned) } else { Ok(header(request)) }
}

fn with_a_kind(request: &HttpRequest) -> Option<ScopeId> {
    header(request).map(|user| ScopeId::of("account", user))
}

macro_rules! scoped {
    ($($name:ident $path:literal $scope:literal;)*) => {
        $(
            #[idempotent(scope = $scope)]
            #[post($path)]
            async fn $name(probe: Data<Probe>) -> HttpResponse {
                probe.run().await
            }
        )*

        pub(super) fn services(config: &mut ServiceConfig) {
            config$(.service($name))*.service(by_option).service(by_path);
        }
    };
}

scoped! {
    by_header "/by-header" "header";
    by_text "/by-text" "text";
    by_check "/by-check" "checked";
    by_kind "/by-kind" "with_a_kind";
    by_token "/by-token" "scope::bearer_token";
    by_address "/by-address" "scope::peer_ip";
    by_all "/by-all" "scope::global";
}

#[idempotent(scope = "user")]
#[post("/by-option")]
async fn by_option(user: Option<User>, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{user:?}"));
    probe.run().await
}

#[idempotent(scope = "tenant")]
#[post("/tenants/{tenant}/payments")]
async fn by_path(tenant: Path<String>, probe: Data<Probe>) -> HttpResponse {
    probe.note(tenant.into_inner());
    probe.run().await
}

#[test]
fn a_request_without_a_principal_is_refused() {
    let app = TestApp::new();
    let server = app.serve(services);
    for path in ["/by-header", "/by-text", "/by-check", "/by-kind", "/by-option", "/by-token"] {
        let response = server.send(&Request::post(path).key("k"));
        assert_eq!(assert_problem(&response, 401, "scope_missing", false), None);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    }
    for path in ["/by-header", "/by-text", "/by-check", "/by-kind"] {
        assert_problem(
            &server.send(&Request::post(path).user("").key("k")),
            401,
            "scope_missing",
            false,
        );
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn a_scope_may_refuse_with_a_custom_response() {
    let app = TestApp::new();
    let server = app.serve(services);
    let response = server.send(&Request::post("/by-check").user("mallory").key("k"));
    assert_eq!(
        (response.status, response.text(), response.header("link")),
        (403, "you are banned", None)
    );
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
    assert_eq!(server.send(&Request::post("/by-check").user("alice").key("k")).status, 201);
}

#[test]
fn each_principal_has_separate_keys() {
    let app = TestApp::new();
    let server = app.serve(services);
    for path in ["/by-header", "/by-text", "/by-check", "/by-kind", "/by-option"] {
        let runs = app.probe.runs();
        let request = |user: &str| Request::post(path).user(user).key("k");
        let (alice, bob) = (server.send(&request("alice")), server.send(&request("bob")));
        assert_eq!((alice.status, bob.status, bob.is_replay()), (201, 201, false), "{path}");
        assert_ne!(alice.body, bob.body);
        server.send(&request("alice")).assert_replays(&alice);
        server.send(&request("bob")).assert_replays(&bob);
        assert_eq!(app.probe.runs(), runs + 2);
    }
}

#[test]
fn the_supplied_scopes_distinguish_what_they_document() {
    let app = TestApp::new();
    let server = app.serve(services);
    let token = |token: &str| {
        Request::post("/by-token").key("k").header("Authorization", format!("Bearer {token}"))
    };
    let first = server.send(&token("a"));
    server.send(&token("a")).assert_replays(&first);
    assert!(!server.send(&token("b")).is_replay());
    assert_eq!(app.probe.runs(), 2);
    for path in ["/by-address", "/by-all"] {
        let first = server.send(&Request::post(path).key("k").user("alice"));
        server.send(&Request::post(path).key("k").user("bob")).assert_replays(&first);
    }
    assert_eq!(app.probe.runs(), 4);
}

#[test]
fn a_path_parameter_can_be_the_scope() {
    let app = TestApp::new();
    let server = app.serve(services);
    let one = server.send(&Request::post("/tenants/1/payments").key("k"));
    let two = server.send(&Request::post("/tenants/2/payments").key("k"));
    assert_eq!((one.status, two.status, two.is_replay()), (201, 201, false));
    server.send(&Request::post("/tenants/1/payments").key("k")).assert_replays(&one);
    assert_eq!(app.probe.notes(), ["1", "2"]);
}

#[test]
fn an_extractor_that_refuses_sends_its_own_response_and_leaves_no_record() {
    let app = TestApp::new();
    let response = app.serve(all).send(&Request::post("/payments").key("k"));
    assert_eq!((response.status, response.text()), (401, "the extractor's response"));
    assert_eq!(
        (response.header("link"), response.header("content-type")),
        (None, Some("text/plain; charset=utf-8"))
    );
    assert_nothing_leaks(&response);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[derive(Clone, Debug)]
struct Login(String);

impl idempotent_actix::scope::ScopeKey for Login {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("login", self.0.as_str()))
    }
}

#[idempotent(scope = "login")]
#[post("/by-middleware")]
async fn by_middleware(login: ReqData<Login>, probe: Data<Probe>) -> HttpResponse {
    probe.note(login.into_inner().0);
    probe.run().await
}

#[test]
fn data_from_middleware_can_be_the_scope() {
    use actix_web::{App, dev::Service};
    let app = TestApp::new();
    let setup = app.setup();
    let server = test_support::Server::start(move || {
        App::new().configure(&setup).service(by_middleware).wrap_fn(|request, service| {
            if let Some(user) = header(request.request()) {
                request.extensions_mut().insert(Login(user));
            }
            service.call(request)
        })
    });
    let request = |user: &str| Request::post("/by-middleware").user(user).key("k");
    let (alice, bob) = (server.send(&request("alice")), server.send(&request("bob")));
    server.send(&request("alice")).assert_replays(&alice);
    server.send(&request("bob")).assert_replays(&bob);
    assert_eq!(
        server.send(&Request::post("/by-middleware").key("k")).status,
        500,
        "the response of `ReqData`"
    );
    assert_eq!(app.probe.notes(), ["alice", "bob"]);
}
