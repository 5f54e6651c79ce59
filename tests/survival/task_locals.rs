//! Task-locals of middleware, while the client stays and when it disconnects.

use std::{cell::Cell, io::Write, net::TcpStream};

use actix_web::{
    App, HttpResponse,
    dev::Service,
    post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{FinishAfterDisconnect, Idempotency, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Request, Server, log};

use super::disconnects::DropNotifier;

tokio::task_local! {
    static SEEN: Cell<u32>;
}

/// Reads and writes a task-local before and after the probe's pause, in which the client may
/// disconnect.
#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/work")]
async fn work(probe: Data<Probe>, _body: String) -> HttpResponse {
    SEEN.with(|seen| seen.set(seen.get() + 1));
    let response = probe.run().await;
    probe.note(format!("touches {}", SEEN.with(|seen| seen.get() + 1)));
    response
}

/// A server whose middleware sets the task-local, with or without `FinishAfterDisconnect` outside
/// of it.
fn serve(probe: &Probe, outermost: bool) -> Server {
    let (idempotency, probe, watched) =
        (Idempotency::new(MemoryStore::new()), probe.clone(), probe.clone());
    let services = move |config: &mut ServiceConfig| {
        config.app_data(idempotency.clone()).app_data(Data::new(probe.clone())).service(work);
    };
    Server::start(move || {
        let watched = watched.clone();
        let app = App::new().configure(&services).wrap_fn(move |request, service| {
            let (watch, response) = (DropNotifier::watch(&watched), service.call(request));
            async move {
                let response = SEEN.scope(Cell::new(0), response).await;
                watch.done();
                response
            }
        });
        app.wrap(actix_web::middleware::Condition::new(outermost, FinishAfterDisconnect))
    })
}

fn request(key: &str) -> Request {
    Request::post("/work").key(key).body("some work")
}

/// Sends a request and resets the connection once its handler runs.
fn disconnect(server: &Server, probe: &Probe, request: &Request) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(&request.bytes()).unwrap();
    probe.await_runs(1);
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
}

#[test]
fn a_guarded_handler_sees_the_task_locals_of_middleware() {
    log::capture();
    for outermost in [false, true] {
        let probe = Probe::new();
        let server = serve(&probe, outermost);
        let first = server.send(&request("k"));
        assert_eq!(first.status, 201);
        assert_eq!(probe.notes(), ["touches 2"]);
        server.send(&request("k")).assert_replays(&first);
        assert!(
            !log::captured().contains("panicked outside"),
            "a handler that has ended was run again"
        );
    }
}

#[test]
fn with_the_outermost_middleware_task_locals_outlive_a_disconnect() {
    let probe = Probe::new();
    let server = serve(&probe, true);
    probe.hold();
    disconnect(&server, &probe, &request("k"));
    let retry = server.begin(&request("k"));
    probe.release_all();
    probe.await_note("touches 2");
    let retry = retry.response();
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(probe.runs(), 1);
}

/// The panic abandons the attempt, and the log contains the reason.
#[test]
fn without_the_middleware_a_handler_that_needs_a_task_local_panics_after_a_disconnect() {
    log::capture();
    let probe = Probe::new();
    let server = serve(&probe, false);
    probe.hold();
    disconnect(&server, &probe, &request("k"));
    probe.await_note("future dropped");
    let retry = server.begin(&request("k"));
    probe.release_all();
    let retry = retry.response();
    assert!(!retry.is_replay() && retry.status == 201, "the retry did not run: {retry:?}");
    assert_eq!(probe.runs(), 2);
    let log = log::captured();
    let reasons: Vec<_> =
        log.lines().filter(|line| line.contains("an attempt was abandoned")).collect();
    let says =
        |reason: &&str| reason.contains("FinishAfterDisconnect") && reason.contains("task-locals");
    assert!(reasons.iter().any(says), "{reasons:?}");
}

#[test]
fn the_outermost_middleware_leaves_unguarded_requests_to_actix() {
    #[post("/plain")]
    async fn plain(probe: Data<Probe>) -> HttpResponse {
        let watch = DropNotifier::watch(&probe);
        let response = probe.run().await;
        watch.done();
        response
    }
    let probe = Probe::new();
    let data = Data::new(probe.clone());
    let server = Server::start(move || {
        App::new().app_data(data.clone()).service(plain).wrap(FinishAfterDisconnect)
    });
    probe.hold();
    disconnect(&server, &probe, &Request::post("/plain"));
    probe.await_note("future dropped");
}

/// An application's tests may call its handlers without a server and without a `LocalSet`.
#[tokio::test]
async fn a_guarded_handler_works_in_a_plain_tokio_test() {
    let probe = Probe::new();
    let idempotency = Idempotency::new(MemoryStore::new());
    let app = App::new().app_data(idempotency).app_data(Data::new(probe.clone())).service(work);
    let app = actix_web::test::init_service(app.wrap_fn(|request, service| {
        let response = service.call(request);
        async move { SEEN.scope(Cell::new(0), response).await }
    }))
    .await;
    let request = || {
        actix_web::test::TestRequest::post().uri("/work").insert_header(("Idempotency-Key", "k"))
    };
    for replayed in [false, true] {
        let response = actix_web::test::call_service(&app, request().to_request()).await;
        assert_eq!(
            (response.status().as_u16(), response.headers().contains_key("idempotency-replayed")),
            (201, replayed)
        );
    }
    assert_eq!(probe.runs(), 1);
}

/// Without a `LocalSet` nothing can be spawned: the attempt is dropped with a warning, and its
/// lease expires.
#[tokio::test]
async fn an_operation_that_is_dropped_without_a_local_set_is_logged() {
    log::capture();
    let probe = Probe::new();
    probe.hold();
    let idempotency = Idempotency::new(MemoryStore::new());
    let app = App::new().app_data(idempotency).app_data(Data::new(probe.clone())).service(work);
    let app = actix_web::test::init_service(app.wrap_fn(|request, service| {
        let response = service.call(request);
        async move { SEEN.scope(Cell::new(0), response).await }
    }))
    .await;
    let request = actix_web::test::TestRequest::post()
        .uri("/work")
        .insert_header(("Idempotency-Key", "dropped"));
    let mut response = Box::pin(actix_web::test::call_service(&app, request.to_request()));
    assert!(futures_util::poll!(&mut response).is_pending());
    drop(response);
    assert!(log::captured().contains("no tokio `LocalSet` is running"));
}
