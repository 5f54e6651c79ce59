//! Unusual things that applications and clients may do.

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
use test_support::{Op, Probe, Request, Server, World};

#[idempotent(scope = "scope::global")]
#[post("/pay")]
async fn pay(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn an_empty_scope_within_a_tenant_is_no_principal() {
    let empty = ScopeId::of("user", "").nested_in(&ScopeId::of("tenant", "7"));
    assert!(
        matches!(empty.into_scope_key(), Err(None)),
        "all requests of a tenant without a principal share a scope"
    );
}

#[test]
fn the_kind_of_the_outer_scope_counts() {
    let user = || ScopeId::of("user", "5");
    let key = Key::parse(b"k").unwrap();
    let id = |scope: &ScopeId| RecordId::new("tests", scope, "POST /p", &key);
    assert_ne!(
        id(&user().nested_in(&ScopeId::of("tenant", "7"))),
        id(&user().nested_in(&ScopeId::of("account", "7")))
    );
}

#[test]
fn a_truncated_response_is_not_recorded_as_whole() {
    let world = World::responding(|run| {
        let piece = if run == 1 { "12345" } else { "1234567890" };
        let body = stream::iter([Ok::<_, io::Error>(Bytes::from_static(piece.as_bytes()))]);
        HttpResponse::Created().body(SizedStream::new(10, body))
    });
    let server = world.serve(|config: &mut ServiceConfig| {
        config.service(pay);
    });
    let first = server.begin(&Request::post("/pay").key("k")).try_response();
    let second = server.send(&Request::post("/pay").key("k"));
    assert!(
        first.as_ref().map_or(true, |first| first.status == 500),
        "half of the response as a success: {first:?}"
    );
    assert_eq!(second.text(), "1234567890");
}

/// actix does not expose which of two application data types is nested deeper, so neither is
/// chosen.
#[test]
fn two_handles_of_which_either_could_be_meant_guard_nothing() {
    let (outer, inner) = (World::new(), World::new());
    let (o, i, p) = (outer.idempotency.clone(), inner.idempotency.clone(), outer.probe.clone());
    let server = Server::start(move || {
        App::new()
            .app_data(o.clone())
            .app_data(Data::new(p.clone()))
            .service(web::scope("/inner").app_data(Data::new(i.clone())).service(pay))
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

/// An extractor that spools the body elsewhere while it arrives.
struct SpooledBody;
struct Ended(Data<Probe>);
impl Drop for Ended {
    fn drop(&mut self) {
        self.0.note("the reader ended");
    }
}

impl FromRequest for SpooledBody {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mut payload = payload.take();
        let ended = Ended(request.app_data::<Data<Probe>>().unwrap().clone());
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

fn spooled(key: bool) {
    let world = World::new();
    let server = world.serve(|config: &mut ServiceConfig| {
        config.service(spool);
    });
    let request = Request::post("/spool").without_length().header("Content-Length", "10");
    let request = if key { request.key("k") } else { request };
    let upload = server.begin_raw(&[request.bytes(), b"12345".to_vec()].concat());
    world.probe.await_note("reading");
    drop(upload);
    world.probe.await_note("the reader ended");
}

#[test]
fn a_reader_of_a_cut_off_upload_ends_without_a_key() {
    spooled(false);
}
#[test]
fn a_reader_of_a_cut_off_upload_ends_with_a_key() {
    spooled(true);
}

#[test]
fn a_body_that_middleware_has_taken_is_not_taken_for_an_empty_one() {
    let world = World::new();
    let setup = world.setup();
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
    assert_eq!(world.probe.runs(), 0);
}

#[idempotent(scope = "scope::global")]
#[post("/seen")]
async fn seen(body: Bytes, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{}", body.len()));
    probe.run().await
}

#[test]
fn the_same_bytes_in_another_encoding_are_another_request() {
    let world = World::new();
    let server = world.serve(|config: &mut ServiceConfig| {
        config.service(seen);
    });
    let zipped: &[u8] =
        &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 75, 76, 74, 6, 0, 194, 65, 36, 53, 3, 0, 0, 0];
    let one = server
        .send(&Request::post("/seen").key("k").header("Content-Encoding", "gzip").body(zipped));
    let two = server.send(&Request::post("/seen").key("k").body(zipped));
    assert_eq!(one.status, 201, "{}", one.text());
    assert!(!two.is_replay(), "another meaning, replayed: {:?}", world.probe.notes());
}

/// actix-http would treat the rest of the connection as the body of such a request. The body ends
/// after its declared length.
#[test]
fn a_request_that_asks_for_a_websocket_gets_a_response() {
    let world = World::new();
    let server = world.serve(|config: &mut ServiceConfig| {
        config.service(pay);
    });
    let upgrade = |key: &str| {
        // actix-http inspects every line.
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
    assert_eq!(world.probe.runs(), 2);
}

#[idempotent(scope = "scope::global", key = "optional")]
#[post("/note")]
async fn note(probe: Data<Probe>, body: String) -> HttpResponse {
    probe.note(body);
    probe.run().await
}

#[test]
fn a_request_without_a_key_that_asks_for_a_websocket_gets_a_response() {
    let world = World::new();
    let server = world.serve(|config: &mut ServiceConfig| {
        config.service(note);
    });
    for body in ["", "a body"] {
        assert_eq!(
            server.send(&Request::post("/note").header("Upgrade", "websocket").body(body)).status,
            201
        );
    }
    assert_eq!(world.probe.notes(), ["", "a body"]);
}
