//! Panics outside of the handler: in scope and fingerprint functions, in destructors, and in
//! response bodies.

use std::io;

use actix_web::{
    HttpRequest, HttpResponse, post,
    web::{Bytes, Data, ServiceConfig},
};
use futures_util::{StreamExt, stream};
use idempotent_actix::{idempotent, scope};
use test_support::{Probe, Request, TestApp};

use super::handlers::assert_problem;

fn panicking_scope(_: &HttpRequest) -> String {
    panic!("the scope function panics")
}

fn panicking_fingerprint(_: &HttpRequest, _: &[u8]) -> Vec<u8> {
    panic!("the fingerprint function panics")
}

#[idempotent(scope = "panicking_scope")]
#[post("/panicking-scope")]
async fn scope_panics(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "scope::global", fingerprint = "panicking_fingerprint")]
#[post("/panicking-fingerprint")]
async fn fingerprint_panics(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// Panics when it is dropped in the first run of its handler.
struct PanicsOnDrop(Data<Probe>);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        assert!(self.0.runs() > 1 || std::thread::panicking(), "a destructor panics");
    }
}

#[idempotent(scope = "scope::global")]
#[post("/panic-on-drop")]
async fn panic_on_drop(probe: Data<Probe>) -> HttpResponse {
    let _guard = PanicsOnDrop(probe.clone());
    probe.run().await
}

#[idempotent(scope = "scope::global", timeout = "100ms")]
#[post("/panic-on-drop-after-timeout")]
async fn panic_on_drop_after_timeout(probe: Data<Probe>) -> HttpResponse {
    let _guard = PanicsOnDrop(probe.clone());
    probe.run().await
}

#[idempotent(scope = "scope::global")]
#[post("/streaming")]
async fn streaming(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config
        .service(scope_panics)
        .service(fingerprint_panics)
        .service(panic_on_drop)
        .service(panic_on_drop_after_timeout)
        .service(streaming);
}

fn send(app: &TestApp, path: &str) -> test_support::ClientResponse {
    app.serve(services).send(&Request::post(path).key("k"))
}

#[test]
fn a_scope_or_fingerprint_function_that_panics_is_a_misconfiguration() {
    let app = TestApp::new();
    for path in ["/panicking-scope", "/panicking-fingerprint"] {
        assert_problem(&send(&app, path), 500, "misconfigured", false);
    }
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn a_destructor_that_panics_abandons_the_attempt() {
    let app = TestApp::new();
    assert_problem(&send(&app, "/panic-on-drop"), 500, "handler_failed", true);
    assert_eq!(send(&app, "/panic-on-drop").status, 201);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_destructor_that_panics_after_the_time_limit_abandons_the_attempt() {
    let app = TestApp::new();
    app.probe.hold();
    assert_problem(&send(&app, "/panic-on-drop-after-timeout"), 503, "handler_timed_out", true);
    app.probe.release_all();
    assert_eq!(send(&app, "/panic-on-drop-after-timeout").status, 201);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_body_that_panics_abandons_the_attempt() {
    let app = TestApp::responding(|run| {
        let pieces = stream::iter([0, 1]).map(move |index| {
            assert!(index == 0 || run > 1, "the stream panics");
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        });
        HttpResponse::Ok().content_type("text/plain").streaming(pieces)
    });
    assert_problem(&send(&app, "/streaming"), 500, "handler_failed", true);
    assert_eq!(send(&app, "/streaming").text(), "xx");
}

#[test]
fn operations_that_panicked_are_not_in_flight() {
    let app = TestApp::with(Probe::responding(|_| panic!("the handler panics")), |builder| {
        builder.operations_in_flight(1)
    });
    for _ in 0..3 {
        assert_problem(&send(&app, "/streaming"), 500, "handler_failed", true);
    }
}
