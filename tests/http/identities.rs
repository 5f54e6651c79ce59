//! Scopes from the crates that actix applications authenticate with.

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
use test_support::{ClientResponse, Probe, Request, Server, World};

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

fn serve(world: &World) -> Server {
    let setup = world.setup();
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

/// Sends one key as one user, again as the same, and as another.
fn three(server: &Server, request: impl Fn(&str) -> Request) -> [ClientResponse; 3] {
    ["alice", "alice", "bob"].map(|user| server.send(&request(user).key("k")))
}

fn assert_distinguished(world: &World, [first, again, other]: &[ClientResponse; 3]) {
    again.assert_replays(first);
    assert_eq!((other.status, other.is_replay()), (201, false));
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn the_identity_of_a_session_is_a_scope_and_without_one_there_is_no_principal() {
    let world = World::new();
    let server = serve(&world);
    let cookie = |user: &str| {
        let response = server.send(&Request::new("GET", &format!("/login/{user}")));
        response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    };
    let responses =
        three(&server, |user| Request::post("/by-identity").header("Cookie", cookie(user)));
    assert_distinguished(&world, &responses);
    let refused = server.send(&Request::post("/by-identity").key("k"));
    assert_eq!(refused.problem(), (401, "scope_missing".to_owned()));
}

#[test]
fn the_token_of_a_bearer_is_a_scope() {
    let world = World::new();
    let server = serve(&world);
    let responses = three(&server, |user| {
        Request::post("/by-bearer").header("Authorization", format!("Bearer {user}"))
    });
    assert_distinguished(&world, &responses);
}

#[test]
fn the_name_of_a_basic_user_is_a_scope_whatever_the_password() {
    let world = World::new();
    let server = serve(&world);
    // alice:, alice:, bob:
    let credentials = |user: &str| if user == "alice" { "YWxpY2U6" } else { "Ym9iOg==" };
    let basic = |user: &str| {
        Request::post("/by-basic").header("Authorization", format!("Basic {}", credentials(user)))
    };
    assert_distinguished(&world, &three(&server, basic));
}
