//! `FinishAfterDisconnect`: requests that it detaches are in flight, and a drain waits for them.
//! Also other ways to disconnect.

use std::{io::Write, net::TcpStream, time::Duration};

use actix_web::{App, HttpResponse, dev::Service, middleware::Logger, post, web::Data};
use idempotent_actix::{FinishAfterDisconnect, Idempotency, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Request, Server, wait_for};

#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/pay")]
async fn pay(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// A server whose middleware continues after the handler, until `after` releases it.
fn serve(idempotency: &Idempotency, probe: &Probe, after: &Probe) -> Server {
    let (idempotency, probe, after) = (idempotency.clone(), probe.clone(), after.clone());
    Server::start(move || {
        let after = after.clone();
        let app = App::new()
            .app_data(idempotency.clone())
            .app_data(Data::new(probe.clone()))
            .service(pay);
        app.wrap(FinishAfterDisconnect)
            .wrap_fn(move |request, service| {
                let (response, after) = (service.call(request), after.clone());
                async move {
                    let response = response.await;
                    after.run().await;
                    after.note("saved");
                    response
                }
            })
            .wrap(Logger::default())
            .wrap(FinishAfterDisconnect)
    })
}

fn request(key: &str) -> Request {
    Request::post("/pay").key(key)
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn send(server: &Server, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    stream
}

#[test]
fn a_drain_waits_for_detached_middleware() {
    let (probe, after) = (Probe::new(), Probe::new());
    let idempotency = Idempotency::new(MemoryStore::new());
    let server = serve(&idempotency, &probe, &after);
    after.hold();
    let stream = send(&server, &request("k").bytes());
    after.await_runs(1);
    reset(stream);
    assert!(!wait_for("a drain", idempotency.drain(Duration::from_millis(100))));
    after.release_all();
    assert!(wait_for("a drain", idempotency.drain(Duration::from_secs(10))));
    assert_eq!(after.notes(), ["saved"]);
}

#[test]
fn a_request_with_detached_middleware_is_in_flight() {
    let (probe, after) = (Probe::new(), Probe::new());
    let idempotency = Idempotency::builder(MemoryStore::new()).operations_in_flight(3).build();
    let server = serve(&idempotency, &probe, &after);
    after.hold();
    for key in 0..3 {
        let stream = send(&server, &request(&key.to_string()).bytes());
        after.await_runs(key + 1);
        reset(stream);
    }
    let pending = server.begin(&request("3"));
    after.await_runs(4);
    assert_eq!(probe.runs(), 3, "the fourth request reached its handler");
    after.release_all();
    assert_eq!(pending.response().problem().1, "overloaded");
    // An operation ends once its middleware has ended, possibly after the response above.
    let retry = loop {
        let retry = server.send(&request("3"));
        if retry.status != 503 {
            break retry;
        }
    };
    assert_eq!(retry.status, 201);
}

#[test]
fn pipelined_requests_whose_client_disconnects_run_once_each() {
    let (probe, after) = (Probe::new(), Probe::new());
    let idempotency = Idempotency::new(MemoryStore::new());
    let server = serve(&idempotency, &probe, &after);
    probe.hold();
    let stream = send(&server, &[request("first").bytes(), request("second").bytes()].concat());
    probe.await_runs(1);
    reset(stream);
    let first = server.begin(&request("first"));
    probe.release_all();
    assert!(first.response().is_replay());
    // If the server notices the reset only after the first run, it also runs the second request.
    // Either way that request runs once.
    assert_eq!(server.send(&request("second")).status, 201);
    assert_eq!(probe.runs(), 2);
}

/// The connection stays open, and only the future of the response is dropped.
#[test]
fn middleware_that_drops_the_response_future_does_not_drop_the_operation() {
    let probe = Probe::new();
    let idempotency = Idempotency::new(MemoryStore::new());
    let data = Data::new(probe.clone());
    let server = Server::start(move || {
        let app = App::new().app_data(idempotency.clone()).app_data(data.clone()).service(pay);
        app.wrap_fn(|request, service| {
            let times_out = request.headers().contains_key("x-times-out");
            let response = service.call(request);
            async move {
                let limit = Duration::from_millis(if times_out { 100 } else { 60_000 });
                let late = |_| actix_web::error::ErrorGatewayTimeout("late");
                tokio::time::timeout(limit, response).await.map_err(late)?
            }
        })
    });
    probe.hold();
    let late = server.send(&request("k").header("x-times-out", "1"));
    assert_eq!((late.status, probe.runs()), (504, 1));
    let retry = server.begin(&request("k"));
    probe.release_all();
    assert!(retry.response().is_replay());
    assert_eq!(probe.runs(), 1);
}
