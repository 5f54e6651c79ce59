//! Scopes from actix-identity and actix-web-httpauth.

use actix_identity::{Identity, IdentityMiddleware};
use actix_session::{SessionMiddleware, storage::CookieSessionStore};
use actix_web::{
    App, HttpMessage, HttpRequest, HttpResponse, Responder,
    cookie::Key,
    get, post,
    web::{self, Data},
};
use actix_web_httpauth::extractors::{basic::BasicAuth, bearer::BearerAuth};
use idempotent_actix::idempotent;
use test_support::{ClientResponse, Probe, Request, Server, TestApp};

#[get("/login/{name}")]
async fn login(request: HttpRequest, name: web::Path<String>) -> impl Responder {
    Identity::login(&request.extensions(), name.into_inner()).unwrap();
    HttpResponse::Ok()
}

#[idempotent(scope = "identity")]
#[post("/by-identity")]
async fn by_identity(identity: Option<Identity>, probe: Data<Probe>) -> HttpResponse {
    drop(identity);
    probe.run().await
}

#[idempotent(scope = "token")]
#[post("/by-bearer")]
async fn by_bearer(token: BearerAuth, probe: Data<Probe>) -> HttpResponse {
    drop(token);
    probe.run().await
}

#[idempotent(scope = "user")]
#[post("/by-basic")]
async fn by_basic(user: BasicAuth, probe: Data<Probe>) -> HttpResponse {
    drop(user);
    probe.run().await
}

fn serve(app: &TestApp) -> Server {
    let setup = app.setup();
    Server::start(move || {
        let session =
            SessionMiddleware::builder(CookieSessionStore::default(), Key::from(&[7; 64]));
        App::new()
            .configure(&setup)
            .wrap(IdentityMiddleware::default())
            .wrap(session.cookie_secure(false).build())
            .service(login)
            .service(by_identity)
            .service(by_bearer)
            .service(by_basic)
    })
}

/// Sends the same key as alice, as alice again, and as bob.
fn send_as_users(server: &Server, request: impl Fn(&str) -> Request) -> [ClientResponse; 3] {
    ["alice", "alice", "bob"].map(|user| server.send(&request(user).key("k")))
}

fn assert_distinguished(app: &TestApp, [first, again, other]: &[ClientResponse; 3]) {
    again.assert_replays(first);
    assert_eq!((other.status, other.is_replay()), (201, false));
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_session_identity_is_a_scope_and_a_missing_one_is_no_principal() {
    let app = TestApp::new();
    let server = serve(&app);
    let cookie = |user: &str| {
        let response = server.send(&Request::new("GET", &format!("/login/{user}")));
        response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    };
    let responses =
        send_as_users(&server, |user| Request::post("/by-identity").header("Cookie", cookie(user)));
    assert_distinguished(&app, &responses);
    let refused = server.send(&Request::post("/by-identity").key("k"));
    assert_eq!(refused.problem(), (401, "scope_missing".to_owned()));
}

#[test]
fn a_bearer_token_is_a_scope() {
    let app = TestApp::new();
    let server = serve(&app);
    let responses = send_as_users(&server, |user| {
        Request::post("/by-bearer").header("Authorization", format!("Bearer {user}"))
    });
    assert_distinguished(&app, &responses);
}

#[test]
fn a_basic_auth_user_name_is_a_scope_whatever_the_password() {
    let app = TestApp::new();
    let server = serve(&app);
    // Base64 of `alice:one`, `alice:two` and `bob:one`: the password is not part of the scope.
    let responses = ["YWxpY2U6b25l", "YWxpY2U6dHdv", "Ym9iOm9uZQ=="].map(|credentials| {
        let credentials = format!("Basic {credentials}");
        server.send(&Request::post("/by-basic").header("Authorization", credentials).key("k"))
    });
    assert_distinguished(&app, &responses);
}
