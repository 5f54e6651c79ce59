//! Middleware around a guarded handler processes a replay like a new response.

use actix_session::{Session, SessionMiddleware, storage::CookieSessionStore};
use actix_web::{
    App, HttpResponse,
    cookie::{Cookie, Key},
    dev::Service,
    http::header::{self, HeaderValue},
    middleware::{Compress, DefaultHeaders, Logger},
    post,
    web::Data,
};
use idempotent_actix::{Operation, idempotent};
use test_support::{Probe, Request, Server, World};

use super::handlers::{User, all};

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

#[test]
fn compression_is_applied_to_replays_as_the_client_asks() {
    let long = "a word that can be compressed ".repeat(200);
    let body = long.clone();
    let world = World::responding(move |_| {
        HttpResponse::Ok().content_type("text/plain").body(body.clone())
    });
    let setup = world.setup();
    let server = Server::start(move || {
        App::new().configure(&setup).configure(all).wrap(Compress::default())
    });
    let zipped = pay().header("Accept-Encoding", "gzip");
    let (first, replay) = (server.send(&zipped), server.send(&zipped));
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert!(first.body.len() < 1000 && first.body.starts_with(&[0x1f, 0x8b]));
    replay.assert_replays(&first);
    let plain = server.send(&pay().header("Accept-Encoding", "identity"));
    assert_eq!(
        (plain.header("content-encoding"), plain.text(), plain.is_replay()),
        (None, &*long, true)
    );
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn headers_that_middleware_adds_are_current() {
    let world = World::new();
    let (setup, probe) = (world.setup(), world.probe.clone());
    let server = Server::start(move || {
        let probe = probe.clone();
        App::new()
            .configure(&setup)
            .configure(all)
            .wrap(
                DefaultHeaders::new()
                    .add(("X-Served-By", "a"))
                    .add(("Location", "not the handler's")),
            )
            .wrap(Logger::default())
            .wrap_fn(move |request, service| {
                let origin = request.headers().get(header::ORIGIN).cloned();
                let (response, probe) = (service.call(request), probe.clone());
                async move {
                    let mut response = response.await?;
                    if let Some(origin) = origin {
                        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                    }
                    probe.note("seen");
                    let seen = HeaderValue::from(
                        probe.notes().iter().filter(|note| *note == "seen").count(),
                    );
                    response.headers_mut().insert(header::HeaderName::from_static("x-seen"), seen);
                    Ok(response)
                }
            })
    });
    let first = server.send(&pay().header("Origin", "https://a.example"));
    let replay = server.send(&pay().header("Origin", "https://b.example"));
    for (response, origin, seen) in
        [(&first, "https://a.example", "1"), (&replay, "https://b.example", "2")]
    {
        assert_eq!(response.header("access-control-allow-origin"), Some(origin));
        assert_eq!(
            (response.header("x-seen"), response.header("x-served-by")),
            (Some(seen), Some("a"))
        );
        assert_eq!(
            response.header("location"),
            Some("/payments/1"),
            "the default does not replace the handler's own"
        );
    }
    assert_eq!(
        (replay.is_replay(), first.body == replay.body, world.probe.runs()),
        (true, true, 1)
    );
}

#[idempotent(scope = "user")]
#[post("/session")]
async fn session(
    user: User,
    session: Session,
    operation: Operation,
    probe: Data<Probe>,
) -> HttpResponse {
    session.insert("attempt", operation.attempt()).unwrap();
    probe.note(user.0);
    let mut response = probe.run().await;
    response.add_cookie(&Cookie::new("own", "secret")).unwrap();
    response
}

#[test]
fn a_session_that_the_handler_changes_is_set_for_its_own_client_only() {
    let world = World::new();
    let setup = world.setup();
    let server = Server::start(move || {
        let sessions = SessionMiddleware::new(CookieSessionStore::default(), Key::from(&[7; 64]));
        App::new().configure(&setup).service(session).wrap(sessions)
    });
    let request = Request::post("/session").user("alice").key("k");
    let (first, replay) = (server.send(&request), server.send(&request));
    let cookies = first.lines("set-cookie");
    assert_eq!((first.status, cookies.len()), (201, 2), "{cookies:?}");
    assert!(cookies.iter().any(|cookie| cookie.starts_with("own=secret")));
    assert!(
        cookies.iter().any(|cookie| cookie.starts_with("id=")),
        "the session reaches middleware from the spawned work"
    );
    assert_eq!((replay.is_replay(), replay.lines("set-cookie")), (true, Vec::new()));
    assert_eq!((first.body == replay.body, world.probe.runs()), (true, 1));
}
