//! HTTP/1.1 clients that disconnect while their request is read, run or answered with a response.

use std::{io::Write, net::TcpStream, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, dev::Service, post, rt::System, web};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Request, WAIT_LIMIT};

/// A duplicate waits for the first response, so that no retry has to be repeated.
#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/work")]
async fn work(probe: web::Data<Probe>, _body: String) -> HttpResponse {
    probe.run().await
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goodbye {
    Fin,
    Rst,
}

impl Goodbye {
    fn say(self, stream: TcpStream) {
        if self == Self::Rst {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
    }
}

/// Notifies the probe when actix drops a request's future before it is done.
pub(crate) struct CutOff {
    probe: Probe,
    done: bool,
}

impl CutOff {
    pub(crate) fn watch(probe: &Probe) -> Self {
        Self { probe: probe.clone(), done: false }
    }

    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        if !self.done {
            self.probe.note("cut off");
        }
    }
}

/// A server on a free port with this setting for half-closed connections. It ends with the process.
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
                        let watch = CutOff::watch(&probe);
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

/// The client disconnects while the handler runs. Where actix notices, it drops the connection's
/// future, and the handler continues without it; where it does not (half-closed connections
/// allowed), the handler continues anyway.
#[test]
fn an_operation_whose_client_disconnects_is_recorded_and_replayed() {
    for half_closed in [true, false] {
        for goodbye in [Goodbye::Fin, Goodbye::Rst] {
            let probe = Probe::new();
            probe.hold();
            let address = serve(half_closed, &probe);
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&request("k").bytes()).unwrap();
            probe.await_runs(1);
            goodbye.say(stream);
            let noticed = !half_closed || goodbye == Goodbye::Rst;
            if noticed {
                probe.await_note("cut off");
            }
            probe.release_all();
            let response = retry(address, "k");
            assert!(response.is_replay(), "{half_closed} {goodbye:?}: {response:?}");
            assert_eq!(response.status, 201);
            assert_eq!(probe.runs(), 1, "{half_closed} {goodbye:?}");
            assert_eq!(probe.notes().len(), usize::from(noticed), "{half_closed} {goodbye:?}");
        }
    }
}

/// The client disconnects after each byte of its request, and once more while it reads the
/// response. However many bytes were received, the retry gets a response at once and the handler
/// ran once.
#[test]
fn a_request_cut_at_any_byte_leaves_no_stuck_key() {
    for goodbye in [Goodbye::Fin, Goodbye::Rst] {
        for half_closed in [true, false] {
            let probe = Probe::new();
            let address = serve(half_closed, &probe);
            let whole = request("00").bytes().len();
            let mut ran_without_client = 0;
            for cut in 0..=whole {
                let key = format!("{cut:02x}-{cut:02x}");
                let bytes = Request::post("/work").key(&key).body("some work").bytes();
                let cut = (cut * bytes.len()).div_ceil(whole);
                let before = probe.runs();
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_write_timeout(Some(WAIT_LIMIT)).unwrap();
                stream.write_all(&bytes[..cut]).unwrap();
                goodbye.say(stream);
                let response = retry(address, &key);
                assert_eq!(response.status, 201, "{goodbye:?} {half_closed} after {cut} bytes");
                assert_eq!(probe.runs(), before + 1, "{goodbye:?} {half_closed} after {cut} bytes");
                ran_without_client += usize::from(response.is_replay());
            }
            // A reset can overtake the request it follows, so it may be that no run lost its
            // client; a FIN cannot.
            assert!(
                goodbye == Goodbye::Rst || ran_without_client > 0,
                "{half_closed}: nothing was cut off late enough"
            );
        }
    }
}
