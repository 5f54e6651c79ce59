//! Panics outside the handler: in functions of the attribute, in destructors, and in the body of a
//! response.

use std::io;

use actix_web::{
    HttpRequest, HttpResponse, post,
    web::{Bytes, Data, ServiceConfig},
};
use futures_util::{StreamExt, stream};
use idempotent_actix::{idempotent, scope};
use test_support::{Probe, Request, World};

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

/// Panics when it is dropped in the first run.
struct Bomb(Data<Probe>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.0.runs() > 1 || std::thread::panicking(), "a destructor panics");
    }
}

#[idempotent(scope = "scope::global")]
#[post("/bomb")]
async fn bomb(probe: Data<Probe>) -> HttpResponse {
    let _bomb = Bomb(probe.clone());
    probe.run().await
}

#[idempotent(scope = "scope::global", timeout = "100ms")]
#[post("/limited-bomb")]
async fn limited_bomb(probe: Data<Probe>) -> HttpResponse {
    let _bomb = Bomb(probe.clone());
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
        .service(bomb)
        .service(limited_bomb)
        .service(streaming);
}

fn send(world: &World, path: &str) -> test_support::ClientResponse {
    world.serve(services).send(&Request::post(path).key("k"))
}

#[test]
fn a_function_of_the_attribute_that_panics_is_a_misconfiguration() {
    let world = World::new();
    for path in ["/panicking-scope", "/panicking-fingerprint"] {
        assert_problem(&send(&world, path), 500, "misconfigured", false);
    }
    assert_eq!(world.probe.runs(), 0);
}

#[test]
fn a_destructor_that_panics_abandons_the_attempt() {
    let world = World::new();
    assert_problem(&send(&world, "/bomb"), 500, "handler_failed", true);
    assert_eq!(send(&world, "/bomb").status, 201);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_destructor_that_panics_after_the_time_limit_abandons_the_attempt() {
    let world = World::new();
    world.probe.hold();
    assert_problem(&send(&world, "/limited-bomb"), 503, "handler_timed_out", true);
    world.probe.release_all();
    assert_eq!(send(&world, "/limited-bomb").status, 201);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_body_that_panics_abandons_the_attempt() {
    let world = World::responding(|run| {
        let pieces = stream::iter([0, 1]).map(move |index| {
            assert!(index == 0 || run > 1, "the stream panics");
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        });
        HttpResponse::Ok().content_type("text/plain").streaming(pieces)
    });
    assert_problem(&send(&world, "/streaming"), 500, "handler_failed", true);
    assert_eq!(send(&world, "/streaming").text(), "xx");
}

#[test]
fn operations_that_panicked_are_not_in_flight() {
    let world = World::with(Probe::responding(|_| panic!("the handler panics")), |builder| {
        builder.operations_in_flight(1)
    });
    for _ in 0..3 {
        assert_problem(&send(&world, "/streaming"), 500, "handler_failed", true);
    }
}
