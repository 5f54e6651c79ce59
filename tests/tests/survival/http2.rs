//! HTTP/2 clients that reset their stream, or lose their connection.

use actix_web::{App, HttpResponse, HttpServer, post, rt::System, web};
use bytes::Bytes;
use h2::{Reason, client::SendRequest};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};
use tests::Probe;
use tokio::net::TcpStream;

#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/work")]
async fn work_over_http2(probe: web::Data<Probe>, _body: String) -> HttpResponse {
    probe.run().await
}

fn serve(probe: &Probe) -> std::net::SocketAddr {
    let (started, up) = std::sync::mpsc::channel();
    let (idempotency, probe) = (Idempotency::new(MemoryStore::new()), web::Data::new(probe.clone()));
    std::thread::spawn(move || {
        System::new().block_on(async move {
            let app = move || App::new().app_data(idempotency.clone()).app_data(probe.clone()).service(work_over_http2);
            let server = HttpServer::new(app).workers(1).disable_signals();
            let server = server.bind_auto_h2c(("127.0.0.1", 0)).unwrap();
            started.send(*server.addrs().first().unwrap()).unwrap();
            server.run().await.unwrap();
        });
    });
    up.recv().unwrap()
}

async fn connect(address: std::net::SocketAddr) -> (SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(async move { drop(connection.await) });
    (client.ready().await.unwrap(), connection)
}

fn request(address: std::net::SocketAddr) -> http::Request<()> {
    http::Request::post(format!("http://{address}/work")).header("idempotency-key", "k").body(()).unwrap()
}

async fn retry(address: std::net::SocketAddr) -> http::HeaderMap {
    let (mut client, _connection) = connect(address).await;
    let (answer, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    let answer = tokio::time::timeout(tests::PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
    answer.headers().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_that_is_reset_in_mid_work_is_recorded_and_replayed() {
    let probe = Probe::new();
    probe.hold();
    let address = serve(&probe);
    let (mut client, _connection) = connect(address).await;
    let (_answer, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    tokio::task::block_in_place(|| probe.await_runs(1));
    body.send_reset(Reason::CANCEL);
    let retried = tokio::spawn(retry(address));
    probe.release_all();
    assert_eq!(retried.await.unwrap().get("idempotency-replayed").unwrap(), "true");
    assert_eq!(probe.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_is_lost_in_mid_work_is_recorded_and_replayed() {
    let probe = Probe::new();
    probe.hold();
    let address = serve(&probe);
    let (mut client, connection) = connect(address).await;
    let (_answer, mut body) = client.send_request(request(address), false).unwrap();
    body.send_data("some work".into(), true).unwrap();
    tokio::task::block_in_place(|| probe.await_runs(1));
    connection.abort();
    drop((client, connection.await));
    probe.release_all();
    assert_eq!(retry(address).await.get("idempotency-replayed").unwrap(), "true");
    assert_eq!(probe.runs(), 1);
}
