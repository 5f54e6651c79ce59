//! HTTP/2 clients that reset their stream, or lose their connection.

use actix_web::{App, HttpResponse, HttpServer, post, rt::System, web};
use bytes::Bytes;
use h2::{Reason, client::SendRequest};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};
use test_support::Probe;
use tokio::net::TcpStream;

#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/work")]
async fn work_over_http2(probe: web::Data<Probe>, _body: String) -> HttpResponse {
    probe.run().await
}

fn serve(probe: &Probe) -> std::net::SocketAddr {
    let (started, up) = std::sync::mpsc::channel();
    let (idempotency, probe) =
        (Idempotency::new(MemoryStore::new()), web::Data::new(probe.clone()));
    std::thread::spawn(move || {
        System::new().block_on(async move {
            let app = move || {
                App::new()
                    .app_data(idempotency.clone())
                    .app_data(probe.clone())
                    .service(work_over_http2)
            };
            let server = HttpServer::new(app).workers(1).disable_signals();
            let server = server.bind_auto_h2c(("127.0.0.1", 0)).unwrap();
            started.send(*server.addrs().first().unwrap()).unwrap();
            server.run().await.unwrap();
        });
    });
    up.recv().unwrap()
}

async fn connect(
    address: std::net::SocketAddr,
) -> (SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(async move { drop(connection.await) });
    (client.ready().await.unwrap(), connection)
}

fn request(address: std::net::SocketAddr) -> http::Request<()> {
    http::Request::post(format!("http://{address}/work"))
        .header("idempotency-key", "k")
        .body(())
        .unwrap()
}

async fn retry(address: std::net::SocketAddr) -> http::HeaderMap {
    let (mut client, _connection) = connect(address).await;
    let (response, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    let response = tokio::time::timeout(test_support::WAIT_LIMIT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 201);
    response.headers().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_operation_whose_stream_is_reset_is_recorded_and_replayed() {
    let probe = Probe::new();
    probe.hold();
    let address = serve(&probe);
    let (mut client, _connection) = connect(address).await;
    let (_response, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    tokio::task::block_in_place(|| probe.await_runs(1));
    body.send_reset(Reason::CANCEL);
    let retried = tokio::spawn(retry(address));
    probe.release_all();
    assert_eq!(retried.await.unwrap().get("idempotency-replayed").unwrap(), "true");
    assert_eq!(probe.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_operation_whose_connection_is_lost_is_recorded_and_replayed() {
    let probe = Probe::new();
    probe.hold();
    let address = serve(&probe);
    let (mut client, connection) = connect(address).await;
    let (_response, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    tokio::task::block_in_place(|| probe.await_runs(1));
    connection.abort();
    drop((client, connection.await));
    probe.release_all();
    assert_eq!(retry(address).await.get("idempotency-replayed").unwrap(), "true");
    assert_eq!(probe.runs(), 1);
}

/// Node sends this with `endStream`, and curl with `--http2-prior-knowledge -X POST`.
#[tokio::test]
async fn a_request_without_data_runs_over_http2_whatever_its_content_type() {
    let probe = Probe::new();
    let address = serve(&probe);
    let (mut client, _connection) = connect(address).await;
    let request = http::Request::post(format!("http://{address}/work"))
        .header("idempotency-key", "empty")
        .header("content-type", "application/json")
        .body(())
        .unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let response = tokio::time::timeout(test_support::WAIT_LIMIT, response).await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), probe.runs()), (201, 1));
}
