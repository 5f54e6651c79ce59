//! HTTP/1.1 clients that disconnect while their request is read, while the handler runs, or while
//! the response is sent.

use std::{io::Write, net::TcpStream, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, dev::Service, post, rt::System, web};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Request, WAIT_LIMIT};

/// Duplicates wait for the first response, so that no retry has to be repeated.
#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/work")]
async fn work(probe: web::Data<Probe>, _body: String) -> HttpResponse {
    probe.run().await
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disconnect {
    Fin,
    Rst,
}

impl Disconnect {
    fn close(self, stream: TcpStream) {
        if self == Self::Rst {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
    }
}

/// Adds the note `future dropped` to the probe when actix drops a request's future before it
/// completes.
pub(crate) struct DropNotifier {
    probe: Probe,
    done: bool,
}

impl DropNotifier {
    pub(crate) fn watch(probe: &Probe) -> Self {
        Self { probe: probe.clone(), done: false }
    }

    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for DropNotifier {
    fn drop(&mut self) {
        if !self.done {
            self.probe.note("future dropped");
        }
    }
}

/// Starts a server with this setting for half-closed connections. It ends with the process.
fn serve(half_closed: bool, probe: &Probe) -> std::net::SocketAddr {
    let (started, up) = std::sync::mpsc::channel();
    let (idempotency, probe) = (Idempotency::new(MemoryStore::new()), probe.clone());
    std::thread::spawn(move || {
        System::new().block_on(async move {
            let app = move || {
                let probe = probe.clone();
                App::new()
                    .app_data(idempotency.clone())
                    .app_data(web::Data::new(probe.clone()))
                    .wrap_fn(move |request, service| {
                        let watch = DropNotifier::watch(&probe);
                        let response = service.call(request);
                        async move {
                            let response = response.await;
                            watch.done();
                            response
                        }
                    })
                    .service(work)
            };
            let server =
                HttpServer::new(app).workers(1).disable_signals().h1_allow_half_closed(half_closed);
            let server = server.bind(("127.0.0.1", 0)).unwrap();
            started.send(*server.addrs().first().unwrap()).unwrap();
            server.run().await.unwrap();
        });
    });
    up.recv().unwrap()
}

fn request(key: &str) -> Request {
    Request::post("/work").key(key).body("some work")
}

fn retry(address: std::net::SocketAddr, key: &str) -> test_support::ClientResponse {
    test_support::Pending::send(address, &request(key).bytes()).response()
}

/// The client disconnects while the handler runs. If actix notices, it drops the connection's
/// future, and the handler continues without it. Actix does not notice a FIN if it allows
/// half-closed connections; then the handler continues anyway.
#[test]
fn an_operation_whose_client_disconnects_is_recorded_and_replayed() {
    for half_closed in [true, false] {
        for disconnect in [Disconnect::Fin, Disconnect::Rst] {
            let probe = Probe::new();
            probe.hold();
            let address = serve(half_closed, &probe);
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&request("k").bytes()).unwrap();
            probe.await_runs(1);
            disconnect.close(stream);
            let noticed = !half_closed || disconnect == Disconnect::Rst;
            if noticed {
                probe.await_note("future dropped");
            }
            probe.release_all();
            let response = retry(address, "k");
            assert!(response.is_replay(), "{half_closed} {disconnect:?}: {response:?}");
            assert_eq!(response.status, 201);
            assert_eq!(probe.runs(), 1, "{half_closed} {disconnect:?}");
            assert_eq!(probe.notes().len(), usize::from(noticed), "{half_closed} {disconnect:?}");
        }
    }
}

/// The client disconnects after each byte of its request. However many bytes the server received,
/// the retry gets a response at once and the handler has run once.
#[test]
fn a_request_cut_at_any_byte_leaves_no_stuck_key() {
    for disconnect in [Disconnect::Fin, Disconnect::Rst] {
        for half_closed in [true, false] {
            let probe = Probe::new();
            let address = serve(half_closed, &probe);
            let length = request("00").bytes().len();
            let mut ran_without_client = 0;
            for cut in 0..=length {
                let key = format!("{cut:02x}-{cut:02x}");
                let bytes = Request::post("/work").key(&key).body("some work").bytes();
                let cut = (cut * bytes.len()).div_ceil(length);
                let before = probe.runs();
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_write_timeout(Some(WAIT_LIMIT)).unwrap();
                stream.write_all(&bytes[..cut]).unwrap();
                disconnect.close(stream);
                let response = retry(address, &key);
                assert_eq!(response.status, 201, "{disconnect:?} {half_closed} after {cut} bytes");
                assert_eq!(
                    probe.runs(),
                    before + 1,
                    "{disconnect:?} {half_closed} after {cut} bytes"
                );
                ran_without_client += usize::from(response.is_replay());
            }
            // A reset can overtake the request, so that possibly no run lost its client. A FIN
            // cannot.
            assert!(
                disconnect == Disconnect::Rst || ran_without_client > 0,
                "{half_closed}: no handler ran without its client"
            );
        }
    }
}
