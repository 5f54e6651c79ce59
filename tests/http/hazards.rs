//! Unusual behavior of applications and clients.

use std::{
    future::{Ready, ready},
    io,
};

use actix_web::{
    App, Error, FromRequest, HttpMessage, HttpRequest, HttpResponse,
    body::SizedStream,
    dev::{Payload, Service, ServiceRequest},
    post,
    web::{self, Bytes, Data, ServiceConfig},
};
use futures_util::{StreamExt, stream};
use idempotent_actix::{
    Key, RecordId, idempotent,
    scope::{self, IntoScopeKey, ScopeId},
};
use test_support::{Op, Probe, Request, Server, TestApp};

#[idempotent(scope = "scope::global")]
#[post("/pay")]
async fn pay(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn an_empty_scope_nested_in_a_tenant_is_no_principal() {
    let empty = ScopeId::of("user", "").nested_in(&ScopeId::of("tenant", "7"));
    assert!(
        matches!(empty.into_scope_key(), Err(None)),
        "unauthenticated requests of a tenant share a scope"
    );
}

#[test]
fn the_kind_of_the_outer_scope_is_part_of_the_record_id() {
    let user = || ScopeId::of("user", "5");
    let key = Key::from_text("k").unwrap();
    let id = |scope: &ScopeId| RecordId::new("tests", scope, "POST /p", &key);
    assert_ne!(
        id(&user().nested_in(&ScopeId::of("tenant", "7"))),
        id(&user().nested_in(&ScopeId::of("account", "7")))
    );
}

#[test]
fn a_truncated_response_is_not_recorded_as_complete() {
    let app = TestApp::responding(|run| {
        let piece = if run == 1 { "12345" } else { "1234567890" };
        let body = stream::iter([Ok::<_, io::Error>(Bytes::from_static(piece.as_bytes()))]);
        HttpResponse::Created().body(SizedStream::new(10, body))
    });
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(pay);
    });
    let first = server.begin(&Request::post("/pay").key("k")).try_response();
    let second = server.send(&Request::post("/pay").key("k"));
    assert!(
        first.as_ref().map_or(true, |first| first.status == 500),
        "a truncated response was sent as a success: {first:?}"
    );
    assert_eq!(second.text(), "1234567890");
}

/// actix does not expose which of two types of application data is nested deeper, so neither handle
/// is chosen.
#[test]
fn two_ambiguous_handles_are_a_misconfiguration() {
    let (outer, inner) = (TestApp::new(), TestApp::new());
    let handles = (outer.idempotency.clone(), inner.idempotency.clone());
    let probe = outer.probe.clone();
    let server = Server::start(move || {
        App::new()
            .app_data(handles.0.clone())
            .app_data(Data::new(probe.clone()))
            .service(web::scope("/inner").app_data(Data::new(handles.1.clone())).service(pay))
    });
    assert_eq!(
        server.send(&Request::post("/inner/pay").key("k")).problem(),
        (500, "misconfigured".to_owned())
    );
    assert_eq!(
        (outer.probe.runs(), outer.store.calls(Op::Claim), inner.store.calls(Op::Claim)),
        (0, 0, 0)
    );
}

/// An extractor that reads the body in a separate task, like one that spools it to a file.
struct SpooledBody;
struct NoteOnDrop(Data<Probe>);
impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.note("the reader ended");
    }
}

impl FromRequest for SpooledBody {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mut payload = payload.take();
        let ended = NoteOnDrop(request.app_data::<Data<Probe>>().unwrap().clone());
        actix_web::rt::spawn(async move {
            ended.0.note("reading");
            while let Some(Ok(_)) = payload.next().await {}
            drop(ended);
        });
        ready(Ok(Self))
    }
}

#[idempotent(scope = "scope::global", key = "optional")]
#[post("/spool")]
async fn spool(_body: SpooledBody, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

fn abort_upload(key: bool) {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(spool);
    });
    let request = Request::post("/spool").without_length().header("Content-Length", "10");
    let request = if key { request.key("k") } else { request };
    let upload = server.begin_raw(&[request.bytes(), b"12345".to_vec()].concat());
    app.probe.await_note("reading");
    drop(upload);
    app.probe.await_note("the reader ended");
}

#[test]
fn without_a_key_the_reader_of_an_aborted_upload_ends() {
    abort_upload(false);
}
#[test]
fn with_a_key_the_reader_of_an_aborted_upload_ends() {
    abort_upload(true);
}

#[test]
fn a_body_that_middleware_has_taken_is_not_treated_as_empty() {
    let app = TestApp::new();
    let setup = app.setup();
    let server = Server::start(move || {
        let taking = |mut request: ServiceRequest, service: &_| {
            drop(request.take_payload());
            Service::call(service, request)
        };
        App::new().configure(&setup).service(web::scope("").wrap_fn(taking).service(pay))
    });
    let one = server.send(&Request::post("/pay").key("k").body("amount=1"));
    let two = server.send(&Request::post("/pay").key("k").body("amount=2"));
    assert_eq!([one.problem(), two.problem()], [(); 2].map(|()| (500, "misconfigured".to_owned())));
    assert_eq!(app.probe.runs(), 0);
}

/// `requests` and `httpx` send this for an iterator that yields nothing.
#[test]
fn an_empty_body_without_a_stated_length_is_a_body() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(seen);
    });
    let empty = Request::post("/seen").key("k").header("Content-Type", "application/json");
    let empty = empty.chunks([[]; 0]);
    let first = server.send(&empty);
    assert_eq!(first.status, 201, "{}", first.text());
    server.send(&empty).assert_replays(&first);
    let other = Request::post("/seen").key("k").json("{}");
    assert_eq!(server.send(&other).problem(), (422, "key_reused".to_owned()));
    assert_eq!(app.probe.notes(), ["0"]);
}

#[test]
fn a_body_without_a_stated_length_that_middleware_has_taken_is_not_treated_as_empty() {
    let app = TestApp::new();
    let setup = app.setup();
    let server = Server::start(move || {
        let taking = |mut request: ServiceRequest, service: &_| {
            drop(request.take_payload());
            Service::call(service, request)
        };
        App::new().configure(&setup).service(web::scope("").wrap_fn(taking).service(seen))
    });
    let taken = server.send(&Request::post("/seen").key("k").chunks(["amount=1"]));
    assert_eq!(taken.problem(), (500, "misconfigured".to_owned()));
    assert_eq!(app.probe.runs(), 0);
}

#[idempotent(scope = "scope::global")]
#[post("/seen")]
async fn seen(body: Bytes, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{}", body.len()));
    probe.run().await
}

#[test]
fn the_same_bytes_with_another_content_encoding_are_a_different_request() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(seen);
    });
    let zipped: &[u8] =
        &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 75, 76, 74, 6, 0, 194, 65, 36, 53, 3, 0, 0, 0];
    let one = server
        .send(&Request::post("/seen").key("k").header("Content-Encoding", "gzip").body(zipped));
    let two = server.send(&Request::post("/seen").key("k").body(zipped));
    assert_eq!(one.status, 201, "{}", one.text());
    assert!(!two.is_replay(), "a different request was replayed: {:?}", app.probe.notes());
}

/// actix-http treats the rest of the connection as the body of such a request, but its body ends
/// after the declared length.
#[test]
fn a_request_that_asks_for_a_websocket_gets_a_response() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(pay);
    });
    let upgrade = |key: &str| {
        // actix-http inspects every line of `Upgrade`.
        let request =
            Request::post("/pay").key(key).header("Connection", "Upgrade").header("Upgrade", "h2c");
        request.header("Upgrade", " WebSocket ").header("Sec-WebSocket-Version", "13")
    };
    for (key, body) in [("without a body", ""), ("with a body", "pay 1")] {
        let first = server.send(&upgrade(&key.replace(' ', "-")).body(body));
        assert_eq!(first.status, 201, "{key}");
        assert!(server.send(&upgrade(&key.replace(' ', "-")).body(body)).is_replay(), "{key}");
    }
    assert_eq!(server.send(&upgrade("with-a-body").body("pay 2")).status, 422);
    assert_eq!(app.probe.runs(), 2);
}

#[idempotent(scope = "scope::global", key = "optional")]
#[post("/note")]
async fn note(probe: Data<Probe>, body: String) -> HttpResponse {
    probe.note(body);
    probe.run().await
}

#[test]
fn a_request_without_a_key_that_asks_for_a_websocket_gets_a_response() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(note);
    });
    for body in ["", "a body"] {
        assert_eq!(
            server.send(&Request::post("/note").header("Upgrade", "websocket").body(body)).status,
            201
        );
    }
    assert_eq!(app.probe.notes(), ["", "a body"]);
}
