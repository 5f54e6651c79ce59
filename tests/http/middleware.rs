//! Middleware around a guarded handler processes a replay like any other response.

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
use test_support::{Probe, Request, Server, TestApp};

use super::handlers::{User, all};

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

#[test]
fn a_replay_is_compressed_as_its_client_requests() {
    let long = "a word that can be compressed ".repeat(200);
    let body = long.clone();
    let app = TestApp::responding(move |_| {
        HttpResponse::Ok().content_type("text/plain").body(body.clone())
    });
    let setup = app.setup();
    let server = Server::start(move || {
        App::new().configure(&setup).configure(all).wrap(Compress::default())
    });
    let compressed = pay().header("Accept-Encoding", "gzip");
    let (first, replay) = (server.send(&compressed), server.send(&compressed));
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert!(first.body.len() < 1000 && first.body.starts_with(&[0x1f, 0x8b]));
    replay.assert_replays(&first);
    let plain = server.send(&pay().header("Accept-Encoding", "identity"));
    assert_eq!(
        (plain.header("content-encoding"), plain.text(), plain.is_replay()),
        (None, &*long, true)
    );
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn middleware_adds_current_headers_to_a_replay() {
    let app = TestApp::new();
    let (setup, probe) = (app.setup(), app.probe.clone());
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
            "the default header replaced the handler's"
        );
    }
    assert_eq!((replay.is_replay(), first.body == replay.body, app.probe.runs()), (true, true, 1));
}

#[idempotent(scope = "user")]
#[post("/session")]
async fn session(
    user: User,
    session: Session,
    operation: Operation,
    probe: Data<Probe>,
) -> HttpResponse {
    session.insert("attempt", operation.attempt().unwrap()).unwrap();
    probe.note(user.0);
    let mut response = probe.run().await;
    response.add_cookie(&Cookie::new("own", "secret")).unwrap();
    response
}

#[test]
fn a_session_cookie_that_the_handler_sets_is_not_replayed() {
    let app = TestApp::new();
    let setup = app.setup();
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
        "the middleware did not see the handler's change of the session"
    );
    assert_eq!((replay.is_replay(), replay.lines("set-cookie")), (true, Vec::new()));
    assert_eq!((first.body == replay.body, app.probe.runs()), (true, 1));
}
